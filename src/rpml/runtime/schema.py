"""Schemas of files: names, types, ranges and shapes, checked before anything is used.

A valid checksum shows that a file is intact, not that rpml wrote it.
"""

import json
import math
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rpml.runtime.errors import ModelFormatError
from rpml.runtime.rows import AnyArray

MAX_DEPTH = 16
"""Nesting of JSON objects and lists."""
LARGEST = sys.float_info.max
_KINDS = {"f": "floats", "i": "integers", "b": "flags", "u": "bytes"}


@dataclass(frozen=True)
class ArraySpec:
    """The dtype, shape and range of an array; elements are finite unless a bound is infinite."""

    kind: str
    """Allowed dtype kinds, of "f", "i", "b" and "u"."""
    shape: tuple[int | str, ...] | None = None
    """A name stands for a size that is the same wherever it occurs; None allows any shape."""
    low: float = -LARGEST
    high: float = LARGEST
    optional: bool = False
    """The array may be absent."""


@dataclass(frozen=True)
class Number:
    """A bounded JSON number."""

    low: float = -LARGEST
    high: float = LARGEST
    whole: bool = False


COUNT = Number(0, 2**53, whole=True)
ANY_FLOAT = (float, int)
"""Allows NaN and infinity, as in a recorded loss."""


@dataclass(frozen=True)
class Schema:
    """The arrays of a file (others are ignored) and its JSON metadata (see `check_json`)."""

    arrays: Mapping[str, ArraySpec]
    metadata: Mapping[str, object] = field(default_factory=dict)

    def check(self, arrays: Mapping[str, AnyArray], metadata: Any) -> dict[str, int]:
        """Return the named sizes; raise ModelFormatError if something does not fit."""
        check_json(metadata, self.metadata)
        sizes: dict[str, int] = {}
        for name, spec in self.arrays.items():
            if name in arrays:
                _check_array(name, arrays[name], spec, sizes)
            elif not spec.optional:
                raise ModelFormatError(f"it has no {name}")
        return sizes


def _check_array(name: str, array: AnyArray, spec: ArraySpec, sizes: dict[str, int]) -> None:
    if array.dtype.kind not in spec.kind:
        raise ModelFormatError(f"its {name} are not {_KINDS[spec.kind[0]]}")
    if array.dtype == np.float16:  # never written, and linear algebra does not take it
        raise ModelFormatError(f"its {name} are floats of 16 bits")
    if spec.shape is not None:
        fits = array.ndim == len(spec.shape)
        for size, symbol in zip(array.shape, spec.shape, strict=False):
            fits &= size == (sizes.setdefault(symbol, size) if isinstance(symbol, str) else symbol)
        if not fits:
            raise ModelFormatError(f"its {name} have the shape {array.shape}, which does not fit")
    if array.size and array.dtype.kind != "b":
        least, most = array.min().item(), array.max().item()  # NaN fails the comparison
        if not (spec.low <= least and most <= spec.high):
            bounds = f"{spec.low} to {spec.high}"
            raise ModelFormatError(f"its {name} are not finite, or not from {bounds}")


def check_json(value: Any, spec: object, name: str = "metadata", depth: int = MAX_DEPTH) -> None:
    """Raise ModelFormatError if a JSON value does not match its specification.

    A specification is a type or `Number`; None for null; ``{name: spec}``, where ``name?`` may be
    absent and ``*`` stands for all other names; ``[spec]`` for a list of any length; a tuple of
    alternatives; or `object` for anything of bounded depth. `name` is what the message calls the
    value, `depth` how deeply it may be nested.
    """
    if depth < 0:
        raise ModelFormatError("it is nested too deeply")
    if isinstance(spec, tuple):
        spec = next((s for s in spec if _is_like(value, s)), spec[0])
    if not _is_like(value, spec):
        raise ModelFormatError(f"{str(value)[:40]!r} stands where its {name} must be")
    if isinstance(spec, Mapping):
        _check_table(value, spec, depth)
    elif isinstance(value, list):
        inner = spec[0] if isinstance(spec, list) else object
        for element in value:
            check_json(element, inner, name, depth - 1)
    elif isinstance(value, dict):
        _check_table(value, {"*": object}, depth)


def _check_table(table: dict[str, Any], spec: Mapping[str, object], depth: int) -> None:
    for key in spec:
        if not key.endswith(("?", "*")) and key not in table:
            raise ModelFormatError(f"it has no {key}")
    for key, value in table.items():
        inner = spec.get(key, spec.get(f"{key}?", spec.get("*", object)))
        check_json(value, inner, key[:40], depth - 1)


def _is_like(value: Any, spec: object) -> bool:
    """Whether the value matches, its elements aside."""
    if spec is None or spec is object:
        return value is None or spec is object
    if isinstance(spec, Number):
        number = type(value) is int or (type(value) is float and not spec.whole)
        return number and not math.isnan(value) and spec.low <= value <= spec.high
    if isinstance(spec, Mapping | list):
        return isinstance(value, dict if isinstance(spec, Mapping) else list)
    return type(value) is spec


def read_document(path: Path) -> Any:
    """Read a .json file, or a TOML file of any other name; ValueError if it is neither."""
    if path.exists() and not path.is_file():  # a pipe has no end
        raise ModelFormatError(f"{path} is not a regular file")
    parse = json.loads if path.suffix == ".json" else tomllib.loads
    try:
        return parse(path.read_text("utf-8-sig"))
    except RecursionError as error:
        raise ModelFormatError(f"{path} is nested too deeply") from error


def finite_json(value: object) -> object:
    """Replace NaN and infinity, which JSON does not have, by null, and arrays by lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): finite_json(v) for k, v in value.items()}
    return [finite_json(v) for v in value] if isinstance(value, list | tuple) else value
