"""The published training budgets, for a machine with a GPU."""

from collections.abc import Mapping
from dataclasses import asdict, replace

from rpml.deep.schedule import Schedule
from rpml.runtime.errors import InputError

BUDGETS = ("common", "paper")
PUBLISHED: dict[str, tuple[int, int]] = {
    "exemplar": (120, 256),
    "nce": (120, 256),
    "deepcluster": (60, 128),
    "invariant": (120, 256),
    "mom": (300, 126),
    "stml": (180, 240),
    "srpml": (100, 120),
    "triplet-hdml": (175, 128),
}
"""Epochs and rows per batch on CUB-200-2011; an epoch has as many rows as there are images.

Invariant, and the label-free methods that its paper compares with, from its authors' code (60
passes, 128 images per batch in two views, one for DeepCluster); MOM from its code (100 passes over
the anchors, 42 triplets), STML from its code (90 passes, 120 images in two views), and HDML from
its code (8,000 steps). The RPML paper only prints the batch size; 100 passes are those of MOM,
whose protocol it follows.
"""
SUPERVISED = (437, 128)
"""20,000 steps on CUB-200-2011, the protocol of Oh Song et al. that supervised methods follow."""
LEARNING_RATE = 1e-4
EMA_DECAY = 0.999


def check_budget(name: str) -> None:
    """Raise InputError for a name that is not in `BUDGETS`."""
    if name not in BUDGETS:
        raise InputError(f"the schedule must be one of {', '.join(BUDGETS)}, got {name!r}")


def check_free(name: str, user_settings: Mapping[str, object]) -> None:
    """Raise InputError for settings that the papers' schedule would replace."""
    check_budget(name)
    replaced = asdict(paper_schedule("", Schedule())).items() - asdict(Schedule()).items()
    for setting in user_settings if name == "paper" else ():
        if setting in dict(replaced):
            raise InputError(
                f"{setting} is set by the schedule of the papers: leave one of them out"
            )


def paper_schedule(method: str, schedule: Schedule) -> Schedule:
    """Return the schedule with the published budget of a method, without distillation.

    The optimizer is still AdamW, with the learning rate (1e-4) and the weight average of STML.
    """
    epochs, batch_size = PUBLISHED.get(method, SUPERVISED)
    return replace(
        schedule,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=LEARNING_RATE,
        projection_rate=LEARNING_RATE,
        ema_decay=EMA_DECAY,
        feature_distillation=0.0,
        neighbor_distillation=0.0,
    )
