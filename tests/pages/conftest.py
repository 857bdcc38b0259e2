import pytest

from rpml.pages.explorer.catalog import Catalog
from tests.drawings import Sample, make_sample, ready_catalog


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """Drawings, which no test changes."""
    return make_sample(tmp_path_factory.mktemp("drawings"))


@pytest.fixture(scope="session")
def catalog(sample: Sample) -> Catalog:
    """With clusters and maps ready."""
    return ready_catalog(sample)
