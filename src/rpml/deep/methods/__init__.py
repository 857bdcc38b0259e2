"""The methods of the tables of the paper.

A new method is a `Method` in a module of this folder and a line here.
"""

from collections.abc import Sequence
from dataclasses import replace

from rpml.deep.methods import mom, srpml, supervised, unsupervised
from rpml.deep.methods.base import Method
from rpml.runtime.errors import InputError

_UNSUPERVISED = {
    "exemplar": ("Exemplar", unsupervised.EXEMPLAR),
    "nce": ("NCE", unsupervised.NCE),
    "deepcluster": ("DeepCluster", unsupervised.DEEPCLUSTER),
    "mom": ("MOM", mom.MOM),
    "invariant": ("Invariant", unsupervised.INVARIANT),
    "stml": ("STML", unsupervised.STML_METHOD),
    "srpml": ("sRPML", srpml.SRPML_METHOD),
}
_SUPERVISED = {
    "contrastive": ("Contrastive", supervised.CONTRASTIVE),
    "ddml": ("DDML", supervised.DDML),
    "triplet": ("Triplet", supervised.TRIPLET),
    "triplet-hard": ("Triplet + hard", supervised.SEMI_HARD),
    "triplet-daml": ("Triplet + DAML", supervised.DAML_METHOD),
    "triplet-hdml": ("Triplet + HDML", supervised.HDML_METHOD),
    "lifted": ("Lifted", supervised.LIFTED),
}
METHODS: dict[str, Method] = {
    name: replace(method, title=title, uses_labels=name in _SUPERVISED)
    for name, (title, method) in {**_UNSUPERVISED, **_SUPERVISED}.items()
}
"""In the order of the tables of the paper."""


def check_methods(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names; InputError if one of them is not in `METHODS`."""
    for name in names:
        if name not in METHODS:
            raise InputError(f"there is no method {name!r}: choose from {', '.join(METHODS)}")
    return tuple(names)
