"""Neighborhood components analysis, which uses the classes of the training rows."""

import warnings
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.utils import check_random_state

from rpml.evaluation.baselines.linear import LinearBaseline, checked_axes
from rpml.method.whitening.linear_map import Preprocessing, whitening
from rpml.runtime.rows import Array, RandomState, sorted_sample, unit_rows

MAX_AXES = 256  # unless there are more components
NORM = 3.0  # of the initial rows: the larger, the fewer neighbors matter for a row


class NCA(LinearBaseline):
    """scikit-learn's NCA on leading principal axes, initialized with half-whitened PCA.

    Its cost is quadratic in the rows, so it learns from a random sample of at most `max_rows`.
    Stopping after `max_iter` iterations is part of the method (NCA overfits), without a warning.
    """

    uses_labels: ClassVar[bool] = True

    def __init__(
        self,
        n_components: int = 2,
        *,
        max_rows: int = 4000,
        max_iter: int = 10,
        random_state: RandomState = None,
    ) -> None:
        self.n_components, self.max_rows = n_components, max_rows
        self.max_iter, self.random_state = max_iter, random_state

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        assert y is not None
        spectrum, size = checked_axes(X, self.n_components, "NCA")
        n_axes = min(len(spectrum.variances), max(size, MAX_AXES))
        first = whitening(spectrum, 0.5, n_axes, unit_input=True, unit_output=False)
        sample = sorted_sample(len(X), self.max_rows, check_random_state(self.random_state))
        turn = self._nca(first.apply(X[sample]), y[sample], size)
        return Preprocessing(True, first.mean, first.matrix @ turn.T, True)

    def _nca(self, rows: Array, y: NDArray[np.intp], size: int) -> Array:
        """Return axes in the half-whitened space, starting from its first `size` axes."""
        scaled = NORM * unit_rows(rows.astype(np.float64))
        nca = NeighborhoodComponentsAnalysis(
            size, init=np.eye(size, rows.shape[1]), max_iter=self.max_iter
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            nca.fit(scaled, y)
        self.n_iter_ = int(nca.n_iter_)
        return np.asarray(nca.components_)
