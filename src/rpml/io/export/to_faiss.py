"""An empty faiss index that embeds the raw vectors that are added or searched."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from rpml.io.export import Affine, Step, bias, output_size
from rpml.runtime.errors import require


def write(steps: Sequence[Step], path: Path) -> None:
    """Write an IndexPreTransform over a flat index (inner product for unit rows, else L2)."""
    faiss = require("faiss", "export", "faiss export")
    size = output_size(steps)
    flat = faiss.IndexFlatIP(size) if steps[-1] is None else faiss.IndexFlatL2(size)
    path.write_bytes(faiss.serialize_index(with_steps(faiss, steps, flat)).tobytes())


def with_steps(faiss: ModuleType, steps: Sequence[Step], inner: Any) -> Any:
    """Return an index that takes the steps before another one."""
    index = faiss.IndexPreTransform(inner)
    for step in reversed(steps):
        if isinstance(step, Affine):
            index.prepend_transform(_linear(faiss, step))
        else:
            index.prepend_transform(faiss.NormalizationTransform(index.d, 2.0))
    return index


def _linear(faiss: ModuleType, step: Affine) -> Any:
    d, size = step.matrix.shape
    linear = faiss.LinearTransform(d, size, step.mean is not None)
    faiss.copy_array_to_vector(np.ascontiguousarray(step.matrix.T, np.float32).ravel(), linear.A)
    if step.mean is not None:
        faiss.copy_array_to_vector(bias(step).astype(np.float32), linear.b)
    linear.is_trained = True
    linear.set_is_orthonormal()
    return linear
