"""All-but-the-top: removes the strongest directions, which all rows share."""

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.baselines.linear import LinearBaseline, checked_rank
from rpml.method.whitening.linear_map import Preprocessing, principal_axes
from rpml.runtime.rows import Array


class AllButTheTop(LinearBaseline):
    """Subtract the mean, remove the leading principal axes, retain the next ones.

    J. Mu, P. Viswanath, "All-but-the-top: simple and effective postprocessing for word
    representations" (ICLR 2018), followed by PCA. `n_removed` is by default a hundredth of the
    features, the authors' rule.
    """

    def __init__(self, n_components: int = 2, *, n_removed: int | None = None) -> None:
        self.n_components = n_components
        self.n_removed = n_removed

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        spectrum = principal_axes(X, unit_input=True, center=True)
        removed = round(X.shape[1] / 100) if self.n_removed is None else self.n_removed
        room = len(spectrum.variances) - removed
        size = checked_rank(self.n_components, room, "all-but-the-top", X.shape[1])
        axes = spectrum.axes[:, removed : removed + size]
        return Preprocessing(True, spectrum.mean, axes, True)
