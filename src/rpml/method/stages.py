"""The stages of a fit, in memory."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.pseudo_labels import (
    as_clusterer,
    is_array,
    pseudo_labels,
    uses_graph,
)
from rpml.method.graph.neighbors import Neighbors, nearest_neighbors
from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import PinnedWeights, weight_function
from rpml.method.settings import FitInputs, FitSettings
from rpml.method.solver.conjugate_gradient import OptimizeResult
from rpml.method.solver.prefix import prefix_order
from rpml.method.solver.stochastic import Batches
from rpml.method.solver.training import (
    Start,
    given_subspace,
    initial_subspace,
    order_by_variance,
    solve,
)
from rpml.method.triplets.sampling import SAMPLERS, parted_triplets, sample_triplets, uniform
from rpml.method.whitening.choice import Whitening, choose_whitening
from rpml.method.whitening.groups import Groups, group_means, representatives
from rpml.method.whitening.neighborhoods import shrinkage_share
from rpml.runtime.context import Context, LoopState, Progress
from rpml.runtime.rows import Array, Labels, sorted_sample

logger = logging.getLogger(__name__)
SAMPLE_ROWS = 10_000


@dataclass(frozen=True)
class Stages:
    """The steps of a fit; each takes what it needs and returns its result.

    `context` has the random streams, progress reports and the checkpoint.
    """

    settings: FitSettings
    context: Context

    def whiten(self, X: Array, inputs: FitInputs) -> Whitening:
        """Choose the whitening."""
        with self.context.reporting("whiten"):
            return choose_whitening(X, inputs, self.settings, self.context)

    def neighbors(self, Z: Array, inputs: FitInputs) -> Neighbors | None:
        """Find the k-NN graph of the rows, or of one mean per group; None if AAS is not used."""
        clusterer = as_clusterer(self.settings.clustering, self.settings.n_neighbors)
        if not uses_graph(clusterer):
            return None
        points = _instances(Z, inputs.groups)[0]
        return self._search("neighbors", points, clusterer)

    def _search(self, stage: str, points: Array, graph: AuthorityAscentShift) -> Neighbors:
        """Search with the `n_neighbors`, `metric` and `method` of an AAS.

        A killed search continues after its last stored round; a finished one is loaded.
        """
        context, n = self.context, len(points)
        key = context.key(points, graph.n_neighbors, graph.metric, graph.method)

        def report(share: float) -> object:
            return context.report(Progress(stage, round(share * n), n))

        with context.reporting(stage):
            if saved := context.load(stage, Neighbors.schema(n), key):
                return Neighbors(saved[0]["indices"], saved[0]["distances"], metric=graph.metric)
            found = nearest_neighbors(
                points,
                graph.n_neighbors,
                metric=graph.metric,
                method=graph.method,
                memory_limit=context.blocks,
                progress=LoopState(context, f"{stage}-rounds", key, report),
            )
            logger.info(
                "%d neighbors by %s, recall %.3f", found.n_neighbors, found.method, found.recall
            )
            if context.store:
                lists = {"indices": found.indices, "distances": found.distances}
                context.save(stage, lists, key=key)
        return Neighbors(found.indices, found.distances, metric=graph.metric)

    def cluster(self, Z: Array, graph: Neighbors | None, inputs: FitInputs) -> Labels:
        """Compute c(.) of the paper; a group is clustered as its mean, so its rows agree."""
        clusterer = as_clusterer(self.settings.clustering, self.settings.n_neighbors)
        if is_array(clusterer):
            return pseudo_labels(Z, clusterer)
        points, instance_of_row = _instances(Z, inputs.groups)
        with self.context.reporting("labels"):
            labels = pseudo_labels(points, clusterer, graph)
        return np.asarray(labels[instance_of_row], np.intp)

    def objective(
        self, Z: Array, graph: Neighbors | None, labels: Labels, inputs: FitInputs
    ) -> TripletObjective:
        """Draw the triplets T of Algorithm 1; return the objective over them.

        Triplets that labels or constraints imply have weight 1.
        """
        settings, rng = self.settings, self.context.rng("triplets")
        sources, sampler = [labels, *supervised_labels(inputs)], uniform
        if settings.sampler != "uniform":
            near = self._row_neighbors(Z, graph)
            sampler = partial(SAMPLERS[settings.sampler], neighbors=near, X=Z)
        drawn = [
            sample_triplets(
                source,
                rng,
                per_anchor=settings.triplets_per_anchor,
                limit=settings.max_triplets // len(sources),
                sampler=sampler if source is labels else uniform,
                groups=inputs.groups,
            )
            for source in sources
        ]
        triplets = np.vstack(drawn)
        weight, known = weight_function(settings.weight), inputs.supervision
        if known is not None:
            apart = parted_triplets(labels, known.apart, settings.triplets_per_anchor, rng)
            triplets = np.vstack([triplets, apart, known.comparisons])
            pinned = known.pinned(triplets)
            pinned[len(triplets) - len(known.comparisons) :] = True
            weight = PinnedWeights(weight, pinned)
        return TripletObjective(Z, triplets, weight, settings.alpha, settings.weight_ridge)

    def _row_neighbors(self, Z: Array, graph: Neighbors | None) -> Neighbors:
        """Return the cosine neighbors of the rows, for samplers of near negatives."""
        if graph is not None and graph.metric == "cosine" and len(graph.indices) == len(Z):
            return graph
        return self._search("row-neighbors", Z, as_clusterer("aas", self.settings.n_neighbors))

    def batches(self, Z: Array, labels: Labels, inputs: FitInputs) -> Batches:
        """Return what the epochs of the stochastic solver learn from."""
        known, given = inputs.supervision, np.empty((0, 3), np.intp)
        if known is not None:
            per_anchor, rng = self.settings.triplets_per_anchor, self.context.rng("parted")
            apart = parted_triplets(labels, known.apart, per_anchor, rng)
            given = np.vstack([apart, known.comparisons])
        return Batches(Z, labels, inputs.labeled_mask, given, self.settings)

    def solve(
        self,
        problem: TripletObjective,
        batches: Callable[[], Batches],
        start: Start,
        whitening: Whitening,
        labels: Labels,
    ) -> OptimizeResult:
        """Run the solver, or continue it from a state that depends on the same."""
        plain = replace(self.settings, clustering=None, init=None)  # labels and start have these
        applied = whitening.preprocessing
        key = self.context.key(
            applied.mean, applied.matrix, whitening.choice, labels, *start, plain
        )
        return solve(problem, batches, start, self.settings, self.context, key)

    def leading_axes(self, whitening: Whitening) -> Array:
        """Return L of a fit that is not trained: the leading axes, or the user's."""
        p, init = whitening.preprocessing.matrix.shape[1], self.settings.init
        l = self.settings.size(p)
        return np.eye(p, l) if isinstance(init, str) else given_subspace(init, p, l)

    def start(self, Z: Array, whitening: Whitening) -> Start:
        """Return the initial L and theta; by default L is the leading axes."""
        settings, context = self.settings, self.context
        l, init = settings.size(Z.shape[1]), settings.init
        if whitening.choice is not None and isinstance(init, str) and init == "pca":
            init = np.eye(Z.shape[1], l)
        L = initial_subspace(Z, l, init, context.rng("init"))
        theta = weight_function(settings.weight).initial(Z.shape[1], l, context.rng("theta"))
        return L, theta

    def order(
        self, Z: Array, optimum: OptimizeResult, problem: TripletObjective, whitening: Whitening
    ) -> Array:
        """Rotate the axes within the subspace so that every prefix is a good smaller embedding."""
        if optimum.n_iter == 0 and whitening.choice is not None:  # already ordered by the whitening
            return optimum.L
        L = order_by_variance(Z, optimum.L)
        if optimum.n_iter == 0:
            return L
        share = shrinkage_share(whitening.preprocessing, whitening.choice, L)
        return prefix_order(Z, L, problem.triplets, self.settings.alpha, share)

    def sample(self, X: Array) -> tuple[NDArray[np.intp], Array]:
        """Return a sample of the rows, by which codes and similarities are calibrated."""
        rows = sorted_sample(len(X), SAMPLE_ROWS, self.context.rng("sample"))
        return rows, X[rows]


def supervised_labels(inputs: FitInputs) -> list[Labels]:
    """Return labels to draw triplets from besides the pseudo-labels: groups and given classes."""
    sources = []
    if inputs.groups.max() >= 0:
        sources.append(inputs.groups)
    labeled = inputs.labeled_mask
    if inputs.classes is not None and 0 < labeled.sum() < len(labeled):
        sources.append(np.where(labeled, inputs.classes, -1))
    return sources


def _instances(Z: Array, groups: Groups) -> tuple[Array, NDArray[np.intp]]:
    """Return one row per instance, the mean of a group or a single row, and each row's instance."""
    first, instance_of_row = representatives(groups)
    if len(first) == len(Z):
        return Z, np.arange(len(Z))
    return group_means(Z, instance_of_row), instance_of_row
