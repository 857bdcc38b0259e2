"""Digests of arrays and plain values, which identify the inputs of a stage."""

import hashlib
import inspect
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_BLOCK_BYTES = 2**26
_WHOLE, _PIECES, _PIECE = 2**20, 256, 2**12  # bytes of a file that is hashed whole; pieces


def data_digest(*values: object) -> str:
    """Return the sha256 of the values; arrays count by dtype, shape and content.

    Arrays, including memory maps, are read in blocks of rows. Everything else counts by its
    `plain_text`: numbers, strings, tuples of them, frozen dataclasses, estimators.
    """
    state = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            for piece in _pieces(value):
                state.update(piece)
        else:
            state.update(b"none" if value is None else plain_text(value).encode())
    return state.hexdigest()


def plain_text(value: object) -> str:
    """Return a text that differs between values: `repr`, which abbreviates arrays, does not.

    Estimators show the settings that are not at their defaults, arrays their shape and a digest.
    """
    if isinstance(value, np.ndarray):
        return f"<array of shape {value.shape}, {data_digest(value)[:12]}>"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(plain_text, value))})"
    if not hasattr(value, "get_params") or isinstance(value, type):
        return repr(value)
    defaults = inspect.signature(type(value)).parameters
    settings = ", ".join(
        f"{name}={plain_text(setting)}"
        for name, setting in sorted(value.get_params(deep=False).items())
        if name not in defaults or plain_text(defaults[name].default) != plain_text(setting)
    )
    return f"{type(value).__name__}({settings})"


def _pieces(array: NDArray[np.generic]) -> Iterator[bytes | memoryview]:
    if array.dtype.hasobject or array.dtype.kind == "U":
        text = json.dumps(array.tolist(), sort_keys=True, separators=(",", ":"))
        array = np.frombuffer(text.encode(), np.uint8)
    yield f"{array.dtype.str}{array.shape}".encode()
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    step = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, len(array), step):
        block = np.ascontiguousarray(array[start : start + step])
        yield block.reshape(-1).view(np.uint8).data


def file_fingerprint(path: str | Path) -> str:
    """Return a hash of a file's size and content; of a file over 1 MB, of 256 pieces of 4 KB.

    This is cheap enough to be checked at every read. Vectors of two runs differ in nearly every
    piece.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        state = hashlib.sha256(str(size).encode())
        if size <= _WHOLE:
            state.update(file.read())
        else:
            for piece in range(_PIECES):
                file.seek(piece * (size - _PIECE) // (_PIECES - 1))
                state.update(file.read(_PIECE))
    return state.hexdigest()[:32]
