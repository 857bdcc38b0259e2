"""What a fitted model does: embeds rows, names their cluster, suggests labels, saves and loads."""

from __future__ import annotations

import warnings
from copy import copy
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_is_fitted

from rpml.estimator.fitted import load_model, save_model
from rpml.method.clustering.exemplars import nearest_exemplar
from rpml.method.settings import FitResult
from rpml.method.supervision.suggest import rank_candidates
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.errors import WeightCollapseWarning
from rpml.runtime.rows import float_dtype
from rpml.runtime.validation import check_rows

Array = NDArray[np.floating]
COLLAPSED = 0.05  # mean triplet weight below which the weights are called collapsed


class Embedding:
    """Base of the estimators.

    Apart from them because scikit-learn gives the output of a `transform` that a transformer
    defines itself the names of all components, whatever its size.
    """

    preprocessing_: Preprocessing
    components_: Array
    exemplars_: Any
    exemplar_vectors_: Any
    normalize: bool
    weight: str

    def transform(self, X: ArrayLike, n_components: int | None = None) -> Any:
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

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Labels of unseen rows, as in `labels_`: that of the nearest mode of the model."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        self._check_exemplars()
        Y, exemplars = (
            self.preprocessing_.embed(rows, self.components_, unit=True)
            for rows in (X, self.exemplar_vectors_.astype(float_dtype(X)))
        )
        return np.asarray(self.exemplars_.labels[nearest_exemplar(Y, exemplars)])

    def _check_exemplars(self) -> None:
        if self.exemplars_ is None:
            raise ValueError("This model has no exemplars, being from an older rpml: fit it again.")

    def suggest_labels(self, n: int = 10, X: ArrayLike | None = None) -> NDArray[np.intp]:
        """Rows to label next, the most telling first, as indices into the rows learned from.

        Rows that many others surround, far from every label and from each other.

        Parameters
        ----------
        n : int
        X : (n_rows, n_features_in_) array-like, optional
            The rows learned from. Without them only the middles of clusters are looked at, and
            unsure rows follow.
        """
        check_is_fitted(self)
        self._check_exemplars()
        if X is not None:
            X = check_rows(self, X, reset=False)
            if len(X) != len(self.labels_):
                raise ValueError(
                    f"X has {len(X)} rows, the model learned from {len(self.labels_)}: pass these."
                )
        return rank_candidates(n, self, X)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to one file (safetensors and JSON, no pickle)."""
        check_is_fitted(self)
        save_model(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a model that `save` wrote; safe on files from anywhere."""
        return load_model(cls, path)

    def _set_fitted(self, result: FitResult, exemplar_vectors: Array | None = None) -> None:
        self.preprocessing_ = result.whitening.preprocessing
        self.whitening_ = result.whitening.choice
        self.components_ = np.ascontiguousarray(result.L.T)
        self.labels_ = result.labels
        self.exemplars_ = result.exemplars  # Exemplars, or None for an older model
        self.exemplar_vectors_ = exemplar_vectors
        self.labeled_mask_ = result.labeled_mask
        self.n_classes_ = result.n_classes
        self.triplets_ = result.triplets
        self.triplet_weights_ = result.weights
        self.triplet_probabilities_ = result.probabilities
        self.theta_ = result.theta
        self.history_ = result.optimum.history
        self.n_iter_ = result.optimum.n_iter
        self.converged_ = result.optimum.converged
        self.message_ = result.optimum.message

    def _warn(self) -> None:
        if not self.converged_:
            warnings.warn(
                f"RPML stopped before it converged ({self.message_}) after {self.n_iter_} "
                "iterations: raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        weights = self.triplet_weights_
        if self.weight != "constant" and len(weights) and weights.mean() < COLLAPSED:
            warnings.warn(
                f"The triplet weights have collapsed (mean {weights.mean():.2g}): the objective "
                "was lowered by ignoring the triplets, so the embedding is hardly trained. Set "
                "weight_ridge=0.01 or weight='constant'.",
                WeightCollapseWarning,
                stacklevel=3,
            )
