"""Updates of a fitted model with new rows, aligned with its previous embedding.

New rows are clustered together with the model's exemplars. A cluster with an exemplar keeps its
label, others are new. If old rows are available, a bounded sample of them updates the whitening
too, unless it was learned with labels or other knowledge, which an update does not have. The result
is rotated as close as possible to the previous embedding; the drift says whether stored vectors are
comparable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rpml.method.clustering.pseudo_labels import Exemplars, is_array
from rpml.method.knowledge.constraints import Supervision
from rpml.method.pipeline import Stages, learn_embedding
from rpml.method.settings import Clusters, FitInputs, FitResult, FitSettings
from rpml.method.whitening.choice import Whitening
from rpml.method.whitening.groups import no_groups
from rpml.runtime.context import Context
from rpml.runtime.rows import Array, Indices, to_common_scale, unit_rows
from rpml.runtime.threads import single_blas_thread

if TYPE_CHECKING:
    from rpml.estimator.embedding import Embedding

OLD_SHARE, MIN_OLD = 2, 2000
ENOUGH = 4  # rows per component to learn a whitening from


def update(
    before: Embedding,
    known: tuple[Exemplars, Array],
    X_new: Array,
    X_old: Array | None,
    settings: FitSettings,
    context: Context,
) -> tuple[FitResult, Array, float]:
    """Learn from new rows, the exemplars and, if given, a sample of old rows.

    `known` are the exemplars and their vectors. Returns the result; its rows, which are X_new, the
    sampled old rows and the exemplars; and the drift, the mean of 1 - cosine between their
    embedding before and after.
    """
    old = X_new[:0]
    if X_old is not None:
        old = X_old[sample_old(len(X_old), len(X_new), context.rng("old"))]
    exemplars, vectors = known
    read = np.vstack([np.asarray(part, vectors.dtype) for part in (X_new, old, vectors)])
    X, scale = to_common_scale(read, settings.normalize_input or settings.whiten is None)
    first_exemplar = len(X) - len(vectors)
    if is_array(settings.clustering):  # of the rows of the previous fit
        settings = replace(settings, clustering="aas")
    stages = Stages(settings, context)
    applied = before.preprocessing_.for_rows_times(1 / scale)
    whitening = Whitening(applied, before.whitening_)
    if X_old is None or whitening.needs_knowledge:  # which an update does not have
        stages = replace(stages, settings=replace(settings, init=before.components_.T))
    else:  # without the exemplars, which may be many and whose labels are uncertain
        rows = X[:first_exemplar] if first_exemplar >= ENOUGH * len(before.components_) else X
        whitening = stages.whiten(rows, FitInputs(no_groups(len(rows))))
    # the labels of the exemplars are known for the last rows
    classes = np.concatenate([np.full(first_exemplar, -1, np.intp), exemplars.labels])
    nothing = np.empty((0, 3), np.intp)
    supervision = Supervision(classes, int(classes.max()) + 1, nothing[:, :2], nothing)
    inputs = FitInputs(no_groups(len(X)), supervision, whitening=whitening, continues=True)
    result = learn_embedding(stages, X, inputs)
    rotation, drift = align(
        result.whitening.preprocessing.embed(X, result.L.T, unit=True),
        applied.embed(X, before.components_, unit=True),
    )
    assert result.clusters is not None
    clusters = replace(
        result.clusters,
        exemplars=_merged(exemplars, result.clusters, first_exemplar),
        labeled_mask=result.clusters.labeled_mask & (result.clusters.labels < before.n_classes_),
        n_classes=before.n_classes_,
    )
    result = replace(result, L=result.L @ rotation, clusters=clusters)
    return result.of_rows_times(scale), read, drift


def sample_old(n_old: int, n_new: int, rng: np.random.Generator) -> Indices:
    """Sample old rows in proportion to the new ones, which then determine the cost."""
    most = max(MIN_OLD, OLD_SHARE * n_new)
    return np.sort(rng.permutation(n_old)[:most])


def _merged(old: Exemplars, result: Clusters, first_exemplar: int) -> Exemplars:
    """The old exemplars, grown by the rows that joined their label, and those of new labels."""
    count = int(old.labels.max(initial=-1)) + 1
    joined = result.labels[:first_exemplar]
    grown = np.bincount(joined[(joined >= 0) & (joined < count)], minlength=count)
    share = old.sizes / np.maximum(np.bincount(old.labels, old.sizes, count)[old.labels], 1)
    sizes = old.sizes + np.round(grown[old.labels] * share).astype(np.intp)
    new = result.exemplars.subset(result.exemplars.labels >= count)
    return Exemplars(
        np.concatenate([first_exemplar + np.arange(len(old.rows)), new.rows]),
        np.concatenate([old.labels, new.labels]),
        np.concatenate([sizes, new.sizes]),
    )


@single_blas_thread()
def align(Y: Array, onto: Array) -> tuple[Array, float]:
    """Orthogonal Procrustes: the rotation that brings Y closest to `onto`, and the drift left."""
    Y, onto = unit_rows(Y.astype(np.float64)), unit_rows(onto.astype(np.float64))
    left, _, right = np.linalg.svd(Y.T @ onto)
    rotation = np.asarray(left @ right)
    cosines = np.einsum("ij,ij->i", Y @ rotation, onto)
    return rotation, max(0.0, float(np.mean(1 - cosines)))
