"""A fitted model: embeds rows, assigns them to clusters, goes to and from its file."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from rpml.io.container import Arrays
from rpml.io.model_file import read_model, write_model
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.exemplars import Exemplars
from rpml.method.codes import AxisRanges
from rpml.method.similarity import SimilarityScale
from rpml.method.whitening.linear_map import Preprocessing
from rpml.method.whitening.neighborhoods import ScatterChoice
from rpml.runtime.context import Json
from rpml.runtime.errors import ModelFormatError
from rpml.runtime.rows import Array

Model = TypeVar("Model", bound=BaseEstimator)


def save_model(
    estimator: Any, path: str | PathLike[str], run: Mapping[str, object] | None = None
) -> None:
    """Write a fitted estimator; `run` holds what a program wants to remember beside it."""
    write_model(path, model_arrays(estimator), model_metadata(estimator, run))


def model_arrays(estimator: Any) -> Arrays:
    """The arrays of a fitted estimator by the names they have in the file."""
    arrays = {
        "mean": estimator.preprocessing_.mean,
        "matrix": estimator.preprocessing_.matrix,
        "components": estimator.components_,
        "labels": _narrow(estimator.labels_),
        "triplets": _narrow(estimator.triplets_),
        "triplet_weights": estimator.triplet_weights_,
        "triplet_probabilities": estimator.triplet_probabilities_,
    }
    if estimator.theta_ is not None:
        arrays["theta"] = estimator.theta_
    if estimator.code_ranges_ is not None:
        ranges = estimator.code_ranges_
        arrays["code_ranges"] = np.stack([ranges.low, ranges.high, ranges.growth])
    if estimator.similarity_scale_ is not None:
        scale = estimator.similarity_scale_
        arrays["similarity_quantiles"] = np.stack([scale.levels, scale.random, scale.nearest])
    if estimator.exemplars_ is not None:
        exemplars = estimator.exemplars_
        arrays |= {
            f"exemplar_{f}": _narrow(getattr(exemplars, f)) for f in ("rows", "labels", "sizes")
        }
        arrays |= {
            "exemplar_vectors": estimator.exemplar_vectors_,
            "labeled_mask": estimator.labeled_mask_,
        }
    return {name: np.asarray(array) for name, array in arrays.items()}


def _narrow(indices: NDArray[np.generic]) -> NDArray[np.generic]:
    """Indices below 2^31 in half the space."""
    small = indices.size == 0 or int(np.abs(indices).max()) < 2**31
    return indices.astype(np.int32) if small else indices


def model_metadata(estimator: Any, run: Mapping[str, object] | None = None) -> Json:
    """Settings, preprocessing, names and training summary of a fitted estimator."""
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "settings": describe_settings(estimator),
        "preprocessing": {
            "unit_input": bool(estimator.preprocessing_.unit_input),
            "unit_output": bool(estimator.preprocessing_.unit_output),
        },
        "normalize": bool(estimator.normalize),
        "whitening": _whitening(estimator.whitening_),
        "feature_names": None if names is None else [str(n) for n in names],
        "training": {
            "n_rows": len(estimator.labels_),
            "n_classes": int(estimator.n_classes_),
            "n_clusters": len(np.unique(estimator.labels_[estimator.labels_ >= 0])),
            "n_triplets": len(estimator.triplets_),
            "n_iter": int(estimator.n_iter_),
            "converged": bool(estimator.converged_),
            "message": str(estimator.message_),
            "history": {k: [float(x) for x in v] for k, v in estimator.history_.items()},
        },
        "run": dict(run or {}),
    }


def _whitening(choice: ScatterChoice | None) -> Json | None:
    if choice is None:
        return None
    return {
        "source": choice.source,
        "shrinkage": float(choice.shrinkage),
        "evidence": [[float(k), float(v)] for k, v in choice.evidence.items()],
        "reason": choice.reason,
        "trains": choice.trains,
    }


def _read_whitening(stored: Json | None) -> ScatterChoice | None:
    if stored is None:
        return None
    return ScatterChoice(
        source=str(stored["source"]),
        shrinkage=float(stored["shrinkage"]),
        evidence={float(k): float(v) for k, v in stored["evidence"]},
        reason=str(stored.get("reason", "")),
        trains=bool(stored.get("trains", True)),
    )


def describe_settings(estimator: Any) -> Json:
    """The parameters of an estimator as JSON values, its callback left out."""
    parameters = estimator.get_params(deep=False)
    return {name: _describe(value) for name, value in parameters.items() if name != "callback"}


def _describe(value: Any) -> Any:
    """A setting as JSON: plain values as they are, our clustering by its settings, else text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is AuthorityAscentShift:
        settings = {k: _describe(v) for k, v in value.get_params(deep=False).items()}
        return {"AuthorityAscentShift": settings}
    if hasattr(value, "__len__") and not hasattr(value, "get_params"):
        return f"<array of shape {np.shape(value)}>"
    return None if callable(value) else f"<{' '.join(repr(value).split())}>"


def load_model(cls: type[Model], path: str | PathLike[str]) -> Model:
    """Rebuild the estimator that `save_model` wrote; any doubt is a ModelFormatError."""
    return rebuild_model(cls, *read_model(path), path)


def rebuild_model(
    cls: type[Model], arrays: Arrays, metadata: Json, path: str | PathLike[str]
) -> Model:
    """The estimator of arrays and metadata that were read from a file."""
    try:
        return _rebuild(cls, arrays, metadata)
    except ModelFormatError as error:
        raise ModelFormatError(f"{path} is damaged: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__} {error}".splitlines()[0][:200]
        raise ModelFormatError(f"{path} is damaged: its content does not fit: {reason}") from error


def _rebuild(cls: type[Model], arrays: Arrays, metadata: Json) -> Model:
    """Only numbers, text and flags reach the estimator, each of the type and shape it must have."""
    mean, matrix, components = check_steps(arrays)
    model: Any = cls(**_settings(cls, metadata["settings"]))
    flags = metadata["preprocessing"]
    model.preprocessing_ = Preprocessing(
        _flag(flags["unit_input"]), mean, matrix, _flag(flags["unit_output"])
    )
    model.normalize = _flag(metadata["normalize"])
    model.whitening_ = _read_whitening(metadata.get("whitening"))
    model.components_ = components
    model.n_features_in_ = len(mean)
    names = metadata["feature_names"]
    if names is not None:
        _require(isinstance(names, list), "its feature names are not a list")
        _require(len(names) == len(mean), "it has another number of feature names than features")
        model.feature_names_in_ = np.array([str(n) for n in names], dtype=object)
    _set_scales(model, arrays)
    _set_training(model, arrays, metadata["training"])
    return model  # type: ignore[no-any-return]


def check_steps(arrays: Arrays) -> tuple[Array, Array, Array]:
    """(mean, matrix, components), if they are finite floats of shapes that fit together."""
    mean, matrix, components = (arrays[n] for n in ("mean", "matrix", "components"))
    for name, array in (("mean", mean), ("matrix", matrix), ("components", components)):
        _require(array.dtype.kind == "f", f"its {name} are not floats")
        _require(bool(np.isfinite(array).all()), f"its {name} are not finite")
    shapes = f"{mean.shape}, {matrix.shape} and {components.shape}"
    fit = mean.ndim == 1 and matrix.ndim == 2 and components.ndim == 2
    fit = fit and matrix.shape[0] == len(mean) and components.shape[1] == matrix.shape[1]
    _require(fit and components.size > 0, f"arrays of shapes {shapes} do not fit together")
    return mean, matrix, components


def _settings(cls: type[Any], stored: Json) -> Json:
    """Settings the class knows; a newer package of the same format may have written more."""
    known = set(cls().get_params(deep=False)) - {"callback"}
    kept = {name: value for name, value in stored.items() if name in known}
    for name, value in kept.items():
        if isinstance(value, dict):
            kept[name] = _clustering(value)
        else:
            _require(not isinstance(value, list), f"its setting {name} is a list")
    return kept


def _clustering(value: Json) -> Any:
    (name, settings), *rest = value.items()
    _require(name == "AuthorityAscentShift" and not rest, f"its clustering is {str(name)[:40]!r}")
    known = set(AuthorityAscentShift().get_params(deep=False))
    return AuthorityAscentShift(**{k: v for k, v in settings.items() if k in known})


def _set_training(model: Any, arrays: Arrays, training: Json) -> None:
    labels, triplets = arrays["labels"], arrays["triplets"]
    weights, probabilities = arrays["triplet_weights"], arrays["triplet_probabilities"]
    _require(labels.ndim == 1 and labels.dtype.kind == "i", "its labels are not integers")
    fit = triplets.ndim == 2 and triplets.shape[1] == 3 and triplets.dtype.kind == "i"
    _require(fit and weights.shape == probabilities.shape == (len(triplets),), "wrong triplets")
    inside = triplets.size == 0 or (triplets.min() >= 0 and triplets.max() < len(labels))
    _require(bool(inside), "its triplets name rows that do not exist")
    model.labels_ = labels.astype(np.intp)
    model.triplets_ = triplets.astype(np.intp)
    model.triplet_weights_, model.triplet_probabilities_ = weights, probabilities
    model.theta_ = arrays.get("theta")
    _set_exemplars(model, arrays)
    model.n_classes_ = int(training.get("n_classes", 0))
    model.n_iter_ = int(training["n_iter"])
    model.converged_ = _flag(training["converged"])
    model.message_ = str(training["message"])
    history = training["history"]
    model.history_ = {str(k): [float(x) for x in values] for k, values in history.items()}


def _set_scales(model: Any, arrays: Arrays) -> None:
    """Ranges of the codes and quantiles of the similarities, which older files do not have."""
    model.code_ranges_ = model.similarity_scale_ = None
    ranges, quantiles = (arrays.get(name) for name in ("code_ranges", "similarity_quantiles"))
    for name, array in (("code ranges", ranges), ("similarity quantiles", quantiles)):
        fit = array is None or (array.ndim == 2 and len(array) == 3 and array.dtype.kind == "f")
        _require(fit and (array is None or bool(np.isfinite(array).all())), f"wrong {name}")
    if ranges is not None:
        _require(ranges.shape[1] == len(model.components_), "code ranges of another size")
        model.code_ranges_ = AxisRanges(*ranges)
    if quantiles is not None:
        model.similarity_scale_ = SimilarityScale(*quantiles)


def _set_exemplars(model: Any, arrays: Arrays) -> None:
    """The exemplars, which files of format version 1 do not have."""
    n = len(model.labels_)
    model.exemplars_ = model.exemplar_vectors_ = None
    model.labeled_mask_ = arrays.get("labeled_mask", np.zeros(n, bool))
    _require(
        model.labeled_mask_.dtype == bool and model.labeled_mask_.shape == (n,),
        "wrong labeled_mask",
    )
    if "exemplar_vectors" not in arrays:
        return
    rows, labels, sizes = (arrays[f"exemplar_{f}"] for f in ("rows", "labels", "sizes"))
    vectors = arrays["exemplar_vectors"]
    fit = vectors.shape == (len(rows), len(model.preprocessing_.mean))
    fit = fit and rows.shape == labels.shape == sizes.shape == (len(vectors),)
    fit = fit and all(a.dtype.kind == "i" for a in (rows, labels, sizes))
    fit = fit and (len(rows) == 0 or (rows.min() >= 0 and rows.max() < n and labels.min() >= 0))
    _require(bool(fit) and vectors.dtype.kind == "f", "wrong exemplars")
    _require(bool(np.isfinite(vectors).all()), "its exemplars are not finite")
    model.exemplars_ = Exemplars(*(a.astype(np.intp) for a in (rows, labels, sizes)))
    model.exemplar_vectors_ = vectors


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise ModelFormatError(complaint)


def _flag(value: object) -> bool:
    _require(isinstance(value, bool), f"{str(value)[:40]!r} stands where a flag must be")
    return bool(value)
