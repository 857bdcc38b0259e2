"""Batch samplers by true classes, by image and by clusters of the features."""

import warnings

import numpy as np

from rpml.deep.methods.base import FeatureBank
from rpml.deep.samplers import Indices, InstanceSampler, LabelSampler
from rpml.evaluation.metrics import kmeans
from rpml.method.clustering.pseudo_labels import as_clusterer, pseudo_labels
from rpml.method.whitening.groups import group_means
from rpml.runtime.errors import InputError
from rpml.runtime.rows import unit_rows

N_NEIGHBORS = 50


def class_sampler(bank: FeatureBank) -> LabelSampler:
    """Batches by true class, for supervised methods."""
    if bank.classes is None:
        raise InputError("a supervised method needs the classes of the training images")
    return LabelSampler(bank.classes)


def instance_sampler(bank: FeatureBank) -> InstanceSampler:
    """Two views per image; each image is its own class."""
    return InstanceSampler(len(bank.features))


def aas_sampler(bank: FeatureBank) -> LabelSampler:
    """Batches by AAS cluster, two levels of it."""
    return LabelSampler(aas_labels(bank, n_levels=2))


def aas_labels(bank: FeatureBank, n_levels: int = 1) -> Indices:
    """Authority Ascent Shift on the features, then on the means of its clusters, level by level.

    The first level joins few of the images of a class: on CUB-200-2011 two thirds of its pairs are
    correct and 3% of the pairs of a class are joined; the second level joins five times as many.
    """
    labels, rows = np.arange(len(bank.features)), bank.features
    for _ in range(n_levels):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a retuned threshold, every few epochs
            clusters = pseudo_labels(rows, as_clusterer("aas", N_NEIGHBORS))
        labels = label_singletons(clusters)[labels]
        rows = unit_rows(group_means(bank.features, labels))
    return labels


def label_singletons(labels: Indices) -> Indices:
    """Consecutive labels from 0; each row with the label -1 gets a label of its own."""
    unlabeled = labels < 0
    labels = labels.copy()
    labels[unlabeled] = labels.max(initial=-1) + 1 + np.arange(unlabeled.sum())
    return np.unique(labels, return_inverse=True)[1]


def kmeans_labels(bank: FeatureBank, n_clusters: int) -> Indices:
    """k-means on the features."""
    n_clusters = min(n_clusters, max(2, len(bank.features) // 4))
    rng = np.random.default_rng([bank.seed, n_clusters])
    return np.asarray(kmeans(bank.features, n_clusters, rng).labels, np.intp)
