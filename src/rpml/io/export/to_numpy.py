"""An .npz file with the arrays of every step.

It can be used without rpml: sort the names; ``..._subtract`` and ``..._multiply`` say what to do
with the array, and ``..._unit`` means "scale rows to unit norm".
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rpml.io.export import Affine, Step
from rpml.runtime.context import Json
from rpml.runtime.rows import AnyArray


def write(steps: Sequence[Step], path: Path) -> None:
    named: list[tuple[str, AnyArray]] = []
    for step in steps:
        if not isinstance(step, Affine):
            named.append(("unit", np.zeros(0, np.float32)))
            continue
        if step.mean is not None:
            named.append(("subtract", step.mean))
        named.append(("multiply", np.ascontiguousarray(step.matrix)))
    with open(path, "wb") as file:
        arrays: Json = {f"{i:02d}_{what}": a for i, (what, a) in enumerate(named)}
        np.savez(file, **arrays)
