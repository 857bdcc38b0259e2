"""sRPML and the methods that it is compared with; benchmarks/deep_baselines.py has more.

A new method is a sampler and a loss in a module of this folder, and an entry of `METHODS`.
"""

from collections.abc import Callable, Sequence
from functools import partial

from rpml.deep.methods.base import (
    Loss,
    LossSpec,
    Method,
    aas_labels,
    class_sampler,
    label_sampler,
    stateless,
)
from rpml.deep.methods.baselines import STML, contrastive, lifted, neighbor_sampler, triplet
from rpml.deep.methods.srpml import SRPML
from rpml.runtime.errors import InputError


def _supervised(title: str, loss: Callable[[LossSpec], Loss], rate: float = 1e-3) -> Method:
    return Method(title, class_sampler, loss, rate, uses_labels=True)


METHODS: dict[str, Method] = {
    # its code: 90 passes, 120 images in two views
    "stml": Method("STML", neighbor_sampler, STML, needs_teacher=True, budget=(180, 240)),
    # the paper only prints the batch size; 100 passes are those of MOM, whose protocol it follows
    "srpml": Method(
        "sRPML", lambda bank: label_sampler(aas_labels(bank)), SRPML, budget=(100, 120)
    ),
    "contrastive": _supervised("Contrastive", stateless(contrastive)),
    "triplet": _supervised("Triplet", triplet, 3e-4),
    "triplet-hard": _supervised("Triplet + hard", partial(triplet, semi_hard=True)),
    "lifted": _supervised("Lifted", lifted, 3e-4),
}
"""In the order of the tables of the paper."""


def check_methods(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names; InputError if one of them is not in `METHODS`."""
    for name in names:
        if name not in METHODS:
            raise InputError(f"there is no method {name!r}: choose from {', '.join(METHODS)}")
    return tuple(names)
