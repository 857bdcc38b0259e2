"""What `transform` does to a row, as data: the steps in order."""

from dataclasses import dataclass
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
    """What an export needs of a fitted model."""

    @property
    def preprocessing_(self) -> Centering: ...

    components_: Array
    normalize: bool


@dataclass(frozen=True)
class Unit:
    """x / |x|; a zero row stays zero."""


@dataclass(frozen=True)
class Affine:
    """(x - mean) @ matrix."""

    mean: Array | None
    matrix: Array


Step = Unit | Affine


def embedding_steps(model: LinearModel, n_components: int | None = None) -> list[Step]:
    """The steps of a fitted model; neighboring linear ones are one.

    Parameters
    ----------
    model : RPML
        A fitted model.
    n_components : int, default=None
        Keep only the first components.
    """
    size = len(model.components_)
    if n_components is not None and not 1 <= n_components <= size:
        raise InputError(f"n_components={n_components} must be from 1 to the model's {size}")
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
    """b of the same map written as x @ matrix + b."""
    if step.mean is None:
        return np.zeros(step.matrix.shape[1])
    return np.asarray(-step.mean @ step.matrix)


def input_size(steps: list[Step]) -> int:
    """Features a row must have."""
    return next(len(s.matrix) for s in steps if isinstance(s, Affine))


def output_size(steps: list[Step]) -> int:
    """Size of the embedding."""
    return next(int(s.matrix.shape[1]) for s in reversed(steps) if isinstance(s, Affine))
