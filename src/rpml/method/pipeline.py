"""Algorithm 1 of the paper on one screen, `learn_embedding`, and its steps, `Stages`."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.pseudo_labels import (
    apply_supervision,
    as_clusterer,
    find_exemplars,
    is_array,
    pseudo_labels,
)
from rpml.method.graph.neighbors import Neighbors, nearest_neighbors
from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import PinnedWeights, weight_function
from rpml.method.settings import (
    NO_EVIDENCE,
    NOT_TRAINED,
    Clusters,
    FitInputs,
    FitResult,
    FitSettings,
    Training,
)
from rpml.method.solver.across import judge_training
from rpml.method.solver.conjugate_gradient import OptimizeResult, random_subspace
from rpml.method.solver.training import (
    Batches,
    Start,
    given_subspace,
    order_by_variance,
    prefix_order,
    principal_subspace,
    solve,
)
from rpml.method.triplets.sampling import SAMPLERS, parted_triplets, sample_triplets, uniform
from rpml.method.whitening.choice import Whitening, choose_whitening
from rpml.method.whitening.constants import CROSS_ALPHA, CROSS_TRIPLETS, DEFAULT_COMPONENTS
from rpml.method.whitening.groups import Groups, group_means, no_groups, representatives
from rpml.method.whitening.neighborhoods import shrinkage_share
from rpml.method.whitening.nuisance import Nuisance, comparable_rows, cross_triplets
from rpml.runtime.context import Context, LoopState, Progress
from rpml.runtime.rows import Array, Indices, Labels, sorted_sample
from rpml.runtime.threads import single_blas_thread


@single_blas_thread()
def learn_in_memory(
    X: Array, inputs: FitInputs, settings: FitSettings, context: Context
) -> FitResult:
    """Learn an embedding of the rows of X; if more than `subsample`, only whiten with all rows."""
    stages = Stages(settings, context)
    rows = inputs.sample(settings.subsample, context.rng("subsample"))
    if rows is None:
        return learn_embedding(stages, X, inputs)
    if is_array(settings.clustering):
        settings = replace(settings, clustering=np.asarray(settings.clustering)[rows])
    inputs = inputs.subset(rows, inputs.whitening or stages.whiten(X, inputs))
    result = learn_embedding(Stages(settings, context), X[rows], inputs)
    return result.among(rows, len(X))


@single_blas_thread()
def learn_embedding(stages: Stages, X: Array, inputs: FitInputs) -> FitResult:
    """Learn an embedding of the rows of X.

    Rows -> whitening (not in the paper) -> is there anything to train on? -> k-NN graph -> clusters
    c(.) -> triplets T -> (theta, L) by Riemannian optimization of the triplet objective -> axes of
    L in prefix order (not in the paper). Without evidence the leading axes are the answer, and
    there is neither graph nor triplet; labels, and the exemplars of an update, still name clusters.
    """
    whitening = inputs.whitening or stages.whiten(X, inputs)
    if whitening.discounted is not None:
        whitening = judge_training(whitening, stages.context.rng("across"))
    sampled, vectors = stages.sample(X)
    trains, known = stages.trains(whitening, inputs), inputs.supervision
    L, training, clusters = stages.leading_axes(whitening), None, None
    if trains and (across := stages.across_values(whitening, inputs)) is not None:
        L, training = stages.train_across(X, whitening, across)
        trains = False
    if trains or known is not None:
        Z = whitening.preprocessing.apply(X)
        if not whitening.uses_groups:
            inputs = replace(inputs, groups=no_groups(len(X)))
        basins, graph = stages.cluster(Z, inputs)
        labels = basins if known is None else apply_supervision(basins, known, Z)
        if trains:
            used = inputs if whitening.uses_labels or inputs.continues else inputs.without_labels()
            targets = basins if used.supervision is None else labels
            problem = stages.objective(Z, graph, targets, used)
            L, training = stages.train(problem, whitening, targets, used)
        exemplars = find_exemplars(Z @ L.astype(Z.dtype), basins, labels)
        n_classes = 0 if known is None else known.n_classes
        clusters = Clusters(labels, exemplars, inputs.labeled_mask, n_classes)
    sample = whitening.preprocessing.apply(vectors)
    message = NOT_TRAINED if whitening.choice else NO_EVIDENCE
    return FitResult(
        whitening=whitening,
        L=L,
        sampled=sampled,
        sample=sample @ L.astype(sample.dtype),
        clusters=clusters,
        training=training,
        message=message if training is None else training.optimum.message,
    )


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
        with self.context.reporting("whiten"):
            return choose_whitening(X, inputs, self.settings, self.context)

    def trains(self, whitening: Whitening, inputs: FitInputs) -> bool:
        """Whether to train on triplets: if set, if there are new constraints, or by evidence.

        Rows that are not whitened have no axes in order to fall back to. Labels alone are no
        reason: on most data sets training with them was worse on classes that have none.
        """
        settings, known, choice = self.settings, inputs.supervision, whitening.choice
        if settings.training == "always" or settings.whiten is None:
            return True
        if is_array(settings.clustering):
            return True
        if choice is not None and choice.trains and not (inputs.continues and choice.nuisance):
            return True
        if known is None or inputs.continues:
            return False
        return choice is None or known.has_constraints

    def across_values(self, whitening: Whitening, inputs: FitInputs) -> Nuisance | None:
        """Return the nuisance across whose values to draw triplets, instead of from clusters."""
        constrained = inputs.supervision is not None and inputs.supervision.has_constraints
        if whitening.choice is None or whitening.choice.source != "nuisance" or constrained:
            return None
        return None if is_array(self.settings.clustering) else inputs.nuisance

    def train_across(
        self, X: Array, whitening: Whitening, nuisance: Nuisance
    ) -> tuple[Array, Training]:
        """Train on triplets whose positive has another value of the nuisance than the anchor."""
        rng = self.context.rng("triplets")
        rows = comparable_rows(nuisance.values, rng)
        values, Z = nuisance.values[rows], whitening.preprocessing.apply(X[rows])
        settings = replace(self.settings, alpha=CROSS_ALPHA)
        if settings.solver == "stochastic":  # whose batches are drawn from clusters
            settings = replace(settings, solver="cg")
        stages = replace(self, settings=settings)
        near = Z @ self.leading_axes(whitening).astype(Z.dtype)
        triplets = cross_triplets(near, values, min(CROSS_TRIPLETS, settings.max_triplets), rng)
        problem = TripletObjective(
            Z, triplets, settings.weight, settings.alpha, settings.weight_ridge
        )
        inputs = FitInputs(no_groups(len(rows)))
        L, training = stages.train(problem, whitening, values, inputs)
        return L, replace(training, triplets=rows[triplets])

    def cluster(self, Z: Array, inputs: FitInputs) -> tuple[Labels, Neighbors | None]:
        """Compute c(.) of the paper; a group is clustered as its mean, so its rows agree.

        Returns the labels, and the k-NN graph of the rows or means if AAS is used.
        """
        clusterer = as_clusterer(self.settings.clustering, self.settings.n_neighbors)
        if is_array(clusterer):
            return pseudo_labels(Z, clusterer), None
        points, instance_of_row = _instances(Z, inputs.groups)
        graph = None
        if isinstance(clusterer, AuthorityAscentShift):
            graph = self._search("neighbors", points, clusterer)
        with self.context.reporting("labels"):
            labels = pseudo_labels(points, clusterer, graph)
        return np.asarray(labels[instance_of_row], np.intp), graph

    def _search(self, stage: str, points: Array, graph: AuthorityAscentShift) -> Neighbors:
        """Search with the `n_neighbors`, `metric` and `method` of an AAS.

        A killed search continues after its last stored round; a finished one is loaded.
        """
        context, n = self.context, len(points)
        key = context.key(points, graph.n_neighbors, graph.metric, graph.method)

        def report(share: float) -> object:
            return context.report(Progress(stage, round(share * n), n))

        with context.reporting(stage):
            if saved := context.load(stage, key):
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
        return found

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

    def train(
        self, problem: TripletObjective, whitening: Whitening, labels: Labels, inputs: FitInputs
    ) -> tuple[Array, Training]:
        """Optimize the objective; return L, its axes in prefix order, and how it was found."""
        optimum = self.solve(problem, whitening, labels, inputs)
        L = self.order(problem, optimum, whitening)
        problem.move_to(L, optimum.theta)
        return L, Training(problem.triplets, *problem.weights_and_probabilities(), optimum)

    def solve(
        self, problem: TripletObjective, whitening: Whitening, labels: Labels, inputs: FitInputs
    ) -> OptimizeResult:
        """Run the solver, or continue it from a state that depends on the same."""
        settings, context, known = self.settings, self.context, inputs.supervision
        given = np.empty((0, 3), np.intp)
        if known is not None:
            per_anchor, rng = settings.triplets_per_anchor, context.rng("parted")
            apart = parted_triplets(labels, known.apart, per_anchor, rng)
            given = np.vstack([apart, known.comparisons])
        batches = Batches(problem.X, labels, inputs.labeled_mask, given, settings)
        start, applied = self.start(problem.X, whitening), whitening.preprocessing
        plain = replace(settings, clustering=None, init=None)  # labels and start have these
        plain = replace(plain, callback=None, verbose=0, n_jobs=None)  # change no result
        key = context.key(applied.mean, applied.matrix, whitening.choice, labels, *start, plain)
        return solve(problem, batches, start, settings, context, key)

    def leading_axes(self, whitening: Whitening) -> Array:
        """Return L of a fit that is not trained: the leading axes, or the user's."""
        p, init = whitening.preprocessing.matrix.shape[1], self.settings.init
        l = self.settings.n_components or min(DEFAULT_COMPONENTS, p)
        return np.eye(p, l) if isinstance(init, str) else given_subspace(init, p, l)

    def start(self, Z: Array, whitening: Whitening) -> Start:
        settings, L = self.settings, self.leading_axes(whitening)
        if isinstance(settings.init, str) and settings.init == "random":
            L = random_subspace(len(L), L.shape[1], self.context.rng("init"))
        elif isinstance(settings.init, str) and whitening.choice is None:  # axes not in order
            L = principal_subspace(Z, L.shape[1])
        rng = self.context.rng("theta")
        return L, weight_function(settings.weight).initial(len(L), L.shape[1], rng)

    def order(
        self, problem: TripletObjective, optimum: OptimizeResult, whitening: Whitening
    ) -> Array:
        """Rotate the axes within the subspace so that every prefix is a good smaller embedding."""
        if optimum.n_iter == 0 and whitening.choice is not None:  # already ordered by the whitening
            return optimum.L
        L = order_by_variance(problem.X, optimum.L)
        if optimum.n_iter == 0:
            return L
        share = shrinkage_share(whitening.preprocessing, whitening.choice, L)
        return prefix_order(problem.X, L, problem.triplets, self.settings.alpha, share)

    def sample(self, X: Array) -> tuple[Indices, Array]:
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


def _instances(Z: Array, groups: Groups) -> tuple[Array, Indices]:
    """Return one row per instance, the mean of a group or a single row, and each row's instance."""
    first, instance_of_row = representatives(groups)
    if len(first) == len(Z):
        return Z, np.arange(len(Z))
    return group_means(Z, instance_of_row), instance_of_row
