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
    for i in reversed(range(len(steps))):
        index.prepend_transform(_transform(faiss, steps, i))
    return index


def _transform(faiss: ModuleType, steps: Sequence[Step], i: int) -> object:
    step = steps[i]
    if not isinstance(step, Affine):
        before = [s.matrix.shape[1] for s in steps[:i] if isinstance(s, Affine)]
        after = [len(s.matrix) for s in steps[i:] if isinstance(s, Affine)]
        return faiss.NormalizationTransform(before[-1] if before else after[0], 2.0)
    d, size = step.matrix.shape
    linear = faiss.LinearTransform(d, size, step.mean is not None)
    faiss.copy_array_to_vector(np.ascontiguousarray(step.matrix.T, np.float32).ravel(), linear.A)
    if step.mean is not None:
        faiss.copy_array_to_vector(bias(step).astype(np.float32), linear.b)
    linear.is_trained = True
    linear.set_is_orthonormal()
    return linear
