"""Algorithm 1 of the paper on one screen; `Stages` evaluates each step."""

from dataclasses import replace
from functools import partial

import numpy as np

from rpml.method.clustering.pseudo_labels import apply_supervision, find_exemplars, is_array
from rpml.method.settings import (
    NO_EVIDENCE,
    NOT_TRAINED,
    Clusters,
    FitInputs,
    FitResult,
    FitSettings,
    Training,
)
from rpml.method.stages import Stages
from rpml.method.whitening.groups import no_groups
from rpml.runtime.context import Context
from rpml.runtime.rows import Array
from rpml.runtime.threads import single_blas_thread


@single_blas_thread()
def learn_in_memory(
    X: Array,
    inputs: FitInputs,
    settings: FitSettings,
    context: Context,
    subsample: int | None = None,
) -> FitResult:
    """Learn an embedding of the rows of X; if more than `subsample`, only whiten with all rows."""
    stages = Stages(settings, context)
    rows = inputs.sample(subsample, context.rng("subsample"))
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
    there is neither graph nor triplet; an update still clusters the rows with its exemplars.
    """
    whitening = inputs.whitening or stages.whiten(X, inputs)
    if not whitening.uses_labels and not inputs.continues:
        inputs = inputs.without_labels()
    sampled, vectors = stages.sample(X)
    sample = whitening.preprocessing.apply(vectors)
    trains = stages.settings.trains(whitening, inputs)
    L, message = stages.leading_axes(whitening), NOT_TRAINED if whitening.choice else NO_EVIDENCE
    if not trains and not inputs.continues:
        return FitResult(whitening, L, sampled, sample @ L.astype(sample.dtype), message)
    Z = whitening.preprocessing.apply(X)
    if not whitening.uses_groups:
        inputs = replace(inputs, groups=no_groups(len(X)))
    graph = stages.neighbors(Z, inputs)
    clusters = stages.cluster(Z, graph, inputs)
    known = inputs.supervision
    labels = clusters if known is None else apply_supervision(clusters, known, Z)
    training = None
    if trains:
        problem = stages.objective(Z, graph, labels, inputs)
        batches = partial(stages.batches, Z, labels, inputs)  # for solver="stochastic"
        start = stages.start(Z, whitening)
        optimum = stages.solve(problem, batches, start, whitening, labels)
        L, message = stages.order(Z, optimum, problem, whitening), optimum.message
        problem.move_to(L, optimum.theta)
        training = Training(problem.triplets, *problem.weights_and_probabilities(), optimum)
    n_classes = 0 if known is None else known.n_classes
    exemplars = find_exemplars(Z @ L.astype(Z.dtype), clusters, labels)
    return FitResult(
        whitening=whitening,
        L=L,
        sampled=sampled,
        sample=sample @ L.astype(sample.dtype),
        clusters=Clusters(labels, exemplars, inputs.labeled_mask, n_classes),
        training=training,
        message=message,
    )
