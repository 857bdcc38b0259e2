"""Settings of a fitted model, and whether rows are its training rows."""

import platform

import numpy as np

from rpml.estimator import RPML
from rpml.method.objective.triplet_loss import angular_factor, softplus_and_sigmoid
from rpml.runtime.environment import installed_version
from rpml.runtime.rows import Array
from rpml.runtime.wording import one_line

_PACKAGES = ("rpml", "numpy", "scipy", "scikit-learn", "numba", "faiss-cpu")
_CHECKED = 200


def fitted_on(model: RPML, X: Array) -> bool:
    """Whether X are the training rows.

    They must reproduce the probabilities of some triplets, or the exemplars if there are none.
    """
    if len(X) != len(model.labels_) or X.shape[1] != model.n_features_in_:
        return False
    if len(model.triplets_) == 0:  # exemplars are training rows
        if model.exemplar_vectors_ is None:
            return True
        rows = np.asarray(X[model.exemplars_.rows], np.float64)
        return bool(np.allclose(rows, model.exemplar_vectors_, rtol=1e-3, atol=1e-6))
    sampled = np.linspace(0, len(model.triplets_) - 1, _CHECKED).astype(np.intp)
    triplets = model.triplets_[sampled]
    rows, places = np.unique(triplets, return_inverse=True)
    Z = model.preprocessing_.apply(np.asarray(X[rows], np.float64))
    a, p, n = (Z @ model.components_.T)[places.reshape(-1, 3)].transpose(1, 0, 2)
    far = n - (a + p) / 2
    z = ((a - p) ** 2).sum(axis=1) - angular_factor(model.alpha) * (far**2).sum(axis=1)
    m, _ = softplus_and_sigmoid(z)
    _, again = softplus_and_sigmoid(-model.triplet_weights_[sampled] * m)
    return bool(np.allclose(again, model.triplet_probabilities_[sampled], rtol=0.02, atol=1e-3))


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that the results depend on."""
    installed = {package: installed_version(package) for package in _PACKAGES}
    return {"python": platform.python_version()} | {k: v for k, v in installed.items() if v}


def settings(model: RPML) -> dict[str, str]:
    """Return all settings of the fit, as text."""
    from rpml.estimator import describe_settings

    described = describe_settings(model)
    flat: dict[str, str] = {}
    for name, value in described.items():
        if isinstance(value, dict):
            (kind, inner), *_ = value.items()
            flat[name] = kind
            flat |= {f"{name}: {key}": _text(v) for key, v in inner.items()}
        else:
            flat[name] = _text(value)
    return flat


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def call(model: RPML) -> str:
    """Return the Python call that builds this estimator, without default settings."""
    defaults = type(model)().get_params(deep=False)
    params = {k: v for k, v in model.get_params(deep=False).items() if k != "callback"}
    parts = [f"{k}={v!r}" for k, v in params.items() if repr(v) != repr(defaults[k])]
    return f"RPML({', '.join(one_line(part) for part in parts)})"
