"""A random orthonormal projection, which shows the cost of a small dimension alone."""

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from rpml.evaluation.baselines.linear import LinearBaseline, checked_size
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.rows import Array, RandomState


class RandomProjection(LinearBaseline):
    """Project on a uniformly random subspace."""

    def __init__(self, n_components: int = 2, *, random_state: RandomState = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        d = X.shape[1]
        size = checked_size(self.n_components, d, "a random projection", "the number of features")
        draws = check_random_state(self.random_state).standard_normal((d, size))
        return Preprocessing(True, np.zeros(d), np.linalg.qr(draws)[0], True)
