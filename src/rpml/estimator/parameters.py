"""What each parameter of RPML may be, in scikit-learn's terms, and what `fit` does not take."""

from collections.abc import Callable
from functools import wraps
from numbers import Integral, Real
from typing import ParamSpec, TypeVar

from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from rpml.method.objective.weights import WEIGHTS
from rpml.method.triplets.samplers import SAMPLERS

CONSTRAINTS: dict[str, list[object]] = {
    "n_components": [Interval(Integral, 1, None, closed="left"), None],
    "weight": [StrOptions(set(WEIGHTS))],
    "solver": [StrOptions({"cg", "stochastic", "gd"})],
    "training": [StrOptions({"auto", "always"})],
    "alpha": [Interval(Real, 0, 90, closed="neither")],
    "clustering": [StrOptions({"aas"}), HasMethods("fit_predict"), "array-like"],
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
    "subsample": [Interval(Integral, 2, None, closed="left"), None],
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

P = ParamSpec("P")
T = TypeVar("T")


def without_sample_weight(fit: Callable[P, T]) -> Callable[P, T]:
    """Say what to do instead; in the signature scikit-learn would take it for supported."""

    @wraps(fit)
    def checked(*args: P.args, **inputs: P.kwargs) -> T:
        if inputs.pop("sample_weight", None) is not None:
            raise TypeError(
                "RPML.fit has no sample_weight, since every row counts once: leave rows out or "
                "repeat them instead."
            )
        return fit(*args, **inputs)

    return checked
