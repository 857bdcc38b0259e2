"""Algorithm 1 of the paper, stage by stage; `Stages` evaluates each of them."""

from functools import partial
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rpml.method.clustering.exemplars import Exemplars
from rpml.method.objective.triplet_loss import TripletTerms
from rpml.method.settings import (
    NOT_TRAINED,
    Clusters,
    FitInputs,
    FitResult,
    FitSettings,
    Training,
)
from rpml.method.solver.conjugate_gradient import Evaluator, OptimizeResult
from rpml.method.solver.stochastic import Epoch
from rpml.method.solver.training import Start, solve
from rpml.method.supervision.constraints import Supervision
from rpml.method.whitening.choice import Whitening
from rpml.runtime.blas import single_blas_thread
from rpml.runtime.context import Context
from rpml.runtime.rows import Array, Labels

SAMPLE_ROWS = 10_000
Features = TypeVar("Features", contravariant=True)
"""The input rows: an array, or partitions on a cluster."""
Rows = TypeVar("Rows")
"""The preprocessed rows."""
Graph = TypeVar("Graph")
"""Their k-NN graph."""


class Problem(Evaluator, Protocol):
    """The objective over the triplets of a fit."""

    @property
    def triplets(self) -> NDArray[np.integer]: ...

    def terms(self) -> TripletTerms: ...


class Stages(Protocol[Features, Rows, Graph]):
    """The stages of a fit; each takes what it needs and returns its result.

    `rpml.method.local.LocalStages` evaluates them in memory, `rpml.distributed.stages.DaskStages`
    on the workers of a cluster.
    """

    def whiten(self, X: Features, inputs: FitInputs) -> Whitening: ...

    def apply(self, whitening: Whitening, X: Features) -> Rows: ...

    def neighbors(self, Z: Rows, inputs: FitInputs) -> Graph: ...

    def cluster(self, Z: Rows, graph: Graph, inputs: FitInputs) -> Labels: ...

    def supervise(self, Z: Rows, clusters: Labels, known: Supervision) -> Labels: ...

    def objective(self, Z: Rows, graph: Graph, labels: Labels, inputs: FitInputs) -> Problem: ...

    def epochs(self, Z: Rows, labels: Labels, inputs: FitInputs) -> Epoch: ...

    def start(self, Z: Rows, whitening: Whitening) -> Start: ...

    def order(
        self, Z: Rows, optimum: OptimizeResult, problem: Problem, whitening: Whitening
    ) -> Array: ...

    def exemplars(self, Z: Rows, L: Array, clusters: Labels, labels: Labels) -> Exemplars: ...

    def sample(self, X: Features) -> tuple[NDArray[np.intp], Array]: ...


@single_blas_thread()
def learn(
    stages: Stages[Features, Rows, Graph],
    X: Features,
    inputs: FitInputs,
    settings: FitSettings,
    context: Context,
) -> FitResult:
    """Learn an embedding of the rows of X.

    Rows -> whitening (not in the paper) -> is there anything to train on? -> k-NN graph -> clusters
    c(.) -> triplets T -> (theta, L) by Riemannian optimization of the triplet objective -> axes of
    L in prefix order (not in the paper). Without evidence the leading axes are the answer, and
    there is neither graph nor triplet; an update still clusters the rows with its exemplars.
    """
    whitening = inputs.whitening or stages.whiten(X, inputs)
    sampled, vectors = stages.sample(X)
    sample = whitening.preprocessing.apply(vectors)
    trains = settings.trains(whitening, inputs)
    if not trains and not inputs.continues:
        L = settings.leading_axes(whitening)
        return FitResult(whitening, L, sampled, sample @ L.astype(sample.dtype))
    Z = stages.apply(whitening, X)
    if not whitening.uses_groups:
        inputs = inputs.without_groups()
    graph = stages.neighbors(Z, inputs)
    clusters = stages.cluster(Z, graph, inputs)
    known = inputs.supervision
    labels = clusters if known is None else stages.supervise(Z, clusters, known)
    training, message, L = None, NOT_TRAINED, settings.leading_axes(whitening)
    if trains:
        problem = stages.objective(Z, graph, labels, inputs)
        epochs = partial(stages.epochs, Z, labels, inputs)  # for solver="stochastic"
        start = stages.start(Z, whitening)
        key = context.key(
            *whitening.dependencies(), labels, *start, settings.for_solver, settings.for_batches
        )
        optimum = solve(problem, epochs, start, settings.for_solver, context, key)
        L, message = stages.order(Z, optimum, problem, whitening), optimum.message
        problem.move_to(L, optimum.theta)
        terms = problem.terms()
        training = Training(problem.triplets, terms.w, terms.p, optimum)
    n_classes = 0 if known is None else known.n_classes
    exemplars = stages.exemplars(Z, L, clusters, labels)
    return FitResult(
        whitening=whitening,
        L=L,
        sampled=sampled,
        sample=sample @ L.astype(sample.dtype),
        clusters=Clusters(labels, exemplars, inputs.labeled_mask, n_classes),
        training=training,
        message=message,
    )
