"""Whether rows are those that a model was fitted on, and their clusters."""

import numpy as np

from rpml.estimator import RPML
from rpml.estimator.clusters import cluster_rows
from rpml.method.objective.triplet_loss import angular_factor, softplus_and_sigmoid
from rpml.runtime.rows import Array, Labels

_CHECKED = 200  # triplets


def fitted_on(model: RPML, X: Array) -> bool:
    """Whether X are the training rows.

    They must reproduce the probabilities of some triplets, or the exemplars if there are none.
    """
    n_labels = len(getattr(model, "labels_", X))  # of more rows than the new ones after an update
    if not len(X) == model.n_samples_ == n_labels or X.shape[1] != model.n_features_in_:
        return False
    if len(getattr(model, "triplets_", ())) == 0:  # exemplars are training rows
        if not hasattr(model, "exemplar_vectors_"):
            return True
        rows = np.asarray(X[model.exemplars_.rows], np.float64)
        return bool(np.allclose(rows, model.exemplar_vectors_, rtol=1e-3, atol=1e-6))
    sampled = np.linspace(0, len(model.triplets_) - 1, _CHECKED).astype(np.intp)
    triplets = model.triplets_[sampled]
    rows, places = np.unique(triplets, return_inverse=True)
    Z = model.preprocessing_.apply(np.asarray(X[rows], np.float64))
    a, p, n = (Z @ model.components_.T)[places.reshape(-1, 3)].transpose(1, 0, 2)
    far = n - (a + p) / 2
    z = ((a - p) ** 2).sum(axis=1) - angular_factor(model.alpha) * (far**2).sum(axis=1)
    m, _ = softplus_and_sigmoid(z)
    _, again = softplus_and_sigmoid(-model.triplet_weights_[sampled] * m)
    return bool(np.allclose(again, model.triplet_probabilities_[sampled], rtol=0.02, atol=1e-3))


def clusters_of(model: RPML, X: Array) -> Labels | None:
    """Return the clusters of X: those of the fit if X are its rows, or their own if it made none.

    None if the model has clusters, but of other rows.
    """
    if not hasattr(model, "labels_"):
        return cluster_rows(model, X)[0]
    return model.labels_ if fitted_on(model, X) else None
