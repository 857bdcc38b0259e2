"""The attributes of a fitted model: set by a fit, and to and from its file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from rpml.io.container import FORMAT_VERSION, Arrays, write_container
from rpml.method.calibration import AxisRanges, SimilarityScale
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.pseudo_labels import Exemplars
from rpml.method.codes import ProductCodec
from rpml.method.settings import FitResult
from rpml.method.whitening.evidence import ScatterChoice
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.context import Json, plain_text
from rpml.runtime.errors import ModelFormatError, WeightCollapseWarning, counted, one_line
from rpml.runtime.rows import AnyArray, Array, Indices, unit_rows

if TYPE_CHECKING:
    from rpml.estimator.embedding import Embedding


Model = TypeVar("Model", bound="Embedding")


MADE_IF_ASKED = (
    *("labels_", "labeled_mask_", "exemplars_", "exemplar_vectors_"),
    *("triplets_", "triplet_weights_", "triplet_probabilities_", "theta_", "history_"),
)
"""Attributes of fits that cluster or train."""
COLLAPSED = 0.05  # mean triplet weight below which the weights are called collapsed
LABEL_ARRAYS = ("labels", "labeled_mask")
TRIPLET_ARRAYS = ("triplets", "triplet_weights", "triplet_probabilities", "theta")
EXEMPLAR_FIELDS = ("rows", "labels", "sizes")
NOT_STORED = {"callback", "verbose", "n_jobs"}  # parameters that change no result


def set_fitted(
    model: Embedding,
    result: FitResult,
    n: int,
    take: Callable[[Indices], Array],
    drift: float = 0.0,
) -> None:
    """Set the attributes of a fit on n rows, of which `take` returns some."""
    forget_training(model)
    model.preprocessing_ = result.whitening.preprocessing
    model.whitening_ = result.whitening.choice
    model.components_ = np.ascontiguousarray(result.L.T)
    model.n_samples_, model.drift_, model.message_ = n, drift, result.message
    model.n_iter_, model.converged_, model.n_classes_ = 0, True, 0
    if (clusters := result.clusters) is None:
        model._sample = {"rows": result.sampled, "vectors": take(result.sampled)}
    else:
        model.labels_, model.labeled_mask_ = clusters.labels, clusters.labeled_mask
        model.n_classes_, model.exemplars_ = clusters.n_classes, clusters.exemplars
        model.exemplar_vectors_ = take(clusters.exemplars.rows)
    if (training := result.training) is not None:
        model.triplets_, model.triplet_weights_ = training.triplets, training.weights
        model.triplet_probabilities_ = training.probabilities
        model.theta_, model.history_ = training.optimum.theta, training.optimum.history
        model.n_iter_ = training.optimum.n_iter
        model.converged_ = training.optimum.converged


def forget_training(model: Embedding) -> None:
    """Remove everything about the training rows."""
    for name in (*MADE_IF_ASKED, "_sample", "_counts"):
        vars(model).pop(name, None)


def calibrate(model: Embedding, sample: Array) -> None:
    """Set the ranges of the codes and the quantiles of the similarities from projections."""
    rows = unit_rows(sample) if model.normalize else sample
    model.code_ranges_ = AxisRanges.from_rows(rows, model.normalize)
    model.product_codec_ = None
    model.similarity_scale_ = SimilarityScale.from_rows(sample)


def warn_of_training(model: Embedding) -> None:
    """Warn of a solver that did not converge, and of weights that collapsed."""
    if not model.converged_:
        advice = "" if "on request" in model.message_ else ": raise max_iter or tol"
        if model.solver == "gd" and advice:
            advice += ", or lower learning_rate if the loss in history_ grows"
        warnings.warn(
            f"RPML stopped before it converged ({model.message_}) after "
            f"{counted(model.n_iter_, 'iteration')}{advice}.",
            ConvergenceWarning,
            stacklevel=3,
        )
    weights = vars(model).get("triplet_weights_", np.empty(0))
    if model.weight != "constant" and len(weights) and weights.mean() < COLLAPSED:
        warnings.warn(
            f"The triplet weights have collapsed (mean {weights.mean():.2g}): the objective "
            "was lowered by ignoring the triplets, so the embedding is hardly trained. Set "
            "weight_ridge=0.01 or weight='constant'.",
            WeightCollapseWarning,
            stacklevel=3,
        )


def save_model(
    estimator: Embedding,
    path: str | PathLike[str],
    run: Mapping[str, object] | None = None,
    exemplars: bool = False,
    training: bool = False,
    overwrite: bool = True,
) -> None:
    """Write a fitted estimator atomically; `exemplars` and `training` as in `RPML.save`.

    Equal content gives equal bytes, so no times or paths should be in `run`.
    """
    arrays, metadata = model_arrays(estimator, exemplars, training), model_metadata(estimator, run)
    write_container(Path(path), arrays, metadata, "model", FORMAT_VERSION, overwrite)


def model_arrays(estimator: Embedding, exemplars: bool = False, training: bool = False) -> Arrays:
    """Return the arrays of a fitted estimator by their names in the file, floats as float32."""
    pre, made = estimator.preprocessing_, vars(estimator)
    arrays: Arrays = {}
    if exemplars or training or (pre.unit_output and not estimator.normalize):
        arrays |= {"matrix": pre.matrix, "components": estimator.components_}
    else:  # folded, the length of a row in between not mattering; a prefix has the same bits
        arrays["map"] = np.stack([pre.matrix @ row for row in estimator.components_])
    # labels that cannot be made again from the rows: some were given, or all by an object
    given = not isinstance(estimator.clustering, str | AuthorityAscentShift)
    given |= bool(np.any(made.get("labeled_mask_", False)))
    names = LABEL_ARRAYS if training or exemplars or given else ()
    for name in (*names, *(TRIPLET_ARRAYS if training else ())):
        if made.get(f"{name}_") is not None:
            arrays[name] = made[f"{name}_"]
    if estimator.code_ranges_ is not None:
        ranges = estimator.code_ranges_
        arrays["code_ranges"] = np.stack([ranges.low, ranges.high, ranges.growth])
    if (learned := estimator.product_codec_) is not None:
        arrays["product_codebooks"] = learned.centroids
        arrays["product_rotation"] = learned.rotation.astype(np.float32)
    if estimator.similarity_scale_ is not None:
        scale = estimator.similarity_scale_
        arrays["similarity_quantiles"] = np.stack([scale.levels, scale.random, scale.nearest])
    stored: Exemplars | None = made.get("exemplars_") if exemplars or training else None
    if exemplars and ("_sample" in made or "exemplar_vectors_" in made):
        stored, arrays["exemplar_vectors"] = estimator._clustered()
    if stored is not None:
        arrays |= {f"exemplar_{f}": getattr(stored, f) for f in EXEMPLAR_FIELDS}
    # the mean stays in double precision: rows may be far from the origin
    return {"mean": pre.mean} | {name: _narrow(array) for name, array in arrays.items()}


def _narrow(array: AnyArray) -> AnyArray:
    """Return integers and floats in 32 bits where these hold them."""
    array = np.asarray(array)
    largest = float(np.abs(array).max(initial=0)) if array.dtype.kind in "if" else 0.0
    if array.dtype.kind == "i" and largest < 2**31:
        return array.astype(np.int32)
    if array.dtype == np.float64 and (largest == 0 or 1e-20 < largest < 1e20):
        return array.astype(np.float32)
    return array


def model_metadata(estimator: Embedding, run: Mapping[str, object] | None = None) -> Json:
    """Return settings, preprocessing, names and training summary of a fitted estimator."""
    names = getattr(estimator, "feature_names_in_", None)
    made, choice = vars(estimator), estimator.whitening_
    return {
        "settings": describe_settings(estimator),
        "preprocessing": {
            "unit_input": bool(estimator.preprocessing_.unit_input),
            "unit_output": bool(estimator.preprocessing_.unit_output),
        },
        "whitening": None if choice is None else choice.to_json(),
        "feature_names": None if names is None else [str(n) for n in names],
        "training": {
            **training_counts(estimator),
            "n_samples": int(estimator.n_samples_),
            "n_classes": int(estimator.n_classes_),
            "n_iter": int(estimator.n_iter_),
            "converged": bool(estimator.converged_),
            "message": str(estimator.message_),
            "history": {k: [float(x) for x in v] for k, v in made.get("history_", {}).items()},
        },
        "run": dict(run or {}),
    }


def training_counts(estimator: Embedding) -> dict[str, int]:
    """Return the numbers of rows, clusters and triplets, also of a file that holds none of them."""
    made = vars(estimator)
    counts = {"n_rows": estimator.n_samples_, "n_clusters": 0, "n_triplets": 0}
    counts |= made.get("_counts", {})
    if "labels_" in made:
        labels = estimator.labels_
        counts["n_rows"], counts["n_clusters"] = len(labels), len(np.unique(labels[labels >= 0]))
    if "triplets_" in made:
        counts["n_triplets"] = len(estimator.triplets_)
    return counts


def describe_settings(estimator: BaseEstimator) -> Json:
    """Return the parameters of an estimator that affect the result, as JSON values."""
    parameters = estimator.get_params(deep=False)
    return {n: _describe(value) for n, value in parameters.items() if n not in NOT_STORED}


def _describe(value: object) -> object:
    """Convert a setting to JSON: an AAS by its settings, other objects to text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is AuthorityAscentShift:
        settings = {k: _describe(v) for k, v in value.get_params(deep=False).items()}
        return {"AuthorityAscentShift": settings}
    if hasattr(value, "__len__") and not hasattr(value, "get_params"):
        return plain_text(np.asarray(value))
    return None if callable(value) else f"<{one_line(plain_text(value))}>"


def rebuild_model(
    cls: type[Model], arrays: Arrays, metadata: Json, path: str | PathLike[str]
) -> Model:
    try:
        return _rebuild(cls, arrays, metadata)
    except ModelFormatError as error:
        raise ModelFormatError(f"{path} is damaged: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{type(error).__name__} {error}".splitlines()[0][:200]
        raise ModelFormatError(f"{path} is damaged: its content does not fit: {reason}") from error


def _rebuild(cls: type[Model], arrays: Arrays, metadata: Json) -> Model:
    """Rebuild an estimator from content that matches `rpml.io.container.SCHEMA`."""
    build: Callable[..., Model] = cls
    model = build(**_settings(cls, metadata["settings"]))
    flags, names = metadata["preprocessing"], metadata["feature_names"]
    matrix = arrays["map"].T if "map" in arrays else arrays["matrix"]
    model.preprocessing_ = Preprocessing(
        flags["unit_input"], arrays["mean"], matrix, flags["unit_output"]
    )
    model.components_ = (
        np.eye(matrix.shape[1], dtype=matrix.dtype) if "map" in arrays else arrays["components"]
    )
    stored = metadata.get("whitening")
    model.whitening_ = None if stored is None else ScatterChoice.from_json(stored)
    model.n_features_in_ = len(arrays["mean"])
    if names is not None:
        if len(names) != model.n_features_in_:
            raise ModelFormatError("it has not one name per feature")
        model.feature_names_in_ = np.array(names, dtype=object)
    ranges, quantiles = (arrays.get(name) for name in ("code_ranges", "similarity_quantiles"))
    model.code_ranges_ = None if ranges is None else AxisRanges(*ranges)
    model.product_codec_ = None
    if (books := arrays.get("product_codebooks")) is not None:
        size, rotation = len(model.components_), arrays.get("product_rotation")
        rotation = None if rotation is None else rotation.astype(np.float64)
        padded = len(books) * books.shape[2]
        if not 0 <= padded - size < max(len(books), 1) or (
            rotation is not None and rotation.shape != (size, padded)
        ):
            raise ModelFormatError("its codebooks are of another size")
        model.product_codec_ = ProductCodec(books, size, rotation)
    model.similarity_scale_ = None if quantiles is None else SimilarityScale(*quantiles)
    _set_training(model, arrays, metadata["training"])
    return model


def _settings(cls: type[BaseEstimator], stored: Json) -> Json:
    """Return the settings that the class has; a newer package may have written more.

    They are validated. Objects were stored as text in angle brackets, which a new fit rejects.
    """
    settings = _supported(cls, stored)
    if isinstance(settings.get("clustering"), dict):
        aas = settings["clustering"]["AuthorityAscentShift"]
        settings["clustering"] = AuthorityAscentShift(**_supported(AuthorityAscentShift, aas))
        settings["clustering"].check_parameters()
    objects = [n for n, v in settings.items() if isinstance(v, str) and v.startswith("<")]
    checked = {name: value for name, value in settings.items() if name not in objects}
    cls(**checked)._validate_params()
    return settings


def _supported(cls: type[BaseEstimator], stored: Json) -> Json:
    parameters = cls().get_params(deep=False).keys() - NOT_STORED
    return {name: value for name, value in stored.items() if name in parameters}


def _set_training(model: Embedding, arrays: Arrays, training: Json) -> None:
    for name in (*LABEL_ARRAYS, *TRIPLET_ARRAYS):
        if name in arrays:
            integer = arrays[name].dtype.kind == "i"
            setattr(model, f"{name}_", arrays[name].astype(np.intp) if integer else arrays[name])
    if any(f"exemplar_{name}" in arrays for name in (*EXEMPLAR_FIELDS, "vectors")):
        stored = (arrays[f"exemplar_{name}"] for name in EXEMPLAR_FIELDS)
        model.exemplars_ = Exemplars(*(array.astype(np.intp) for array in stored))
    if "exemplar_vectors" in arrays:
        model.exemplar_vectors_ = arrays["exemplar_vectors"]
    if "labels" in arrays and "labeled_mask" not in arrays:  # of an older version
        model.labeled_mask_ = np.zeros(len(arrays["labels"]), bool)
    n_rows: int = training.get("n_rows", len(arrays.get("labels", ())))
    model.n_samples_ = int(training.get("n_samples", n_rows))  # fewer after an update
    model._counts = {k: int(v) for k, v in training.items() if k in training_counts(model)}
    model.n_classes_ = training.get("n_classes", 0)
    model.n_iter_ = training["n_iter"]
    model.converged_ = training["converged"]
    model.message_ = training["message"]
    model.drift_ = 0.0
    if history := training["history"]:
        model.history_ = {name: [float(x) for x in values] for name, values in history.items()}
    if "triplets" in arrays:
        model.theta_ = arrays.get("theta")  # None for constant weights
