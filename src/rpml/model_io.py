"""Models as one pickle-free file: arrays, settings, and what is needed to trust them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rpml._container import Arrays, read_container, write_container

FORMAT_VERSION = 1


def write_model(
    path: str | Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]
) -> None:
    """Write a model file atomically; equal content gives equal bytes.

    Parameters
    ----------
    path : str or Path
        Where to write; an existing file is replaced only once the new one is complete.
    arrays : mapping of str to ndarray
        Booleans, integers and floats of any shape.
    metadata : mapping
        Anything JSON can hold: settings, preprocessing, feature names, the training summary.
        Nothing that differs between two equal runs (times, paths) belongs here.
    """
    write_container(path, arrays, metadata, "model", FORMAT_VERSION)


def read_model(path: str | Path) -> tuple[Arrays, dict[str, Any]]:
    """Read a model file from anywhere, trusted or not.

    Raises
    ------
    ModelFormatError
        If the file is truncated, altered, of another kind, or from a newer version.
    """
    arrays, fields = read_container(path, "model", FORMAT_VERSION)
    metadata: dict[str, Any] = fields["metadata"]
    return arrays, metadata
