"""Validation of the parameters of RPML, in scikit-learn's terms, and of arguments of `fit`."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import TypedDict

from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from rpml.method.clustering.pseudo_labels import CLUSTERINGS
from rpml.method.objective.weights import WEIGHTS
from rpml.method.triplets.sampling import SAMPLERS
from rpml.runtime.wording import counted

CONSTRAINTS: dict[str, list[object]] = {
    "n_components": [Interval(Integral, 1, None, closed="left"), None],
    "weight": [StrOptions(set(WEIGHTS))],
    "solver": [StrOptions({"cg", "stochastic", "gd"})],
    "training": [StrOptions({"auto", "always"})],
    "alpha": [Interval(Real, 0, 90, closed="neither")],
    "clustering": [StrOptions(set(CLUSTERINGS)), HasMethods("fit_predict"), "array-like"],
    "n_neighbors": [Interval(Integral, 1, 2**31, closed="both")],
    "triplets_per_anchor": [Interval(Integral, 1, 10**4, closed="both")],
    "max_triplets": [Interval(Integral, 1, 2**31, closed="both")],
    "sampler": [StrOptions(set(SAMPLERS))],
    "init": [StrOptions({"pca", "random"}), "array-like"],
    "normalize_input": ["boolean"],
    "whiten": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both"), None],
    "n_axes": [Interval(Integral, 1, None, closed="left"), None],
    "weight_ridge": [Interval(Real, 0, None, closed="left"), None],
    "max_iter": [Interval(Integral, 0, 10**6, closed="both")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "batch_size": [Interval(Integral, 3, 2**31, closed="both")],
    "n_epochs": [Interval(Integral, 1, 10**4, closed="both")],
    "batch_steps": [Interval(Integral, 1, 10**4, closed="both")],
    "average": ["boolean"],
    "mining": [StrOptions({"all", "semi-hard", "hard"})],
    "normalize": ["boolean"],
    "use_labels": ["boolean"],
    "subsample": [Interval(Integral, 3, None, closed="left"), None],
    "memory_limit": [Interval(Integral, 1, None, closed="left"), None],
    "n_jobs": [
        Interval(Integral, None, -1, closed="right"),
        Interval(Integral, 1, None, closed="left"),
        None,
    ],
    "verbose": [Interval(Integral, 0, None, closed="left"), "boolean"],
    "callback": [callable, None],
    "random_state": ["random_state"],
}


def check_size(n_components: int | None, d: int) -> None:
    """Raise ValueError for more components than features."""
    if n_components is not None and n_components > d:
        raise ValueError(
            f"n_components={n_components} must not exceed the {counted(d, 'feature')} of X."
        )


class Unsupported(TypedDict, total=False):
    """Arguments of other estimators' `fit` that RPML refuses with advice.

    As a named parameter, scikit-learn would take sample_weight for supported.
    """

    sample_weight: None


def refuse(unsupported: Mapping[str, object]) -> None:
    """Raise TypeError for keyword arguments that `RPML.fit` does not have."""
    for name, value in unsupported.items():
        if name != "sample_weight":
            raise TypeError(f"RPML.fit() got an unexpected keyword argument {name!r}")
        if value is not None:
            raise TypeError(
                "RPML.fit has no sample_weight, since every row counts once: leave rows out or "
                "repeat them instead."
            )
