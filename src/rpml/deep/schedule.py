"""The training schedule, and the published budgets for a machine with a GPU."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from rpml.runtime.errors import InputError

_MINIMUM = {  # integers
    "epochs": 1,
    "batch_size": 2,
    "patience": 1,
    "seed": 0,
}
_OPTIONAL = ("patience", "learning_rate")
_MAXIMUM = {"ema_decay": 1}
BUDGETS = ("common", "paper")
SUPERVISED = (437, 128)
"""Epochs and rows per batch: 20,000 steps on CUB-200-2011, the protocol of Oh Song et al. that
supervised methods follow."""
PUBLISHED_RATE, PUBLISHED_EMA_DECAY = 1e-4, 0.999  # those of STML


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a network is trained; the same for every method."""

    epochs: int = 6
    """Passes over the images."""
    batch_size: int = 120
    """Images per step."""
    learning_rate: float | None = None
    """Of the upper blocks; None: that of the method."""
    projection_rate: float = 1e-4
    """Learning rate of the projection, for losses that do not update it themselves."""
    ema_decay: float = 0.95
    """Decay of the exponential moving average of the weights (the mean teacher), which training
    returns; 0 returns the trained weights themselves."""
    feature_distillation: float = 3.0
    """Weight in `rpml.deep.trainer.FeatureDistillation`, like the next one."""
    neighbor_distillation: float = 1.0
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


def check_free(name: str, user_settings: Mapping[str, object]) -> None:
    """Raise InputError for settings that the papers' schedule would replace."""
    replaced = asdict(paper_schedule(SUPERVISED, Schedule())).items() - asdict(Schedule()).items()
    for setting in user_settings.keys() & dict(replaced).keys() if name == "paper" else ():
        raise InputError(f"{setting} is set by the schedule of the papers: leave one of them out")


def paper_schedule(budget: tuple[int, int], schedule: Schedule) -> Schedule:
    """Return the schedule with the published epochs and batch size, without distillation.

    The optimizer is still AdamW, with the learning rate (1e-4) and the weight average of STML.
    """
    epochs, batch_size = budget
    return replace(
        schedule,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=PUBLISHED_RATE,
        projection_rate=PUBLISHED_RATE,
        ema_decay=PUBLISHED_EMA_DECAY,
        feature_distillation=0.0,
        neighbor_distillation=0.0,
    )
