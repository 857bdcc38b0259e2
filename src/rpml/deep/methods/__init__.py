"""The methods of the tables of the paper.

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
    instance_sampler,
    kmeans_labels,
    label_sampler,
    stateless,
)
from rpml.deep.methods.srpml import SRPML
from rpml.deep.methods.supervised import DAML, HDML, contrastive, ddml, lifted, triplet
from rpml.deep.methods.unsupervised import (
    STML,
    DeepCluster,
    Exemplar,
    MemoryNCE,
    invariant,
    neighbor_sampler,
    pool_sampler,
    weighted_triplet,
)
from rpml.runtime.errors import InputError


def _supervised(title: str, loss: Callable[[LossSpec], Loss], rate: float = 1e-3) -> Method:
    return Method(title, class_sampler, loss, rate, uses_labels=True)


METHODS: dict[str, Method] = {
    "exemplar": Method("Exemplar", instance_sampler, Exemplar),
    "nce": Method("NCE", instance_sampler, MemoryNCE),
    "deepcluster": Method(
        "DeepCluster", lambda bank: label_sampler(kmeans_labels(bank)), DeepCluster
    ),
    "mom": Method("MOM", pool_sampler, stateless(weighted_triplet), mines_once=True),
    "invariant": Method("Invariant", instance_sampler, stateless(invariant)),
    "stml": Method("STML", neighbor_sampler, STML, needs_teacher=True),
    "srpml": Method("sRPML", lambda bank: label_sampler(aas_labels(bank)), SRPML),
    "contrastive": _supervised("Contrastive", stateless(contrastive)),
    "ddml": _supervised("DDML", stateless(ddml)),
    "triplet": _supervised("Triplet", triplet, 3e-4),
    "triplet-hard": _supervised("Triplet + hard", partial(triplet, semi_hard=True)),
    "triplet-daml": _supervised("Triplet + DAML", DAML),
    "triplet-hdml": _supervised("Triplet + HDML", HDML, 3e-4),
    "lifted": _supervised("Lifted", lifted, 3e-4),
}
"""In the order of the tables of the paper."""


def check_methods(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names; InputError if one of them is not in `METHODS`."""
    for name in names:
        if name not in METHODS:
            raise InputError(f"there is no method {name!r}: choose from {', '.join(METHODS)}")
    return tuple(names)
