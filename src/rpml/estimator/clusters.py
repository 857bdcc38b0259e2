"""The clusters of rows as a fitted model sees them, where the fit made none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rpml.method.clustering.exemplars import Exemplars, find_exemplars
from rpml.method.clustering.pseudo_labels import as_clusterer, pseudo_labels
from rpml.runtime.rows import Array, Labels

if TYPE_CHECKING:
    from rpml.estimator.embedding import Embedding


def cluster_rows(model: Embedding, X: Array) -> tuple[Labels, Exemplars]:
    """Cluster rows of X as a fit would: by the model's clustering, in its preprocessed space."""
    Z = model.preprocessing_.apply(X)
    clusterer = as_clusterer(model.clustering, min(model.n_neighbors, len(Z) - 1))
    labels = pseudo_labels(Z, clusterer)
    return labels, find_exemplars(Z @ model.components_.T.astype(Z.dtype), labels, labels)


class TrainingSample:
    """Training rows of a fit that made no clusters; they are clustered once somebody asks."""

    def __init__(self, rows: NDArray[np.intp], vectors: Array) -> None:
        self.rows, self.vectors = rows, vectors
        self._clustered: tuple[Exemplars, Array] | None = None

    def clustered(self, model: Embedding) -> tuple[Exemplars, Array]:
        """Return the exemplars of the sample, by the numbers of the training rows, as rows too."""
        if self._clustered is None:
            made = cluster_rows(model, self.vectors)[1]
            numbered = Exemplars(self.rows[made.rows], made.labels, made.sizes)
            self._clustered = numbered, self.vectors[made.rows]
        return self._clustered
