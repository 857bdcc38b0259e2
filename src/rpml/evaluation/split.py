"""Held-out rows: methods are fitted on the training rows and applied to the test rows."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.evaluation.knowledge import nuisance_values, subset
from rpml.evaluation.registry import Method, TimedFit
from rpml.runtime.context import Json
from rpml.runtime.rows import Array
from rpml.runtime.wording import counted


@dataclass(frozen=True)
class Split:
    """Training rows and test rows, with labels or None."""

    X_train: Array
    y_train: Array | None
    X_test: Array
    y_test: Array | None
    known: Json = field(default_factory=dict)
    """The arguments nuisance and queries of `RPML.fit`, of the training rows."""
    values_test: NDArray[np.intp] | None = None
    """(n_test,) value of the nuisance, -1 where unknown."""

    def embed(self, method: Method, n_components: int, seed: int) -> tuple[TimedFit, Array]:
        """Fit a method to the training rows; return the fit and its embedding of the test rows."""
        fit = method.fit(self.X_train, self.y_train, n_components, seed, self.known)
        return fit, np.asarray(fit.estimator.transform(self.X_test), np.float32)


def make_split(
    X: Array, y: ArrayLike | None, train: ArrayLike | None = None, known: Json | None = None
) -> Split:
    """Split the rows into a training and a test part that share no class.

    `known` are the arguments nuisance and queries of `RPML.fit`, of all rows.
    """
    labels = None if y is None else np.asarray(y)
    if labels is not None and labels.shape != (len(X),):
        raise ValueError(f"y must hold one class for each of the {counted(len(X), 'row')} of X.")
    if train is None:
        chosen = _default_split(len(X), labels)
    else:
        chosen = np.asarray(train)
        if chosen.dtype != bool or chosen.shape != (len(X),):
            raise ValueError(
                f"train must hold True or False for each of the {counted(len(X), 'row')} of X."
            )
    if not chosen.any() or chosen.all():
        raise ValueError("train must leave rows on both sides of the split.")
    given = known or {}
    values = nuisance_values(given, len(X))
    more = subset(given, chosen), None if values is None else values[~chosen]
    if labels is None:
        return Split(X[chosen], None, X[~chosen], None, *more)
    if len(np.unique(labels[~chosen])) == np.sum(~chosen):
        raise ValueError("No class of y has two test rows, so that no neighbor can be right.")
    return Split(X[chosen], labels[chosen], X[~chosen], labels[~chosen], *more)


def _default_split(n: int, labels: NDArray[np.generic] | None) -> NDArray[np.bool_]:
    if labels is None:
        chosen = np.zeros(n, bool)
        chosen[np.random.default_rng(0).permutation(n)[: n // 2]] = True
        return chosen
    classes = np.unique(labels)
    if len(classes) < 4:
        raise ValueError(
            f"y has {counted(len(classes), 'class', 'classes')}, and two are needed on either "
            "side of the split: compare without labels, or give `train` in Python."
        )
    return np.isin(labels, classes[: len(classes) // 2])
