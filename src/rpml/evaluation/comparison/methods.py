"""The rows of a comparison: a name, how its estimator is made, whether it sees labels."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN

from rpml.estimator import RPML
from rpml.evaluation.ablation import ReferenceLoss
from rpml.evaluation.baselines import LDA, LinearBaseline, registry
from rpml.evaluation.comparison.partitions import KMeansPartition, LeidenPartition
from rpml.method.whitening.linear_map import Preprocessing

Build = Callable[[int, int], Any]

# key of the method -> (title, uses_labels): as in rpml.deep.methods, known without torch
HEADS = {
    "exemplar": ("Exemplar", False),
    "nce": ("NCE", False),
    "deepcluster": ("DeepCluster", False),
    "mom": ("MOM", False),
    "invariant": ("Invariant", False),
    "stml": ("STML (relaxed contrastive)", False),
    "srpml": ("sRPML", False),
    "contrastive": ("Contrastive", True),
    "ddml": ("DDML", True),
    "triplet": ("Triplet", True),
    "triplet-hard": ("Triplet + hard", True),
    "triplet-daml": ("Triplet + DAML", True),
    "triplet-hdml": ("Triplet + HDML", True),
    "lifted": ("Lifted", True),
}


@dataclass(frozen=True)
class Method:
    """How it is called in a table, and the estimator for a dimension and a seed."""

    key: str
    title: str
    build: Build
    uses_labels: bool = False
    """An upper reference: it sees the classes of the training rows."""


class LargestLDA(LDA):
    """LDA with as many of the asked dimensions as there are classes for (classes less one)."""

    def _learn(self, X: Any, y: NDArray[np.intp] | None) -> Preprocessing:
        assert y is not None
        size = min(self.n_components, int(y.max()), X.shape[1])
        return LDA(size, shrinkage=self.shrinkage)._learn(X, y)


class PseudoLabelLDA(LinearBaseline):
    """LDA on the labels that RPML's own clustering gives; rows alone in theirs are left out.

    Parameters
    ----------
    n_components : int
        Size of the embedding.
    random_state : int, RandomState or None
    """

    uses_labels: ClassVar[bool] = False

    def __init__(self, n_components: int = 2, *, random_state: Any = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def _learn(self, X: Any, y: NDArray[np.intp] | None) -> Preprocessing:
        labels = RPML(self.n_components, max_iter=0, random_state=self.random_state).fit(X).labels_
        together = (labels >= 0) & (np.bincount(labels[labels >= 0])[labels] > 1)
        lda = LargestLDA(self.n_components).fit(X[together], labels[together])
        return lda.map_


def _baseline(key: str, title: str, uses_labels: bool = False) -> Method:
    return Method(key, title, registry[key], uses_labels)


def _rpml(key: str, title: str, **settings: Any) -> Method:
    return Method(key, title, lambda dim, seed: RPML(dim, random_state=seed, **settings))


def _clustered(key: str, title: str, clustering: Callable[[int], Any]) -> Method:
    return Method(
        key, title, lambda dim, seed: RPML(dim, clustering=clustering(seed), random_state=seed)
    )


def _paper(key: str, title: str, **settings: Any) -> Method:
    return Method(key, title, lambda dim, seed: RPML.paper(dim, random_state=seed, **settings))


def _reference(loss: str, title: str) -> Method:
    return Method(
        f"loss-{loss}", title, lambda dim, seed: ReferenceLoss(dim, loss=loss, random_state=seed)
    )


def _deep(name: str) -> Any:
    """A class of the layer above, which needs torch: named here, loaded when it is built."""
    return getattr(importlib.import_module("rpml.deep.head"), name)


def _head(key: str) -> Method:
    """A method of `rpml.deep`, its linear map only; needs torch when it is fitted."""
    title, uses_labels = HEADS[key]
    kind = "SupervisedDeepHead" if uses_labels else "DeepHead"
    suffix = "head, uses labels" if uses_labels else "head"
    return Method(
        f"head-{key}",
        f"{title} ({suffix})",
        lambda dim, seed: _deep(kind)(dim, method=key, random_state=seed),
        uses_labels,
    )


_ALL = (
    _baseline("raw", "raw features"),
    _baseline("random", "random projection"),
    _baseline("pca", "PCA"),
    _baseline("half-whitened", "half-whitened PCA"),
    _baseline("pca-whitened", "PCA-whitened"),
    _baseline("lpp", "LPP"),
    Method("aas-lda", "AAS + LDA", lambda dim, seed: PseudoLabelLDA(dim, random_state=seed)),
    _rpml("rpml", "RPML"),
    _rpml("rpml-untrained", "RPML before training", max_iter=0),
    _clustered("rpml-kmeans", "RPML on k-means", lambda seed: KMeansPartition(random_state=seed)),
    _clustered("rpml-hdbscan", "RPML on HDBSCAN", lambda seed: HDBSCAN(copy=True)),
    _clustered("rpml-leiden", "RPML on Leiden", lambda seed: LeidenPartition(random_state=seed)),
    _rpml("rpml-bilinear", "RPMLv1 (bilinear)", weight="bilinear"),
    _rpml("rpml-constant", "RPML, constant weights", weight="constant"),
    _rpml("rpml-stochastic", "sRPML", solver="stochastic"),
    _rpml("rpml-bilinear-stochastic", "sRPMLv1", solver="stochastic", weight="bilinear"),
    _rpml("rpml-constant-stochastic", "sRPML, constant", solver="stochastic", weight="constant"),
    _paper("paper", "RPML as printed"),
    _paper("paper-bilinear", "RPMLv1 as printed", weight="bilinear"),
    _paper("paper-stochastic", "sRPML as printed", solver="stochastic"),
    _reference("hinge-triplet", "hinge triplet loss"),
    _reference("hinge-angular", "hinge angular loss"),
    _reference("smooth", "smooth angular loss, unweighted"),
    _reference("free", "smooth angular loss, no orthogonality"),
    Method("lda", "LDA (uses labels)", lambda dim, seed: LargestLDA(dim), True),
    _baseline("nca", "NCA (uses labels)", uses_labels=True),
    *(_head(key) for key in HEADS),
)
METHODS: dict[str, Method] = {method.key: method for method in _ALL}
PCA_FAMILY = ("pca", "half-whitened", "pca-whitened")
DEFAULT_METHODS = ("raw", "random", *PCA_FAMILY, "lpp", "aas-lda", "rpml", "lda", "nca")


def check_methods(names: Sequence[str]) -> tuple[str, ...]:
    """The names, or a sentence that lists those there are."""
    for name in names:
        if name not in METHODS:
            raise ValueError(f"there is no method {name!r}: choose from {', '.join(METHODS)}")
    return tuple(names)
