"""The base of all baselines: unit rows in, one affine map, unit rows out."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from rpml.method.whitening.linear_map import Preprocessing, Spectrum, principal_axes
from rpml.runtime.rows import Array
from rpml.runtime.validation import check_rows, check_varied
from rpml.runtime.wording import counted


class LinearBaseline(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base of the baselines; a subclass learns the map, `map_`, which includes the l2 scaling."""

    uses_labels: ClassVar[bool] = False
    """True for upper references, which see the classes of the training rows."""

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the map from the rows of X (and, if `uses_labels`, their classes y)."""
        rows = check_rows(self, X, reset=True)
        check_varied(rows)
        self.map_ = self._learn(rows, self._classes(rows, y) if self.uses_labels else None)
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Embed rows; each has unit norm."""
        check_is_fitted(self)
        return self.map_.apply(check_rows(self, X, reset=False))

    @abstractmethod
    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        """Learn the map; y are classes from 0, or None."""

    def _classes(self, X: Array, y: ArrayLike | None) -> NDArray[np.intp]:
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        labels = np.asarray(y)
        if labels.shape != (len(X),):
            raise ValueError(
                f"y must hold one class per row: {name} got shape {labels.shape} for "
                f"{counted(len(X), 'row')}"
            )
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"{name} needs at least 2 classes in y, got {len(classes)} class")
        return codes.astype(np.intp, copy=False)

    @property
    def _n_features_out(self) -> int:
        return int(self.map_.matrix.shape[1])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.uses_labels
        return tags


def checked_size(n_components: int, most: int, method: str, limit: str) -> int:
    """Return n_components; ValueError with the method's limit if it is too large."""
    if not 1 <= n_components <= most:
        raise ValueError(
            f"n_components={n_components} does not suit {method}, which gives at most {most} "
            f"here ({limit})"
        )
    return int(n_components)


def checked_axes(X: Array, n_components: int, method: str) -> tuple[Spectrum, int]:
    """Return the principal axes of the unit rows, and n_components if there are as many."""
    spectrum = principal_axes(X, unit_input=True, center=True)
    rank = len(spectrum.variances)
    return spectrum, checked_rank(n_components, rank, method, X.shape[1])


def checked_rank(n_components: int, rank: int, method: str, n_features: int) -> int:
    """Return n_components; ValueError if the rows span fewer directions."""
    limit = f"the rank of the centered rows, n_features = {n_features}"
    return checked_size(n_components, rank, method, limit)
