import numpy as np
import pytest

from rpml import RPML
from rpml.estimator.description import decisions, describe_model, outcome_lines
from rpml.estimator.fitted import model_arrays, model_metadata
from rpml.evaluation.diagnostics import of_whitening
from rpml.io.container import FORMAT_VERSION, write_container
from rpml.runtime.errors import ModelFormatError
from tests.problems import blobs, classes_with_nuisance


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


def test_a_whitening_without_evidence_is_pca(saved):
    path = saved(reason="its rank gain is 0.01", shrinkage=np.inf, ridge=np.inf)
    said = "none (PCA), because its rank gain is 0.01"
    assert describe_model(RPML.load(path), path)["decisions"]["whitening"] == said
    RPML.load(path).save(path)
    model = RPML.load(path)
    assert decisions(model)["whitening"] == said  # as the report says it
    assert of_whitening(model)[0].shown == "none (PCA)"
    with pytest.raises(ModelFormatError, match="reason"):
        RPML.load(saved(reason=3))


def test_the_outcome_in_words():
    X, _ = blobs(classes=4, per_class=40, d=8)
    plain = RPML(2, random_state=0, whiten=None, max_iter=2).fit(X)
    assert outcome_lines(plain)["meaning"] == "PCA of unit-length rows, then trained on triplets"
    noise = RPML(2, random_state=0).fit(np.random.default_rng(0).normal(size=(150, 10)))
    assert outcome_lines(noise)["meaning"].endswith(": the rows support nothing better")
    labeled = RPML(8, random_state=0, use_labels=True, max_iter=2, tol=1e-2)
    lines = outcome_lines(labeled.fit(*classes_with_nuisance()))
    assert lines["meaning"].startswith("learned axes: directions in which rows of one class differ")
