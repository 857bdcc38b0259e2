"""The first columns, as for vectors trained in matryoshka order."""

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.baselines.linear import LinearBaseline, checked_size
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.rows import Array


class Truncation(LinearBaseline):
    """Keep the leading columns of the rows, scaled to unit norm; nothing is learned."""

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        d = X.shape[1]
        size = checked_size(self.n_components, d, "truncation", "the number of features")
        return Preprocessing(True, np.zeros(d), np.eye(d, size), True)
