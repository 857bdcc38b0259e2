from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import Catalog
from rpml.pages.items import make_items, picture_reader
from rpml.pages.report.measurements import Measurements, Source
from rpml.pages.report.page import build_report
from tests.drawings import HOSTILE, Sample
from tests.pages.browser.chrome import Chrome, fetch_axe, start_driver
from tests.pages.explorer.client import running


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    chrome = Chrome(start_driver(tmp_path_factory.mktemp("profile")))
    yield chrome
    chrome.driver.quit()


@pytest.fixture
def chrome(driver: Chrome) -> Iterator[Chrome]:
    """A clean window; at the end nothing may have been said on the console."""
    driver.reset()
    yield driver
    assert driver.complaints() == []


@pytest.fixture(
    params=[
        (390, True),
        (1280, False),
        pytest.param((390, False), marks=pytest.mark.thorough),
        pytest.param((1280, True), marks=pytest.mark.thorough),
    ],
    ids=lambda screen: f"{screen[0]}-{'dark' if screen[1] else 'light'}",
)
def screen(chrome: Chrome, request: pytest.FixtureRequest) -> Chrome:
    """The browser on a telephone and on a desk, light and dark."""
    width, dark = request.param
    chrome.size(width, 844, touch=width < 500)
    chrome.media(dark=dark)
    return chrome


@pytest.fixture(scope="session")
def axe(driver: Chrome, tmp_path_factory: pytest.TempPathFactory) -> str:
    return fetch_axe(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="session")
def sample(driver: Chrome, sample: Sample) -> Sample:
    """The drawings, only where there is a browser to look at them."""
    return sample


@pytest.fixture(scope="session")
def report(sample: Sample) -> str:
    """Address of a report with pictures and labels."""
    page = build_report(
        Measurements([sample.model], sample.X, sample.items, Source("model.rpml", "x.npy"))
    )
    path = sample.folder / "report.html"
    path.write_text(page, encoding="utf8")
    return path.as_uri()


@pytest.fixture(scope="session")
def hostile(sample: Sample) -> list[str]:
    """Ids that would run if they were not escaped."""
    return [f"{HOSTILE}<img src=x onerror=alert({i})>" for i in range(len(sample.X))]


@pytest.fixture(scope="session")
def plain_report(sample: Sample, hostile: list[str]) -> str:
    """Address of a report without pictures, with hostile ids and labels."""
    items = make_items(len(hostile), hostile, [f"</script>{label}" for label in sample.labels])
    page = build_report(Measurements([sample.model], sample.X, items, Source(HOSTILE, "x.npy")))
    path: Path = sample.folder / "plain.html"
    path.write_text(page, encoding="utf8")
    return path.as_uri()


@pytest.fixture(scope="session")
def explorer(catalog: Catalog, sample: Sample) -> Iterator[str]:
    """Address of an explorer that is ready."""
    with running(make_app(catalog, picture_reader(catalog.items, sample.images))) as port:
        yield f"http://127.0.0.1:{port}"
