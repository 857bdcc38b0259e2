"""Digests of arrays and plain values, which identify the inputs of a stage."""

import hashlib
import json
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_BLOCK_BYTES = 2**26


def data_digest(*values: object) -> str:
    """Return the sha256 of the values; arrays count by dtype, shape and content.

    Arrays, including memory maps, are read in blocks of rows. Everything else counts by its
    `repr`, so pass only plain values (numbers, strings, tuples of them, frozen dataclasses).
    """
    state = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            for piece in _pieces(value):
                state.update(piece)
        else:
            state.update(b"none" if value is None else repr(value).encode())
    return state.hexdigest()


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
