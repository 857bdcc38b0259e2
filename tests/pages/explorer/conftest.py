from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import Catalog
from rpml.pages.items import picture_reader
from tests.drawings import Sample
from tests.pages.explorer.client import Client, running


@pytest.fixture(scope="session")
def client(catalog: Catalog, sample: Sample) -> Iterator[Client]:
    """A server on loopback."""
    before = threading.active_count()
    app = make_app(catalog, picture_reader(catalog.items, sample.images))
    with running(app) as port:
        yield Client(port)
    assert threading.active_count() <= before + 50
