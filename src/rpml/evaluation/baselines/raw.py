"""The raw features, scaled to unit norm."""

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.baselines.linear import LinearBaseline
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.rows import Array


class Raw(LinearBaseline):
    """No map at all."""

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        d = X.shape[1]
        return Preprocessing(True, np.zeros(d), np.eye(d), False)
