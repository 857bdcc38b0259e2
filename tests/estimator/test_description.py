import numpy as np
import pytest

from rpml import RPML
from rpml.estimator import describe_model
from rpml.estimator.description import decisions
from rpml.estimator.fitted import model_arrays, model_metadata
from rpml.evaluation.diagnostics import of_whitening
from rpml.io.container import write_container
from rpml.io.model_file import FORMAT_VERSION
from rpml.runtime.errors import ModelFormatError


@pytest.fixture
def saved(tmp_path):
    """Save a model with more in the metadata of its whitening."""
    X = np.random.default_rng(0).normal(size=(150, 10))
    model = RPML(4, n_neighbors=10, random_state=0).fit(X)

    def save(**more):
        metadata = model_metadata(model)
        metadata["whitening"] |= more
        path = tmp_path / "m.rpml"
        write_container(path, model_arrays(model), metadata, "model", FORMAT_VERSION)
        return path

    return save


def test_models_of_an_earlier_rule_are_half_whitened(saved):
    path = saved(half_reason="its rank gain is 0.05", shrinkage=np.inf, ridge=np.inf)
    said = "half-whitened PCA, because its rank gain is 0.05"
    assert describe_model(RPML.load(path), path)["decisions"]["whitening"] == said
    RPML.load(path).save(path)
    model = RPML.load(path)
    assert decisions(model)["whitening"] == said  # as the report says it
    assert of_whitening(model)[0].shown == "half-whitened PCA"
    path = saved(half_reason="", shrinkage=np.inf, ridge=np.inf)
    assert describe_model(RPML.load(path), path)["decisions"]["whitening"].startswith("none (PCA)")
    with pytest.raises(ModelFormatError, match="half_reason"):
        RPML.load(saved(half_reason=3))
