"""The whole method on a cluster, stage by stage; compare `rpml.pipeline.learn`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.clustering import AuthorityAscentShift
from rpml.context import Context
from rpml.distributed.aas import check_supported, cluster_rows
from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.evaluator import DaskObjective, Settings
from rpml.distributed.knn import Graph, nearest_neighbors
from rpml.distributed.source import Rows
from rpml.distributed.stochastic import Parts, deal_rows, distributed_epoch
from rpml.distributed.triplets import draw_triplets
from rpml.distributed.whiten import mean_and_covariance, prepare
from rpml.pipeline import (
    DEFAULT_COMPONENTS,
    Config,
    Result,
    batch_settings,
    guard_of,
    no_groups,
    optimize,
    pack,
    unpack,
)
from rpml.preprocess import Preprocessing, spectrum_of
from rpml.pseudolabels import Labels, as_labels
from rpml.stochastic import Epoch, EpochState
from rpml.training import complete_axes, initial_subspace, order_by_spread
from rpml.weights import weight_function

logger = logging.getLogger(__name__)
Array = NDArray[np.floating]
Start = tuple[Array, Array | None]


@dataclass(frozen=True)
class Prepared:
    """The preprocessed rows on the workers, and their moments."""

    parts: list[Task]
    edges: NDArray[np.int64]
    mean: Array
    covariance: Array

    @property
    def width(self) -> int:
        return len(self.mean)


def learn(cluster: Cluster, rows: Rows, config: Config, context: Context) -> Result:
    """Learn an embedding of partitioned rows; labels, L and figures are all the client sees."""
    groups = no_groups(rows.count)
    cluster.wait(rows.parts, context, "read")
    preprocessing, choice = unpack(
        context.stage("whiten", lambda: pack(*prepare(cluster, rows, groups, config, context)))
    )
    Z = apply(cluster, rows, preprocessing, context)
    rows.release()
    labels = pseudo_labels(cluster, Z, config, context)
    triplets = draw_triplets(labels, groups, config, context)
    start = initial_point(Z, config, context)
    cluster.stage = "optimize"
    problem = objective(cluster, Z, triplets, config)
    epoch = epochs(cluster, Z, labels, config, context)
    optimum = optimize(problem, epoch, start, config, context)
    L = order_by_spread(optimum.L, optimum.L.T @ Z.covariance @ optimum.L)
    problem.move_to(L, optimum.theta)
    terms = problem.terms()
    return Result(
        preprocessing=preprocessing,
        choice=choice,
        L=L,
        theta=optimum.theta,
        labels=labels,
        modes=None,
        known=np.zeros(len(labels), bool),
        n_classes=0,
        triplets=triplets,
        weights=terms.w,
        probabilities=terms.p,
        optimum=optimum,
    )


def apply(cluster: Cluster, rows: Rows, preprocessing: Preprocessing, context: Context) -> Prepared:
    """Preprocess every partition where it is."""
    held = cluster.hold(preprocessing)
    parts = [cluster.submit(_apply, part, held) for part in rows.parts]
    mean, covariance = mean_and_covariance(cluster, parts, rows.count, False, context)
    return Prepared(parts, rows.edges, mean, covariance)


def _apply(part: Any, preprocessing: Preprocessing) -> Array:
    return preprocessing.apply(part)


def pseudo_labels(cluster: Cluster, Z: Prepared, config: Config, context: Context) -> Labels:
    """c(.) of the paper on the workers' graph, or the labels that were given."""
    aas = config.clustering
    if isinstance(aas, str):
        aas = AuthorityAscentShift(n_neighbors=config.n_neighbors, metric="cosine")
    if isinstance(aas, AuthorityAscentShift):
        check_supported(aas)
        found = context.stage("labels", lambda: {"labels": _aas(cluster, Z, aas, context)})
        return found["labels"].astype(np.intp)
    if hasattr(aas, "fit_predict"):
        raise ValueError(
            f"clustering={type(aas).__name__}() needs all rows in one place: on Dask use 'aas', "
            "an AuthorityAscentShift, or an array of labels."
        )
    return as_labels(aas, int(Z.edges[-1]))


def _aas(cluster: Cluster, Z: Prepared, aas: AuthorityAscentShift, context: Context) -> Labels:
    graph: Graph = nearest_neighbors(
        cluster, Z.parts, Z.edges, aas.n_neighbors, context, metric=aas.metric, method=aas.method
    )
    logger.info("%d neighbours by %s, recall %.3f", graph.n_neighbors, graph.method, graph.recall)
    return cluster_rows(cluster, graph, aas, context)


def initial_point(Z: Prepared, config: Config, context: Context) -> Start:
    """L and theta to start from; the principal axes come from the moments."""
    l = config.n_components or min(DEFAULT_COMPONENTS, Z.width)
    if isinstance(config.init, str) and config.init == "pca":
        L = complete_axes(spectrum_of(Z.mean, Z.covariance).axes, l)
    else:
        L = initial_subspace(np.empty((0, Z.width)), l, config.init, context.rng("init"))
    theta = weight_function(config.weight).initial(L.shape[0], L.shape[1], context.rng("theta"))
    return L, theta


def objective(
    cluster: Cluster, Z: Prepared, triplets: NDArray[np.integer], config: Config
) -> DaskObjective:
    settings = Settings(config.weight, config.alpha, guard_of(config))
    return DaskObjective(cluster, (Z.parts, Z.edges), triplets, settings)


def epochs(
    cluster: Cluster, Z: Prepared, labels: Labels, config: Config, context: Context
) -> Epoch:
    """Epochs of the stochastic solver on the workers; their rows are dealt for the first one."""
    settings = batch_settings(config)
    dealt: list[Parts] = []

    def epoch(state: EpochState, rng: np.random.Generator) -> None:
        if not dealt:
            dealt.append(deal_rows(cluster, (Z.parts, Z.edges), labels, context.rng("deal")))
        distributed_epoch(cluster, dealt[0], state, settings, rng)

    return epoch
