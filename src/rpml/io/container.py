"""Files of named arrays and JSON metadata: safetensors with a version and a checksum; models.

Nothing in them is executable, and reading one allocates no more than the file holds.
"""

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

import rpml
from rpml.io.features.reading import SUFFIXES
from rpml.runtime.context import Arrays as Arrays
from rpml.runtime.context import Json
from rpml.runtime.errors import InputError, ModelFormatError, first_line, reason_of
from rpml.runtime.files import atomic_output, check_output
from rpml.runtime.rows import AnyArray
from rpml.runtime.schema import ANY_FLOAT, COUNT, ArraySpec, Number, Schema, check_json

MAX_HEADER = 16 * 2**20
_START = b'{"__metadata__":{"rpml":'


def _plain(value: object) -> Any:
    """Convert numpy scalars and arrays to JSON values."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"metadata of type {type(value).__name__} cannot be written as JSON")


def canonical_json(value: object) -> str:
    """Serialize to JSON text that does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)


def _digest(arrays: Mapping[str, AnyArray], text: str) -> str:
    """Return the sha256 of the metadata and of each array's name, dtype, shape and bytes."""
    state = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        state.update(f"\0{name}\0{array.dtype.name}\0{array.shape}\0".encode())
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return "sha256:" + state.hexdigest()


def write_container(
    path: str | Path,
    arrays: Arrays,
    metadata: Json,
    kind: str,
    version: int,
    overwrite: bool = True,
) -> None:
    """Write arrays and metadata atomically; equal content gives equal bytes."""
    with atomic_output(path, overwrite) as draft:
        write_draft(draft, arrays, metadata, kind, version)


def write_draft(path: Path, arrays: Arrays, metadata: Json, kind: str, version: int) -> None:
    """Write arrays and metadata to a new file."""
    stored = {}
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"array {name!r} has dtype {array.dtype}, which a file cannot hold")
        stored[name] = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    fields = {
        "kind": kind,
        "format_version": version,
        "rpml_version": rpml.__version__,
        "metadata": metadata,
    }
    checksum = _digest(stored, canonical_json(fields))
    text = canonical_json({**fields, "checksum": checksum})
    path.touch()
    mode = path.stat().st_mode  # of the umask, which safetensors ignores
    try:
        save_file(stored, path, {"rpml": text})
        path.chmod(mode)
    except SafetensorError as error:  # a full disk: "I/O error: ... (os error 28)"
        code = re.search(r"os error (\d+)", str(error))
        number = int(code[1]) if code else errno.EIO
        raise OSError(number, os.strerror(number)) from error


def is_container(path: str | Path, kind: str) -> bool:
    """Whether a file begins like one of rpml of this kind; the rest may be damaged."""
    try:
        with open(path, "rb") as file:
            start = file.read(8 + 256)[8:]
    except OSError:
        return False
    return start.startswith(_START) and f'\\"kind\\":\\"{kind}\\"'.encode() in start


def _with_article(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def _check_file(path: Path) -> None:
    """Check the size and the first bytes before anything is parsed."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ModelFormatError(f"{path} is not a regular file")
        with open(path, "rb") as file:
            start = file.read(8)
    except OSError as error:
        raise ModelFormatError(f"cannot read {path}: {reason_of(error)}") from error
    if status.st_size == 0:
        raise ModelFormatError(f"{path} is empty")
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(status.st_size - 8, MAX_HEADER):
        raise ModelFormatError(f"{path} is not an rpml file, or is truncated")


def _read(path: Path, whole: bool) -> tuple[Arrays, Json, bool]:
    """Read a file of rpml: its arrays, if `whole`, its fields, and whether its checksum fits."""
    _check_file(path)
    try:
        with safe_open(path, framework="np") as file:
            raw = dict(file.metadata() or {})
            names = file.keys() if whole else []
            arrays = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, KeyError, TypeError, OverflowError, AttributeError) as error:
        raise ModelFormatError(f"{path} is damaged: {first_line(error)}") from error
    if "rpml" not in raw:
        raise ModelFormatError(f"{path} is a safetensors file, but not written by rpml")
    try:
        fields = json.loads(raw["rpml"])
        check_json(fields, {"metadata": {}, "rpml_version?": str})
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path} is damaged: {first_line(error)}") from error
    checksum = fields.pop("checksum", None)
    # older files have the checksum next to the text, which it is of
    text = raw["rpml"] if "checksum" in raw else canonical_json(fields)
    return arrays, fields, _digest(arrays, text) == raw.get("checksum", checksum)


def container_kind(path: str | Path) -> str:
    """Return what kind of file `write_container` wrote; ModelFormatError for files of others."""
    return str(_read(Path(path), whole=False)[1].get("kind"))


def read_container(path: str | Path, kind: str, version: int) -> tuple[Arrays, Json]:
    """Read what `write_container` wrote; ModelFormatError for anything else.

    Returns the arrays, and "format_version", "rpml_version" and the writer's own "metadata".
    """
    arrays, fields, intact = _read(Path(path), whole=True)
    if fields.get("kind") != kind:
        stored = str(fields.get("kind"))[:40]
        raise ModelFormatError(f"{path} is {_with_article(stored)}, not {_with_article(kind)}")
    stored_version = fields.get("format_version")
    if type(stored_version) is not int or stored_version < 1:
        raise ModelFormatError(f"{path} is damaged: it has no format version")
    if stored_version > version:
        raise ModelFormatError(
            f"{path} has format version {stored_version}, this rpml reads up to {version}: "
            "upgrade with pip install -U rpml"
        )
    if not intact:
        raise ModelFormatError(f"{path} is damaged: its checksum does not match its content")
    return arrays, fields


def check_content(
    path: str | PathLike[str], schema: Schema, arrays: Arrays, metadata: Json
) -> dict[str, int]:
    """Check arrays and metadata against a schema; return the named sizes."""
    try:
        return schema.check(arrays, metadata)
    except ModelFormatError as error:
        raise ModelFormatError(f"{path} is damaged: {error}") from error


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
        # not "codebooks": in older files, which had them of rotated axes
        "product_codebooks": ArraySpec("f", ("bytes", 256, "axes per byte"), optional=True),
        "product_rotation": ArraySpec("f", ("components", "coded axes"), -2, 2, True),
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
