"""The stages of a fit on a Dask cluster, run by `rpml.method.pipeline.learn`."""

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.aas import DaskAscent, check_supported
from rpml.distributed.classes import apply_classes, mean_instances
from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.evaluator import DaskObjective, ObjectiveSettings
from rpml.distributed.exemplars import find_exemplars
from rpml.distributed.graph_store import load_graph, save_graph
from rpml.distributed.knn import Graph, KnnSettings, nearest_neighbors
from rpml.distributed.source import PartitionedRows
from rpml.distributed.stochastic import deal_rows, distributed_epoch
from rpml.distributed.take import Partitions, take
from rpml.distributed.triplets import draw_triplets
from rpml.distributed.whiten import choose_whitening, mean_and_covariance
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.ascent import usable_labels
from rpml.method.clustering.exemplars import Exemplars
from rpml.method.clustering.pseudo_labels import as_clusterer, is_array, labels_schema
from rpml.method.objective.weights import weight_function
from rpml.method.pipeline import SAMPLE_ROWS, Problem
from rpml.method.settings import FitInputs, FitSettings
from rpml.method.solver.conjugate_gradient import OptimizeResult
from rpml.method.solver.prefix import prefix_order, triplet_subset
from rpml.method.solver.stochastic import Epoch, EpochState
from rpml.method.solver.training import Start, complete_axes, initial_subspace, order_by_spread
from rpml.method.supervision.constraints import Supervision
from rpml.method.supervision.labels import as_labels
from rpml.method.whitening.choice import Whitening
from rpml.method.whitening.groups import representatives
from rpml.method.whitening.linear_map import Preprocessing, spectrum_of
from rpml.method.whitening.neighborhoods import shrinkage_share
from rpml.runtime.context import Arrays, Context
from rpml.runtime.rows import Array, Labels, sorted_sample

logger = logging.getLogger(__name__)


def check_available(settings: FitSettings) -> None:
    """Raise ValueError for settings that need all rows in one place."""
    if settings.sampler != "uniform":
        raise ValueError(
            f"sampler={settings.sampler!r} is not available on Dask: use sampler='uniform'."
        )
    clusterer = as_clusterer(settings.clustering, settings.n_neighbors)
    if is_array(clusterer):
        return
    if not isinstance(clusterer, AuthorityAscentShift):
        raise ValueError(
            f"clustering={type(clusterer).__name__}() needs all rows in one place: on Dask use "
            "'aas', an AuthorityAscentShift, or an array of labels."
        )
    check_supported(clusterer)


@dataclass(frozen=True)
class Prepared:
    """The preprocessed rows on the workers, and their moments."""

    parts: list[Task]
    edges: NDArray[np.int64]
    mean: Array
    covariance: Array
    key: str
    """Digest of their whitening, for the checkpoint."""

    @property
    def rows(self) -> Partitions:
        """Partitions and edges, as the stages take them."""
        return self.parts, self.edges

    @property
    def width(self) -> int:
        return len(self.mean)


@dataclass(frozen=True)
class DaskStages:
    """Stages on rows on the workers; the client receives at most one number per row."""

    workers: Cluster
    settings: FitSettings
    context: Context

    def whiten(self, X: PartitionedRows, inputs: FitInputs) -> Whitening:
        """Choose the whitening from moments of all rows and a sample of them."""
        chosen = self.settings.for_whitening

        def compute() -> Arrays:
            whitening = choose_whitening(self.workers, X, inputs, chosen, self.context)
            return whitening.to_arrays()

        dependencies = (X.shape, inputs.groups, inputs.classes, chosen, self.context.seed)
        schema = Whitening.schema(X.shape[1], chosen)
        return Whitening.from_arrays(self.context.stage("whiten", schema, compute, *dependencies))

    def apply(self, whitening: Whitening, X: PartitionedRows) -> Prepared:
        """Preprocess every partition in place."""
        parts = self.workers.each(_apply, X.parts, self.workers.hold(whitening.preprocessing))
        moments = mean_and_covariance(self.workers, parts, X.count, False, self.context)
        X.release()
        return Prepared(parts, X.edges, *moments, self.context.key(*whitening.dependencies()))

    def neighbors(self, Z: Prepared, inputs: FitInputs) -> Graph | None:
        """Find the graph of the rows, or of one mean per group, or load it from the checkpoint."""
        aas = as_clusterer(self.settings.clustering, self.settings.n_neighbors)
        if not hasattr(aas, "fit_predict"):
            return None
        points = Z.rows
        if inputs.groups.max() >= 0:
            points = mean_instances(self.workers, Z.rows, representatives(inputs.groups)[1])
        key = self.context.key(Z.key, inputs.groups, aas.n_neighbors, aas.metric, aas.method)
        graph = load_graph(self.workers, points[1], self.context, key)
        if graph is None:
            knn = KnnSettings(aas.n_neighbors, aas.metric, aas.method)
            graph = nearest_neighbors(self.workers, *points, knn, self.context)
            save_graph(self.workers, graph, self.context, key)
        figures = (graph.n_neighbors, graph.method, graph.recall)
        logger.info("%d neighbors by %s, recall %.3f", *figures)
        return graph

    def cluster(self, Z: Prepared, graph: Graph | None, inputs: FitInputs) -> Labels:
        """Compute c(.) of the paper on the workers, or return the user's pseudo-labels."""
        aas = as_clusterer(self.settings.clustering, self.settings.n_neighbors)
        if graph is None:
            return as_labels(aas, int(Z.edges[-1]))

        def compute() -> Arrays:
            ascent = DaskAscent.prepare(self.workers, graph, aas, self.context)
            return {"labels": usable_labels(ascent, aas.epsilon)}

        schema = labels_schema(int(graph.edges[-1]))
        arrays = self.context.stage("labels", schema, compute, Z.key, inputs.groups, aas)
        return arrays["labels"].astype(np.intp)[representatives(inputs.groups)[1]]

    def supervise(self, Z: Prepared, clusters: Labels, known: Supervision) -> Labels:
        return apply_classes(self.workers, Z.rows, clusters, known)

    def objective(
        self, Z: Prepared, graph: Graph | None, labels: Labels, inputs: FitInputs
    ) -> DaskObjective:
        """Draw triplets on the workers; return the objective over them."""
        settings = self.settings
        shards = draw_triplets(self.workers, Z.edges, labels, inputs, settings, self.context)
        self.workers.stage = "optimize"
        chosen = ObjectiveSettings(settings.weight, settings.alpha, settings.ridge)
        return DaskObjective(self.workers, Z.rows, shards, chosen)

    def epochs(self, Z: Prepared, labels: Labels, inputs: FitInputs) -> Epoch:
        """Return the function that runs an epoch; rows are distributed before the first one."""
        dealt: list[Task] = []

        def epoch(state: EpochState, rng: np.random.Generator) -> None:
            if not dealt:
                seeds = self.context.rng("deal")
                dealt.extend(deal_rows(self.workers, Z.rows, labels, inputs.labeled_mask, seeds))
            distributed_epoch(self.workers, dealt, state, self.settings.for_batches, rng)

        return epoch

    def start(self, Z: Prepared, whitening: Whitening) -> Start:
        """Return the initial L and theta; the principal axes come from the moments."""
        settings, context = self.settings, self.context
        l, init = settings.size(Z.width), settings.init
        if isinstance(init, str) and init == "pca":
            L = complete_axes(spectrum_of(Z.mean, Z.covariance).axes, l)
            if whitening.ranks_axes:
                L = np.eye(Z.width, l)
        else:
            L = initial_subspace(np.empty((0, Z.width)), l, init, context.rng("init"))
        theta = weight_function(settings.weight).initial(Z.width, l, context.rng("theta"))
        return L, theta

    def order(
        self, Z: Prepared, optimum: OptimizeResult, problem: Problem, whitening: Whitening
    ) -> Array:
        """Compute the prefix order on one worker, from the rows of a sample of the triplets."""
        if optimum.n_iter == 0 and whitening.ranks_axes:
            return optimum.L
        L = order_by_spread(optimum.L, optimum.L.T @ Z.covariance @ optimum.L)
        if optimum.n_iter == 0:
            return L
        share = shrinkage_share(whitening.preprocessing, whitening.choice, L)
        rows, places = triplet_subset(problem.triplets)
        subset = take(self.workers, *Z.rows, rows)
        task = self.workers.submit(prefix_order, subset, L, places, self.settings.alpha, share)
        return np.asarray(self.workers.value(task))

    def exemplars(self, Z: Prepared, L: Array, clusters: Labels, labels: Labels) -> Exemplars:
        return find_exemplars(self.workers, Z.rows, L, clusters, labels)

    def sample(self, X: PartitionedRows) -> tuple[NDArray[np.intp], Array]:
        """Return a sample of the rows, by which codes and similarities are calibrated."""
        rows = sorted_sample(X.count, SAMPLE_ROWS, self.context.rng("sample"))
        return rows, np.asarray(self.workers.value(take(self.workers, X.parts, X.edges, rows)))


def _apply(part: Array, preprocessing: Preprocessing) -> Array:
    return preprocessing.apply(part)
