"""The steps of `transform` as data."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Protocol

import numpy as np

from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array


class Centering(Protocol):
    """The linear map before the components."""

    unit_input: bool
    unit_output: bool
    mean: Array
    matrix: Array


class LinearModel(Protocol):
    """The attributes of a fitted model that an export needs."""

    @property
    def preprocessing_(self) -> Centering: ...

    components_: Array
    normalize: bool


@dataclass(frozen=True)
class Unit:
    """Divide by the norm; a zero row stays zero."""


@dataclass(frozen=True)
class Affine:
    """Map x to (x - mean) @ matrix."""

    mean: Array | None
    matrix: Array


Step = Unit | Affine


def embedding_steps(model: LinearModel, n_components: int | None = None) -> list[Step]:
    """Return the steps of a fitted model, with consecutive linear maps merged."""
    if not hasattr(model, "components_"):
        raise InputError("the model is not fitted: fit it before the export")
    size = len(model.components_)
    asked = size if n_components is None else n_components
    if not isinstance(asked, Integral) or not 1 <= asked <= size:
        raise InputError(f"n_components={n_components!r} must be from 1 to the model's {size}")
    pre = model.preprocessing_
    projection = model.components_[:n_components].T
    mean = pre.mean if np.any(pre.mean) else None
    steps: list[Step] = [Unit()] if pre.unit_input else []
    if pre.unit_output:
        steps += [Affine(mean, pre.matrix), Unit(), Affine(None, projection)]
    else:
        steps.append(Affine(mean, pre.matrix @ projection))
    return [*steps, Unit()] if model.normalize else steps


def bias(step: Affine) -> Array:
    """Return b of the same map written as x @ matrix + b."""
    if step.mean is None:
        return np.zeros(step.matrix.shape[1])
    return np.asarray(-step.mean @ step.matrix)


def input_size(steps: Sequence[Step]) -> int:
    """Return the number of input features."""
    return next(len(s.matrix) for s in steps if isinstance(s, Affine))


def output_size(steps: Sequence[Step]) -> int:
    """Return the size of the embedding."""
    return next(int(s.matrix.shape[1]) for s in reversed(steps) if isinstance(s, Affine))
