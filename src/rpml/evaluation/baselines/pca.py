"""PCA with any degree of whitening."""

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.baselines.linear import LinearBaseline, checked_axes
from rpml.method.whitening.linear_map import Preprocessing, principal_axes, whitening
from rpml.runtime.rows import Array


class PCA(LinearBaseline):
    """Project on the leading principal axes, divided by a power of their standard deviation.

    The exponent 0 is PCA, 1 is PCA whitening, 1/2 is half-whitening (S^-1/2).
    """

    def __init__(self, n_components: int = 2, *, exponent: float = 0.0) -> None:
        self.n_components = n_components
        self.exponent = exponent

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        spectrum, size = checked_axes(X, self.n_components, "PCA")
        return whitening(spectrum, self.exponent, size, unit_input=True, unit_output=True)


class WhitenedDescriptors(LinearBaseline):
    """All principal axes, at most 512, whitened: the descriptors of the paper.

    `n_components` is ignored, since the size is always the same.
    """

    MOST = 512

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        spectrum = principal_axes(X, unit_input=True, center=True)
        return whitening(spectrum, 1.0, self.MOST, unit_input=True, unit_output=True)
