"""The training schedule."""

import math
from dataclasses import asdict, dataclass

import numpy as np

from rpml.deep.samplers import BATCH_SIZE
from rpml.runtime.errors import InputError

_MINIMUM = {  # integers
    "epochs": 1,
    "batch_size": 2,
    "micro_batch": 1,
    "relabel_every": 1,
    "patience": 1,
    "seed": 0,
}
_OPTIONAL = ("patience", "micro_batch", "learning_rate")
_MAXIMUM = {"ema_decay": 1, "feature_momentum": 1}


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a network is trained; the same for every method."""

    epochs: int = 6
    """Passes over the images."""
    batch_size: int = BATCH_SIZE
    """Images per step."""
    micro_batch: int | None = None
    """Rows per pass through the network, for less memory; None: the whole batch. Gradients are
    accumulated over the passes. The loss still sees the whole batch, so they are the same."""
    learning_rate: float | None = None
    """Of the upper blocks; None: that of the method."""
    projection_rate: float = 1e-4
    """Learning rate of the projection, for losses that do not update it themselves."""
    loss_rate: float = 1e-3
    """Learning rate of the parameters that belong to a loss."""
    weight_decay: float = 0.0
    ema_decay: float = 0.95
    """Decay of the exponential moving average of the weights (the mean teacher), which training
    returns; 0 returns the trained weights themselves."""
    feature_distillation: float = 3.0
    """Weight in `rpml.deep.distillation.FeatureDistillation`, like the next one."""
    neighbor_distillation: float = 1.0
    relabel_every: int = 1
    """Epochs between two computations of the pseudo-labels."""
    feature_momentum: float = 0.9
    """Of the running mean of the features of each image, which are clustered."""
    patience: int | None = None
    """Stop after this many epochs in which the label-free score has not risen; None: never."""
    seed: int = 0
    """Of batches, views and initial parameters."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name in _OPTIONAL and value is None:
                continue
            low, high = _MINIMUM.get(name, 0), _MAXIMUM.get(name, math.inf)
            kinds = (int, np.integer) if name in _MINIMUM else (int, float, np.number)
            is_number = isinstance(value, kinds) and not isinstance(value, bool)
            if not (is_number and low <= value <= high):
                kind = "a whole number" if name in _MINIMUM else "a number"
                upper = f" and at most {high}" if name in _MAXIMUM else ""
                raise InputError(f"{name} must be {kind} of at least {low}{upper}, got {value!r}")
