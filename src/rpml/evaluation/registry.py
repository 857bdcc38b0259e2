"""Every method that is compared: its name, its title, how it is made, whether it sees labels.

`compare`, `benchmark`, `demo`, `recommend`, the report and the deep heads all read this one table.
A new method is one file and one line here. Methods of the layers above are named by their path and
imported when they are built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sklearn.cluster import HDBSCAN

from rpml.estimator import RPML
from rpml.evaluation.ablation import ReferenceLoss
from rpml.evaluation.baselines.lda import LDA, PseudoLabelLDA
from rpml.evaluation.baselines.lpp import LPP
from rpml.evaluation.baselines.nca import NCA
from rpml.evaluation.baselines.partitions import KMeansPartition, LeidenPartition
from rpml.evaluation.baselines.pca import PCA, WhitenedDescriptors
from rpml.evaluation.baselines.random_projection import RandomProjection
from rpml.evaluation.baselines.raw import Raw
from rpml.runtime.errors import InputError

Build = Callable[[int, int], Any]


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Parameters
    ----------
    name : str
        In Python and on the command line.
    title : str
        In tables and sentences.
    build : callable
        The unfitted estimator for (n_components, seed).
    uses_labels : bool, default=False
        Whether `fit` sees the classes of the training rows: an upper reference.
    """

    name: str
    title: str
    build: Build
    uses_labels: bool = False


def seeded(estimator: Callable[..., Any], **settings: Any) -> Build:
    """Build an estimator that takes a random_state."""
    return lambda n_components, seed: estimator(n_components, random_state=seed, **settings)


def unseeded(estimator: Callable[..., Any], **settings: Any) -> Build:
    """Build an estimator that draws nothing."""
    return lambda n_components, seed: estimator(n_components, **settings)


def clustered(partition: Callable[[int], Any]) -> Build:
    """Build RPML on another clustering, made for the seed."""
    return lambda n_components, seed: RPML(
        n_components, clustering=partition(seed), random_state=seed
    )


def imported(path: str, **settings: Any) -> Build:
    """Build an estimator named by "module:class", imported on use."""
    module, name = path.split(":")
    return lambda n_components, seed: getattr(import_module(module), name)(
        n_components, random_state=seed, **settings
    )


def head(loss: str, title: str) -> Method:
    """A linear map learned by one of the losses of `rpml.deep.methods`, without labels."""
    build = imported("rpml.deep.head:DeepHead", method=loss)
    return Method(f"head-{loss}", f"{title} (head)", build)


def supervised_head(loss: str, title: str) -> Method:
    """The same for a loss that sees the classes."""
    build = imported("rpml.deep.head:SupervisedDeepHead", method=loss)
    return Method(f"head-{loss}", f"{title} (head, uses labels)", build, uses_labels=True)


_TABLE = (
    Method("raw", "raw features", lambda n_components, seed: Raw()),
    Method("random", "random projection", seeded(RandomProjection)),
    Method("pca", "PCA", unseeded(PCA)),
    Method("half-whitened", "half-whitened PCA", unseeded(PCA, exponent=0.5)),
    Method("pca-whitened", "whitened PCA", unseeded(PCA, exponent=1.0)),
    Method("whitened-512", "all axes whitened, at most 512", unseeded(WhitenedDescriptors)),
    Method("lpp", "LPP", unseeded(LPP)),
    Method("aas-lda", "AAS + LDA", seeded(PseudoLabelLDA)),
    Method("rpml", "RPML", seeded(RPML)),
    Method("rpml-untrained", "RPML before training", seeded(RPML, max_iter=0)),
    Method("rpml-kmeans", "RPML on k-means", clustered(lambda seed: KMeansPartition(seed))),
    Method("rpml-hdbscan", "RPML on HDBSCAN", clustered(lambda seed: HDBSCAN(copy=True))),
    Method("rpml-leiden", "RPML on Leiden", clustered(lambda seed: LeidenPartition(seed))),
    Method("rpml-bilinear", "RPMLv1", seeded(RPML, weight="bilinear")),
    Method("rpml-constant", "RPML, constant weights", seeded(RPML, weight="constant")),
    Method("srpml", "sRPML", seeded(RPML, solver="stochastic")),
    Method("srpml-bilinear", "sRPMLv1", seeded(RPML, solver="stochastic", weight="bilinear")),
    Method(
        "srpml-constant",
        "sRPML, constant weights",
        seeded(RPML, solver="stochastic", weight="constant"),
    ),
    Method(
        "srpml-random", "sRPML from random", seeded(RPML, solver="stochastic", init="random")
    ),
    Method("paper", "RPML as printed", seeded(RPML.paper)),
    Method("paper-bilinear", "RPMLv1 as printed", seeded(RPML.paper, weight="bilinear")),
    Method("paper-stochastic", "sRPML as printed", seeded(RPML.paper, solver="stochastic")),
    Method("loss-hinge-triplet", "hinge triplet loss", seeded(ReferenceLoss, loss="hinge-triplet")),
    Method("loss-hinge-angular", "hinge angular loss", seeded(ReferenceLoss, loss="hinge-angular")),
    Method("loss-smooth", "smooth angular loss, unweighted", seeded(ReferenceLoss, loss="smooth")),
    Method("loss-free", "smooth angular loss, unconstrained", seeded(ReferenceLoss, loss="free")),
    Method("lda", "LDA (uses labels)", unseeded(LDA), uses_labels=True),
    Method("nca", "NCA (uses labels)", seeded(NCA), uses_labels=True),
    head("exemplar", "Exemplar"),
    head("nce", "NCE"),
    head("deepcluster", "DeepCluster"),
    head("mom", "MOM"),
    head("invariant", "Invariant"),
    head("stml", "STML"),
    head("srpml", "sRPML"),
    supervised_head("contrastive", "Contrastive"),
    supervised_head("ddml", "DDML"),
    supervised_head("triplet", "Triplet"),
    supervised_head("triplet-hard", "Triplet + hard"),
    supervised_head("triplet-daml", "Triplet + DAML"),
    supervised_head("triplet-hdml", "Triplet + HDML"),
    supervised_head("lifted", "Lifted"),
)  # fmt: skip
METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
PCA_FAMILY = ("pca", "half-whitened", "pca-whitened")


def chosen_methods(names: Iterable[str]) -> list[Method]:
    """The methods of these names.

    Raises
    ------
    InputError
        For a name that is not in the table; the message lists those that are.
    """
    names = list(names)
    for name in names:
        if name not in METHODS:
            raise InputError(f"there is no method {name!r}: choose from {', '.join(METHODS)}")
    return [METHODS[name] for name in names]
