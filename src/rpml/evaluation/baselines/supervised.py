"""Linear discriminant analysis and neighborhood components analysis: upper references.

They use the classes of the training rows; `PseudoLabelLDA` uses pseudo-labels instead.
"""

import warnings
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.utils import check_random_state

from rpml.estimator import RPML
from rpml.evaluation.baselines.linear import LinearBaseline, checked_axes, checked_size
from rpml.method.whitening.linear_map import Preprocessing, whitening
from rpml.runtime.rows import Array, RandomState, row_blocks, sorted_sample, unit_rows

MAX_AXES = 256  # unless there are more components
NORM = 3.0  # of the initial rows: the larger, the fewer neighbors matter for a row


class LDA(LinearBaseline):
    """Axes that maximize the scatter between classes relative to the scatter within them.

    `shrinkage` is the share of the scatter within classes that a multiple of the identity replaces.
    There are at most as many axes as classes minus one.
    """

    uses_labels: ClassVar[bool] = True

    def __init__(self, n_components: int = 1, *, shrinkage: float = 0.3) -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        assert y is not None
        if not 0 < self.shrinkage <= 1:
            raise ValueError(f"shrinkage must lie in (0, 1], got {self.shrinkage}")
        classes, d = int(y.max()) + 1, X.shape[1]
        size = min(checked_size(self.n_components, d, "LDA", "the number of features"), classes - 1)
        mean, within, between = _scatters(X, y, classes)
        ridge = self.shrinkage * max(np.trace(within) / d, 1e-12)
        within = (1 - self.shrinkage) * within + ridge * np.eye(d)
        axes = eigh(between, within, subset_by_index=(d - size, d - 1))[1][:, ::-1]
        return Preprocessing(True, mean, axes, True)


class PseudoLabelLDA(LinearBaseline):
    """LDA on the labels of RPML's clustering; rows alone in their cluster are ignored."""

    def __init__(self, n_components: int = 2, *, random_state: RandomState = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        clustering = RPML(
            self.n_components, max_iter=0, training="always", random_state=self.random_state
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # no iterations are intended
            labels = clustering.fit(X).labels_
        together = (labels >= 0) & (np.bincount(labels[labels >= 0])[labels] > 1)
        return LDA(self.n_components).fit(X[together], labels[together]).map_


def _scatters(X: Array, y: NDArray[np.intp], classes: int) -> tuple[Array, Array, Array]:
    """Return mean, within-class and between-class scatter of the unit rows, in blocks."""
    n, d = X.shape
    sums, moments = np.zeros((classes, d)), np.zeros((d, d))
    for part, block in row_blocks(X, np.float64):
        rows = unit_rows(block)
        np.add.at(sums, y[part], rows)
        moments += rows.T @ rows
    sizes = np.bincount(y, minlength=classes)[:, None]
    mean = sums.sum(axis=0) / n
    means = sums / sizes
    between = (means - mean).T @ ((means - mean) * sizes) / n
    within = moments / n - np.outer(mean, mean) - between
    return mean, within, between


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
