"""What a fitted model does with rows: embed them, and name their cluster."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_is_fitted

from rpml.method.clustering.exemplars import nearest_mode
from rpml.method.whitening.linear_map import Preprocessing, float_dtype
from rpml.runtime.validation import check_rows

Array = NDArray[np.floating]


class Embedding:
    """Base of the estimators.

    Apart from them because scikit-learn gives the output of a `transform` that a transformer
    defines itself the names of all components, whatever its size.
    """

    preprocessing_: Preprocessing
    components_: Array
    modes_: Any
    mode_vectors_: Any
    normalize: bool

    def transform(self, X: Any, n_components: int | None = None) -> Any:
        """Embed rows; each row's result depends on that row alone.

        Parameters
        ----------
        X : (m, n_features_in_) array-like
        n_components : int, optional
            Size of the embedding: the first so many components. One fit serves every smaller size.

        Returns
        -------
        (m, n_components) array, with unit-norm rows unless normalize=False.
        """
        check_is_fitted(self)
        model = self if n_components is None else self._first(n_components)
        rows = check_rows(self, X, reset=False)
        Y = self.preprocessing_.embed(rows, model.components_, self.normalize)
        return _wrap_data_with_container("transform", Y, X, model)

    def _first(self, size: int) -> Self:
        """The same model with the first components only."""
        most = len(self.components_)
        if not 1 <= size <= most:
            raise ValueError(f"n_components={size}: the model has 1 to {most} components.")
        model = copy(self)
        model.components_ = self.components_[:size]
        return model

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Labels of unseen rows, as in `labels_`: that of the nearest mode of the model."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        self._check_modes()
        Y, modes = (
            self.preprocessing_.embed(rows, self.components_, unit=True)
            for rows in (X, self.mode_vectors_.astype(float_dtype(X)))
        )
        return np.asarray(self.modes_.labels[nearest_mode(Y, modes)])

    def _check_modes(self) -> None:
        if self.modes_ is None:
            raise ValueError("This model has no modes, being from an older rpml: fit it again.")
