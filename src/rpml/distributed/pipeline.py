"""The whole method on a cluster, stage by stage; compare `rpml.method.pipeline.learn`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.aas import check_supported, cluster_rows
from rpml.distributed.classes import apply_classes, mean_things
from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.evaluator import DaskObjective, Settings
from rpml.distributed.exemplars import find_exemplars
from rpml.distributed.kept import keep_graph, kept_graph
from rpml.distributed.knn import nearest_neighbors
from rpml.distributed.source import PartitionedRows
from rpml.distributed.stochastic import deal_rows, distributed_epoch
from rpml.distributed.take import take
from rpml.distributed.triplets import Named, draw_triplets
from rpml.distributed.whiten import mean_and_covariance, prepare
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.pseudo_labels import Labels, as_labels
from rpml.method.objective.weights import weight_function
from rpml.method.pipeline import (
    batch_settings,
    nest,
    no_groups,
    optimize,
    pack,
    ridge_of,
    started,
    unpack,
)
from rpml.method.settings import DEFAULT_COMPONENTS, FitResult, FitSettings
from rpml.method.solver.prefix import some_triplets
from rpml.method.solver.stochastic import Epoch, EpochState
from rpml.method.solver.training import complete_axes, initial_subspace, order_by_spread
from rpml.method.supervision.constraints import Supervision
from rpml.method.whitening.groups import Groups, representatives
from rpml.method.whitening.linear_map import Preprocessing, spectrum_of
from rpml.method.whitening.neighborhoods import shrinkage_share
from rpml.runtime.context import Arrays, Context

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
    def rows(self) -> tuple[list[Task], NDArray[np.int64]]:
        """As the stages take them."""
        return self.parts, self.edges

    @property
    def width(self) -> int:
        return len(self.mean)


def learn(
    cluster: Cluster,
    rows: PartitionedRows,
    config: FitSettings,
    context: Context,
    groups: Groups,
    known: Supervision | None = None,
) -> FitResult:
    """Learn an embedding of partitioned rows; what the client sees is a number a row at most."""
    cluster.wait(rows.parts, context, "read")
    preprocessing, choice = unpack(
        context.stage(
            "whiten", lambda: pack(*prepare(cluster, rows, groups, config, context, known))
        )
    )
    Z = apply(cluster, rows, preprocessing, context)
    config = started(config, choice, Z.width)
    rows.release()
    groups = groups if choice is None or "groups" in choice.source else no_groups(rows.count)
    basins = pseudo_labels(cluster, Z, groups, config, context)
    labels = basins if known is None else apply_classes(cluster, Z.rows, basins, known)
    shards = draw_triplets(cluster, Z.edges, Named(labels, groups, known), config, context)
    start = initial_point(Z, config, context)
    cluster.stage = "optimize"
    settings = Settings(config.weight, config.alpha, ridge_of(config))
    problem = DaskObjective(cluster, Z.rows, shards, settings)
    sure = np.zeros(rows.count, bool) if known is None else known.is_classed()
    epoch = epochs(cluster, Z, labels, sure, config, context)
    optimum = optimize(problem, epoch, start, config, context)
    triplets = problem.triplets()
    L = order_by_spread(optimum.L, optimum.L.T @ Z.covariance @ optimum.L)
    L = nest_axes(cluster, Z, L, triplets, config, shrinkage_share(preprocessing, choice, L))
    problem.move_to(L, optimum.theta)
    terms = problem.terms()
    return FitResult(
        preprocessing=preprocessing,
        choice=choice,
        L=L,
        theta=optimum.theta,
        labels=labels,
        exemplars=find_exemplars(cluster, Z.rows, L, basins, labels),
        known=sure,
        n_classes=0 if known is None else known.n_classes,
        triplets=triplets,
        weights=terms.w,
        probabilities=terms.p,
        optimum=optimum,
    )


def apply(
    cluster: Cluster, rows: PartitionedRows, preprocessing: Preprocessing, context: Context
) -> Prepared:
    """Preprocess every partition where it is."""
    held = cluster.hold(preprocessing)
    parts = [cluster.submit(_apply, part, held) for part in rows.parts]
    mean, covariance = mean_and_covariance(cluster, parts, rows.count, False, context)
    return Prepared(parts, rows.edges, mean, covariance)


def _apply(part: Any, preprocessing: Preprocessing) -> Array:
    return preprocessing.apply(part)


def pseudo_labels(
    cluster: Cluster, Z: Prepared, groups: Groups, config: FitSettings, context: Context
) -> Labels:
    """c(.) of the paper on the workers' graph, or the labels that were given.

    A group is one point, its mean, so that its rows share a label.
    """
    aas = config.clustering
    if isinstance(aas, str):
        aas = AuthorityAscentShift(n_neighbors=config.n_neighbors, metric="cosine")
    if not hasattr(aas, "fit_predict"):
        return as_labels(aas, int(Z.edges[-1]))
    if not isinstance(aas, AuthorityAscentShift):
        raise ValueError(
            f"clustering={type(aas).__name__}() needs all rows in one place: on Dask use 'aas', "
            "an AuthorityAscentShift, or an array of labels."
        )
    check_supported(aas)
    if groups.max() < 0:
        return _aas(cluster, Z.rows, aas, context)
    of_row = representatives(groups)[1]
    return _aas(cluster, mean_things(cluster, Z.rows, of_row), aas, context)[of_row]


def _aas(
    cluster: Cluster,
    rows: tuple[list[Task], NDArray[np.int64]],
    aas: AuthorityAscentShift,
    context: Context,
) -> Labels:
    """Neighbours, found or kept; then the ascent."""

    def compute() -> Arrays:
        graph = kept_graph(cluster, rows[1], context)
        if graph is None:
            graph = nearest_neighbors(
                cluster, *rows, aas.n_neighbors, context, metric=aas.metric, method=aas.method
            )
            keep_graph(cluster, graph, context)
        found = (graph.n_neighbors, graph.method, graph.recall)
        logger.info("%d neighbours by %s, recall %.3f", *found)
        return {"labels": cluster_rows(cluster, graph, aas, context)}

    return context.stage("labels", compute)["labels"].astype(np.intp)


def initial_point(Z: Prepared, config: FitSettings, context: Context) -> Start:
    """L and theta to start from; the principal axes come from the moments."""
    l = config.n_components or min(DEFAULT_COMPONENTS, Z.width)
    if isinstance(config.init, str) and config.init == "pca":
        L = complete_axes(spectrum_of(Z.mean, Z.covariance).axes, l)
    else:
        L = initial_subspace(np.empty((0, Z.width)), l, config.init, context.rng("init"))
    theta = weight_function(config.weight).initial(L.shape[0], L.shape[1], context.rng("theta"))
    return L, theta


def nest_axes(
    cluster: Cluster,
    Z: Prepared,
    L: Array,
    triplets: NDArray[np.integer],
    config: FitSettings,
    shrinkage: Array,
) -> Array:
    """`nest` on a worker, which is sent the rows that a part of the triplets read."""
    rows, places = some_triplets(triplets)
    some = take(cluster, *Z.rows, rows)
    return np.asarray(cluster.value(cluster.submit(nest, some, L, places, config, shrinkage)))


def epochs(
    cluster: Cluster,
    Z: Prepared,
    labels: Labels,
    sure: NDArray[np.bool_],
    config: FitSettings,
    context: Context,
) -> Epoch:
    """Epochs of the stochastic solver on the workers; their rows are dealt for the first one."""
    settings = batch_settings(config)
    dealt: list[Task] = []

    def epoch(state: EpochState, rng: np.random.Generator) -> None:
        if not dealt:
            dealt.extend(deal_rows(cluster, Z.rows, labels, sure, context.rng("deal")))
        distributed_epoch(cluster, dealt, state, settings, rng)

    return epoch
