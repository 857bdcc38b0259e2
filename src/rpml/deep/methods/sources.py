"""Where labels come from: the classes, the images themselves, or clusters of the features."""

from __future__ import annotations

import warnings

import numpy as np

from rpml.context import Context
from rpml.deep.batches import ByInstance, ByLabel
from rpml.deep.methods.base import Indices, Knowledge
from rpml.errors import InputError
from rpml.metrics import kmeans
from rpml.pseudolabels import pseudo_labels

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
    """Authority Ascent Shift, the paper's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a retuned threshold, every few epochs
        labels = pseudo_labels(known.features, "aas", NEIGHBORS, Context(known.seed))
    return ByLabel(labels)


def kmeans_labels(known: Knowledge, clusters: int) -> Indices:
    """k-means on the features."""
    clusters = min(clusters, max(2, len(known.features) // 4))
    rng = np.random.default_rng([known.seed, clusters])
    return np.asarray(kmeans(known.features, clusters, rng).labels, np.intp)
