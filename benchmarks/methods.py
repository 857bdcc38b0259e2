"""Methods that only the pages compare: other clusterings, other losses, rare baselines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from losses import LOSSES, ReferenceLoss
from numpy.typing import NDArray
from partitions import KMeansPartition, LeidenPartition
from sklearn.cluster import HDBSCAN
from sklearn.covariance import ledoit_wolf_shrinkage

from rpml.estimator import RPML
from rpml.evaluation.baselines.linear import LinearBaseline, checked_axes
from rpml.evaluation.registry import (
    DEEP_METHODS,
    METHODS,
    Build,
    Method,
    imported,
    seeded,
    trained,
    unseeded,
)
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.rows import Array, RandomState, unit_rows

ADAPTOR = "adaptor:MatryoshkaAdaptor"
LOSS_TITLES = dict(
    zip(
        LOSSES,
        (
            "hinge triplet loss",
            "hinge angular loss",
            "smooth angular loss, unweighted",
            "smooth angular loss, unconstrained",
        ),
        strict=True,
    )
)


class ShrunkWhitening(LinearBaseline):
    """PCA whitening by the estimate (1 - s) S + s tr(S)/d I of the covariance; `shrinkage_` is s.

    O. Ledoit, M. Wolf, "A well-conditioned estimator for large-dimensional covariance matrices"
    (Journal of Multivariate Analysis, 2004).
    """

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        spectrum, size = checked_axes(X, self.n_components, "shrunk whitening")
        self.shrinkage_ = float(ledoit_wolf_shrinkage(unit_rows(np.asarray(X, np.float64))))
        ridge = self.shrinkage_ * spectrum.variances.sum() / X.shape[1]
        variances = (1 - self.shrinkage_) * spectrum.variances[:size] + ridge
        axes = spectrum.axes[:, :size] * np.sqrt(variances[0] / variances)
        return Preprocessing(True, spectrum.mean, axes, True)


def clustered(partition: Callable[[RandomState], object]) -> Build:
    """Return the constructor of RPML on another clustering, built for the seed."""
    return lambda n_components, seed: RPML(
        n_components, clustering=partition(seed), training="always", random_state=seed
    )


_EXTRA = (
    Method("shrunk-whitened", "whitened PCA, shrunk", unseeded(ShrunkWhitening)),
    Method("adaptor", "Matryoshka-Adaptor", imported(ADAPTOR)),
    Method("adaptor-linear", "Matryoshka-Adaptor, linear", imported(ADAPTOR, hidden=0)),
    Method("rpml-untrained", "RPML before training", seeded(RPML, max_iter=0)),
    Method("rpml-kmeans", "RPML on k-means", clustered(KMeansPartition)),
    Method("rpml-hdbscan", "RPML on HDBSCAN", clustered(lambda seed: HDBSCAN(copy=True))),
    Method("rpml-leiden", "RPML on Leiden", clustered(LeidenPartition)),
    Method("rpml-constant", "RPML, constant weights", trained(weight="constant")),
    Method("srpml-bilinear", "sRPMLv1", trained(solver="stochastic", weight="bilinear")),
    Method(
        "srpml-constant",
        "sRPML, constant weights",
        trained(solver="stochastic", weight="constant"),
    ),
    Method("paper-bilinear", "RPMLv1 as printed", seeded(RPML.paper, weight="bilinear")),
    *(
        Method(f"loss-{loss}", title, seeded(ReferenceLoss, loss=loss))
        for loss, title in LOSS_TITLES.items()
    ),
    *(method.head() for method in DEEP_METHODS),
)
ALL: dict[str, Method] = METHODS | {method.name: method for method in _EXTRA}
"""Every method of the pages by name."""
