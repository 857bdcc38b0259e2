import pytest

from tests.drawings import Sample, make_sample


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """Drawings, which no test changes."""
    return make_sample(tmp_path_factory.mktemp("drawings"))
