"""The registry of methods: name, title, constructor, and whether labels are used; the baselines.

`compare`, `benchmark`, `demo`, `recommend` and the report all read the table at the end. A new
method is one class and one line there. The baselines scale rows to unit norm, apply one learned
affine map and scale the result to unit norm again, so that they only differ in the map. LDA and NCA
use the classes of the training rows: upper references.
"""

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.utils import Tags, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted

from rpml.estimator import RPML
from rpml.method.whitening.linear_map import Preprocessing, Spectrum, principal_axes, whitening
from rpml.runtime.errors import InputError, one_line
from rpml.runtime.rows import (
    Array,
    Indices,
    RandomState,
    check_rows,
    check_varied,
    sorted_sample,
    unit_rows,
)

DESCRIPTOR_AXES = 512  # of the paper's descriptors
LDA_SHRINKAGE = 0.3  # share of the scatter within classes that an identity replaces
NCA_AXES = 256  # principal axes that NCA starts from, unless there are more components
NCA_ROWS, NCA_ITERATIONS = 4000, 10
NCA_NORM = 3.0  # of the initial rows: the larger, the fewer neighbors matter for a row


class Transformer(Protocol):
    """An estimator with fit and transform, as in scikit-learn."""

    def fit(self, X: Array, y: ArrayLike | None = None) -> Self: ...

    def transform(self, X: Array) -> Array: ...


Build = Callable[[int, RandomState], Transformer]
KNOWN = "rpml-known"
"""RPML that sees the nuisance and the queries of a comparison."""


@dataclass(frozen=True)
class Method:
    """One row of the table.

    `name` is used in Python and on the command line, `title` in tables and sentences. `build`
    returns the unfitted estimator for (n_components, seed), on which the fit depends if it
    `is_random`. If `uses_labels`, `fit` sees the classes of the training rows: an upper reference.
    If `uses_knowledge`, it also sees what the user knows about them: a nuisance, queries.
    """

    name: str
    title: str
    build: Build
    uses_labels: bool = False
    uses_knowledge: bool = False
    is_random: bool = True

    def fit(
        self,
        X: Array,
        y: ArrayLike | None,
        n_components: int,
        seed: RandomState,
        known: Mapping[str, object] | None = None,
    ) -> tuple[Transformer, float, list[str]]:
        """Return the fitted estimator, the seconds of its fit and the texts of its warnings.

        Classes y and what is known are passed on only to methods that use them.
        """
        estimator = self.build(n_components, seed)
        with warnings.catch_warnings(record=True, action="always") as caught:
            start = time.perf_counter()
            more = known if self.uses_knowledge and known else {}
            estimator.fit(X, y if self.uses_labels else None, **more)
            seconds = round(time.perf_counter() - start, 3)
        return estimator, seconds, sorted({one_line(w.message) for w in caught})


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
    def _learn(self, X: Array, y: Indices | None) -> Preprocessing:
        """Learn the map; y are classes from 0, or None."""

    def _classes(self, X: Array, y: ArrayLike | None) -> Indices:
        name = type(self).__name__
        if y is None:
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        labels = column_or_1d(y)
        check_consistent_length(X, labels)
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
    spectrum = principal_axes(X, unit_input=True)
    limit = f"the rank of the centered rows, n_features = {X.shape[1]}"
    return spectrum, checked_size(n_components, len(spectrum.variances), method, limit)


class Truncation(LinearBaseline):
    """Keep the leading columns of the rows, scaled to unit norm; None: all columns."""

    def __init__(self, n_components: int | None = 2) -> None:
        self.n_components = n_components

    def _learn(self, X: Array, y: Indices | None) -> Preprocessing:
        d = X.shape[1]
        wanted = d if self.n_components is None else self.n_components
        size = checked_size(wanted, d, "truncation", "the number of features")
        return Preprocessing(True, np.zeros(d), np.eye(d, size), size < d)


class RandomProjection(LinearBaseline):
    """Project on a uniformly random subspace."""

    def __init__(self, n_components: int = 2, *, random_state: RandomState = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def _learn(self, X: Array, y: Indices | None) -> Preprocessing:
        d = X.shape[1]
        size = checked_size(self.n_components, d, "a random projection", "the number of features")
        draws = check_random_state(self.random_state).standard_normal((d, size))
        return Preprocessing(True, np.zeros(d), np.linalg.qr(draws)[0], True)


class PCA(LinearBaseline):
    """Project on the leading principal axes, divided by a power of their standard deviation.

    The exponent 0 is PCA, 1 is PCA whitening, 1/2 is half-whitening (S^-1/2). If `n_components` is
    None, all axes are kept, at most 512: whitened, these are the descriptors of the paper.
    """

    def __init__(self, n_components: int | None = 2, *, exponent: float = 0.0) -> None:
        self.n_components = n_components
        self.exponent = exponent

    def _learn(self, X: Array, y: Indices | None) -> Preprocessing:
        if self.n_components is None:
            spectrum, size = principal_axes(X, unit_input=True), DESCRIPTOR_AXES
        else:
            spectrum, size = checked_axes(X, self.n_components, "PCA")
        return whitening(spectrum, self.exponent, size, unit_input=True, unit_output=True)


class LDA(LinearBaseline):
    """scikit-learn's LDA with shrinkage; there are at most as many axes as classes minus one."""

    uses_labels: ClassVar[bool] = True

    def __init__(self, n_components: int = 1) -> None:
        self.n_components = n_components

    def _learn(self, X: Array, y: Indices | None) -> Preprocessing:
        assert y is not None
        size = checked_size(self.n_components, X.shape[1], "LDA", "the number of features")
        rows = unit_rows(np.asarray(X, np.float64))
        if rows.shape[1] == 1:
            raise ValueError("LDA needs rows of more than one direction, got n_features = 1")
        lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage=LDA_SHRINKAGE).fit(rows, y)
        axes = lda.scalings_[:, : min(size, int(y.max()))]
        return Preprocessing(True, rows.mean(axis=0), axes, True)


class NCA(LinearBaseline):
    """scikit-learn's NCA on leading principal axes, initialized with half-whitened PCA.

    Its cost is quadratic in the rows, so it learns from a random sample. That it stops after a few
    iterations is part of the method (NCA overfits), without a warning.
    """

    uses_labels: ClassVar[bool] = True

    def __init__(self, n_components: int = 2, *, random_state: RandomState = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def _learn(self, X: Array, y: Indices | None) -> Preprocessing:
        assert y is not None
        spectrum, size = checked_axes(X, self.n_components, "NCA")
        n_axes = min(len(spectrum.variances), max(size, NCA_AXES))
        first = whitening(spectrum, 0.5, n_axes, unit_input=True, unit_output=False)
        sample = sorted_sample(len(X), NCA_ROWS, check_random_state(self.random_state))
        scaled = NCA_NORM * unit_rows(first.apply(X[sample]).astype(np.float64))
        start = np.eye(size, n_axes)  # the first axes of the half-whitened space
        nca = NeighborhoodComponentsAnalysis(size, init=start, max_iter=NCA_ITERATIONS)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            nca.fit(scaled, y[sample])
        self.n_iter_ = int(nca.n_iter_)
        return Preprocessing(True, first.mean, first.matrix @ nca.components_.T, True)


def seeded(estimator: Callable[..., Transformer], **settings: object) -> Build:
    return lambda n_components, seed: estimator(n_components, random_state=seed, **settings)


def unseeded(estimator: Callable[..., Transformer], **settings: object) -> Build:
    return lambda n_components, seed: estimator(n_components, **settings)


def trained(**settings: object) -> Build:
    """Return the constructor of an RPML variant that always trains, so that variants differ."""
    return seeded(RPML, training="always", **settings)


_TABLE = (
    Method("raw", "raw features", lambda n_components, seed: Truncation(None), is_random=False),
    Method("truncation", "first columns", unseeded(Truncation), is_random=False),
    Method("random", "random projection", seeded(RandomProjection)),
    Method("pca", "PCA", unseeded(PCA), is_random=False),
    Method("half-whitened", "half-whitened PCA", unseeded(PCA, exponent=0.5), is_random=False),
    Method("pca-whitened", "whitened PCA", unseeded(PCA, exponent=1.0), is_random=False),
    Method(
        "whitened-512",
        "all axes whitened, at most 512",
        lambda n_components, seed: PCA(None, exponent=1.0),
        is_random=False,
    ),
    Method("rpml", "RPML", seeded(RPML)),
    Method(KNOWN, "RPML with nuisance or queries", seeded(RPML), uses_knowledge=True),
    Method("rpml-trained", "RPML, always trained", trained()),
    Method("rpml-bilinear", "RPMLv1", trained(weight="bilinear")),
    Method("srpml", "sRPML", trained(solver="stochastic")),
    Method("srpml-random", "sRPML from random", trained(solver="stochastic", init="random")),
    Method("paper", "RPML as printed", seeded(RPML.paper)),
    Method("paper-stochastic", "sRPML as printed", seeded(RPML.paper, solver="stochastic")),
    Method("lda", "LDA (uses labels)", unseeded(LDA), uses_labels=True, is_random=False),
    Method("nca", "NCA (uses labels)", seeded(NCA), uses_labels=True),
)
METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
REFERENCE = "pca"
"""The method that gains are measured over."""
PCA_FAMILY = (REFERENCE, "half-whitened", "pca-whitened")


def chosen_methods(names: Iterable[str | Method]) -> list[Method]:
    """Return the methods of these names; InputError for an unknown name.

    A method that is not in the table is passed as it is.
    """
    methods = []
    for name in [names] if isinstance(names, str) else names:
        method = name if isinstance(name, Method) else METHODS.get(name)
        if method is None:
            near = get_close_matches(str(name), METHODS) or [*PCA_FAMILY, "rpml"]
            raise InputError(
                f"there is no method {name!r}, but {', '.join(near)} and others: "
                "rpml compare --help lists them"
            )
        methods.append(method)
    return methods
