"""Whitening by a shrunk covariance, which does not amplify weak directions."""

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf_shrinkage

from rpml.evaluation.baselines.linear import LinearBaseline, checked_axes
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.rows import Array, unit_rows


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
