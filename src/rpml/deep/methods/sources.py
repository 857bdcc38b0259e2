"""Where labels come from: the classes, the images themselves, or clusters of the features."""

from __future__ import annotations

import warnings

import numpy as np

from rpml.deep.batches import ByInstance, ByLabel
from rpml.deep.methods.base import Indices, Knowledge
from rpml.evaluation.metrics import kmeans
from rpml.method.clustering.pseudo_labels import pseudo_labels
from rpml.method.whitening.groups import group_means
from rpml.runtime.context import Context
from rpml.runtime.errors import InputError
from rpml.runtime.rows import unit_rows

NEIGHBORS = 50


def true_classes(known: Knowledge) -> ByLabel:
    """For the supervised methods."""
    if known.classes is None:
        raise InputError("a supervised method needs the classes of the training images")
    return ByLabel(known.classes)


def instances(known: Knowledge) -> ByInstance:
    """Each image a class of its own, seen in several views."""
    return ByInstance(len(known.features))


def aas_clusters(known: Knowledge) -> ByLabel:
    """Authority Ascent Shift, the paper's own, and once more on the means of its clusters."""
    return ByLabel(aas_labels(known, levels=2))


def aas_labels(known: Knowledge, levels: int = 1) -> Indices:
    """AAS on the features, then on the means of what it has put together, level by level.

    The first level joins few of the images of a class (pairs: two thirds right, 3 % found on
    birds), the second five times as many.
    """
    labels, rows = np.arange(len(known.features)), known.features
    for _ in range(levels):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a retuned threshold, every few epochs
            found = pseudo_labels(rows, "aas", NEIGHBORS, Context(known.seed))
        labels = apart(found)[labels]
        rows = unit_rows(group_means(known.features, labels))
    return labels


def apart(labels: Indices) -> Indices:
    """Labels from 0 on without gaps; each row without a label gets one of its own."""
    free = labels < 0
    labels = labels.copy()
    labels[free] = labels.max(initial=-1) + 1 + np.arange(free.sum())
    return np.unique(labels, return_inverse=True)[1]


def kmeans_labels(known: Knowledge, clusters: int) -> Indices:
    """k-means on the features."""
    clusters = min(clusters, max(2, len(known.features) // 4))
    rng = np.random.default_rng([known.seed, clusters])
    return np.asarray(kmeans(known.features, clusters, rng).labels, np.intp)
