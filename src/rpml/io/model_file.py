"""Model files: arrays and settings without pickle, checked when they are read."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from rpml.io.container import Arrays, check_content, read_container
from rpml.io.features.reading import SUFFIXES
from rpml.runtime.context import Json
from rpml.runtime.errors import InputError, ModelFormatError
from rpml.runtime.outputs import check_output
from rpml.runtime.schema import ANY_FLOAT, COUNT, ArraySpec, Number, Schema

FORMAT_VERSION = 4  # 2: exemplars, then called modes; 3: current names; 4: one map
_RENAMED_ARRAYS = {
    "known": "labeled_mask",
    "mode_vectors": "exemplar_vectors",
    **{f"mode_{field}": f"exemplar_{field}" for field in ("rows", "labels", "sizes")},
}
_RENAMED_SETTINGS = {"guard": "weight_ridge"}
_PLAIN = (None, bool, int, float, str)
_MANY_LABELS = 2**24  # tables of this size are harmless; more labels need as many rows
SCHEMA = Schema(
    arrays={
        "mean": ArraySpec("f", ("features",)),
        "map": ArraySpec("f", ("components", "features"), optional=True),
        "matrix": ArraySpec("f", ("features", "axes"), optional=True),
        "components": ArraySpec("f", ("components", "axes"), -2, 2, True),  # orthonormal rows
        "theta": ArraySpec("f", optional=True),
        "code_ranges": ArraySpec("f", (3, "components"), optional=True),
        "codebooks": ArraySpec("f", ("bytes", 256, "axes per byte"), optional=True),
        "similarity_quantiles": ArraySpec("f", (3, "levels"), optional=True),
        "labels": ArraySpec("i", ("rows",), -1, optional=True),
        "triplets": ArraySpec("i", ("triplets", 3), 0, optional=True),
        "triplet_weights": ArraySpec("f", ("triplets",), optional=True),
        "triplet_probabilities": ArraySpec("f", ("triplets",), optional=True),
        "labeled_mask": ArraySpec("b", ("rows",), optional=True),
        "exemplar_rows": ArraySpec("i", ("exemplars",), 0, optional=True),
        "exemplar_labels": ArraySpec("i", ("exemplars",), 0, optional=True),
        "exemplar_sizes": ArraySpec("i", ("exemplars",), 0, 2**53, optional=True),
        "exemplar_vectors": ArraySpec("f", ("exemplars", "features"), optional=True),
    },
    metadata={
        "settings": {"*": _PLAIN, "clustering": (str, {"AuthorityAscentShift": {"*": _PLAIN}})},
        "preprocessing": {"unit_input": bool, "unit_output": bool},
        "whitening?": (
            None,
            {
                "source": str,
                "shrinkage": Number(0, float("inf")),
                "evidence": [[ANY_FLOAT]],
                "reason?": str,
                "trains?": bool,
                "ridge?": Number(0, float("inf")),
                "groups_ignored?": str,
                "labels_ignored?": str,
                "gain?": (None, {"value": ANY_FLOAT, "low": ANY_FLOAT, "high": ANY_FLOAT}),
                "pairs?": (None, {"rate": Number(0, 1), "used": bool, "reason": str}),
            },
        ),
        "feature_names": (None, [str]),
        "training": {
            "n_iter": COUNT,
            "n_classes?": Number(0, _MANY_LABELS, whole=True),
            "converged": bool,
            "message": str,
            "history": {"*": [ANY_FLOAT]},
            "*": COUNT,
        },
        "run?": {"options?": {"*": _PLAIN}, "interrupted?": bool, "*": _PLAIN},
    },
)


def check_model_output(
    path: str | PathLike[str],
    overwrite: bool,
    inputs: Iterable[str | Path | None] = (),
    suffix: str = ".rpml",
) -> Path:
    """Raise InputError if a model or index cannot be written, or has the suffix of a data file.

    The message recommends `suffix`.
    """
    if Path(path).suffix.lower() in SUFFIXES:
        raise InputError(f"{path} is the name of a data file: call it something{suffix}")
    target = check_output(Path(path), overwrite, inputs)
    if target.is_dir():
        raise InputError(f"{path} is a folder: give a file name, such as something{suffix}")
    return target


def read_model(path: str | PathLike[str]) -> tuple[Arrays, Json]:
    """Read a model file, which need not be trusted.

    Returns the arrays, and the metadata with "format_version" and "rpml_version" added. Raises
    ModelFormatError if the file is truncated, altered, of another kind or from a newer version.
    """
    arrays, fields = read_container(Path(path), "model", FORMAT_VERSION)
    versions = {"format_version": fields["format_version"]}
    versions["rpml_version"] = str(fields.get("rpml_version"))
    metadata = fields["metadata"]
    if versions["format_version"] < FORMAT_VERSION:
        arrays, metadata = _with_present_names(arrays, metadata)
    check_model(path, arrays, metadata)
    return arrays, {**metadata, **versions}


def check_model(path: str | PathLike[str], arrays: Arrays, metadata: Json) -> None:
    """Raise ModelFormatError if arrays, metadata or sizes are not those of a model."""
    sizes = check_content(path, SCHEMA, arrays, metadata)
    if "map" not in arrays and not arrays.keys() >= {"matrix", "components"}:
        raise ModelFormatError(f"{path} is damaged: it has no map")
    axes = sizes.get("axes", 1)
    if not 0 < axes <= sizes["features"] or sizes["components"] == 0:
        raise ModelFormatError(f"{path} is damaged: its components have no axes, or too many")
    rows = metadata["training"].get("n_rows", sizes.get("rows", 0))
    if sizes.get("rows", rows) != rows:
        raise ModelFormatError(f"{path} is damaged: its labels are not those of {rows} rows")
    most = max(_MANY_LABELS, 4 * rows)
    bounds = {"triplets": rows, "exemplar_rows": rows, "labels": most, "exemplar_labels": most}
    for name, bound in bounds.items():
        if name in arrays and arrays[name].max(initial=-1) >= bound:
            raise ModelFormatError(f"{path} is damaged: its {name} are not those of its rows")


def _with_present_names(arrays: Arrays, metadata: Json) -> tuple[Arrays, Json]:
    """Rename the arrays and metadata of an older format."""
    renamed = {_RENAMED_ARRAYS.get(name, name): array for name, array in arrays.items()}
    settings, whitening = metadata.get("settings"), metadata.get("whitening")
    if isinstance(settings, dict):
        settings = {_RENAMED_SETTINGS.get(name, name): value for name, value in settings.items()}
    if isinstance(whitening, dict) and "floor" in whitening:
        whitening = {
            **whitening,
            "shrinkage": whitening["floor"],
            "evidence": whitening.get("agreement", []),
        }
    return renamed, {**metadata, "settings": settings, "whitening": whitening}
