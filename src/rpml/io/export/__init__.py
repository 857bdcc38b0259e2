"""Export of a model to ONNX, faiss, sentence-transformers, numpy, SQL and JavaScript.

All targets are built from the same list of steps, so that none can deviate from `transform`.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from rpml.io.features.reading import SUFFIXES as DATA_SUFFIXES
from rpml.io.manifest import check_folder, folder_outputs
from rpml.runtime.errors import InputError
from rpml.runtime.files import atomic_output, check_apart, check_output
from rpml.runtime.rows import Array

TARGETS: dict[str, tuple[str, ...]] = {
    "onnx": (".onnx",),
    "faiss": (".faiss", ".index"),
    "sentence-transformers": (),
    "numpy": (".npz",),
    "sql": (".sql",),
    "js": (".mjs",),
}
"""File suffixes of each export target; the module `to_NAME` has its `write`."""
_TAKEN = {".rpml", *DATA_SUFFIXES, *itertools.chain(*TARGETS.values())}


@dataclass(frozen=True)
class Affine:
    """Map x to (x - mean) @ matrix."""

    mean: Array | None
    matrix: Array


Step = Affine | None
"""None divides by the norm; a zero row stays zero."""


def embedding_steps(model: Any, n_components: int | None = None) -> list[Step]:
    """Return the steps of a fitted model, with consecutive linear maps merged."""
    if not hasattr(model, "components_"):
        raise InputError("the model is not fitted: fit it before the export")
    model = model.map_only(n_components)
    pre, projection = model.preprocessing_, model.components_.T
    mean = pre.mean if np.any(pre.mean) else None
    steps: list[Step] = [None] if pre.unit_input else []
    if pre.unit_output:
        steps += [Affine(mean, pre.matrix), None, Affine(None, projection)]
    else:
        steps.append(Affine(mean, pre.matrix @ projection))
    return [*steps, None] if model.normalize else steps


def bias(step: Affine) -> Array:
    """Return b of the same map written as x @ matrix + b."""
    if step.mean is None:
        return np.zeros(step.matrix.shape[1])
    return np.asarray(-step.mean @ step.matrix)


def input_size(steps: Sequence[Step]) -> int:
    return next(len(s.matrix) for s in steps if isinstance(s, Affine))


def output_size(steps: Sequence[Step]) -> int:
    return next(int(s.matrix.shape[1]) for s in reversed(steps) if isinstance(s, Affine))


def export_model(
    model: Any,
    target: str,
    path: str | PathLike[str],
    n_components: int | None = None,
    overwrite: bool = True,
) -> Path:
    """Export a fitted model for another program.

    Parameters
    ----------
    model : RPML
        A fitted model.
    target : {"onnx", "faiss", "sentence-transformers", "numpy", "sql", "js"}
        An ONNX graph, a faiss index (empty, with the embedding in front), a folder of
        sentence-transformers modules, an .npz file of arrays, an SQL script with a view, or an
        ES module.
    path : str or Path
        The file, or for sentence-transformers the folder, to write.
    n_components : int, default=None
        Export only the first components; a prefix is itself a good smaller embedding.
    overwrite : bool, default=True
        Replace an existing file, as `RPML.save` does, or in a folder the files of an earlier
        export. False raises an error instead, as the command line does without --force.

    Returns
    -------
    Path
        The file or folder written.
    """
    path = Path(path)
    check_export(target, path, overwrite)
    steps = embedding_steps(model, n_components)
    module = import_module(f"{__name__}.to_{target.replace('-', '_')}")
    write: Callable[[Sequence[Step], Path], None] = module.write
    if target == "sentence-transformers":
        with folder_outputs(path, overwrite) as scratch:
            write(steps, scratch)
    else:
        with atomic_output(path, overwrite) as draft:
            write(steps, draft)
    return path


def check_export(
    target: str,
    path: str | PathLike[str],
    overwrite: bool = False,
    inputs: Iterable[str | Path | None] = (),
) -> None:
    """Raise InputError if the output has the wrong suffix, exists, or must not be replaced."""
    if target not in TARGETS:
        raise InputError(f"target must be one of {', '.join(TARGETS)}, got {target!r}")
    check_apart([Path(path)], inputs)  # first: the input may have the wrong suffix, too
    suffix = Path(path).suffix.lower()
    if suffix in _TAKEN and suffix not in TARGETS[target]:
        raise InputError(f"{path} is not the name of an export to {target}: it ends in {suffix}")
    if target == "sentence-transformers":
        check_folder(path, overwrite)
    elif check_output(Path(path), overwrite).is_dir():
        raise InputError(f"{path} is a folder: give the {target} export a file name")
