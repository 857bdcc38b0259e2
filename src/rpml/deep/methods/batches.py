"""The mini-batches of an epoch: m images per label, or two views per image."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rpml.evaluation.metrics import kmeans
from rpml.method.clustering.pseudo_labels import as_clusterer, pseudo_labels
from rpml.method.triplets.batches import batch_sampler
from rpml.method.whitening.groups import group_means
from rpml.runtime.errors import InputError
from rpml.runtime.rows import unit_rows

Indices = NDArray[np.intp]
N_NEIGHBORS = 50  # of Authority Ascent Shift
PER_LABEL = 4  # images
CLUSTERS = 300  # k-means; a multiple of the number of classes, as DeepCluster advises


@dataclass(frozen=True)
class FeatureBank:
    """What a batch sampler is made from."""

    features: NDArray[np.float32]
    """(n_images, n_features) whitened, a running mean over views and the epochs so far."""
    classes: Indices | None
    """(n_images,) true classes, for supervised methods only."""
    seed: int


@dataclass(frozen=True)
class BatchIndices:
    """One mini-batch: image, view and label of each row, and weights for losses that use them."""

    rows: Indices
    views: Indices
    labels: Indices
    weights: NDArray[np.floating] | None = None


@dataclass(frozen=True)
class BatchSampler:
    """The mini-batches of one epoch."""

    batches: Callable[[Generator, int, int], Iterator[BatchIndices]]
    """Called with a random generator, the number of views and the rows per batch."""
    labels: Indices | None = None
    """(n_images,) pseudo-labels, if the batches are made from them."""


def label_sampler(labels: Indices) -> BatchSampler:
    """`PER_LABEL` images per label; labels with a single image are skipped."""

    def batches(rng: Generator, n_views: int, batch_size: int) -> Iterator[BatchIndices]:
        for rows in batch_sampler(labels, rng, batch_size, PER_LABEL):
            yield BatchIndices(rows, rng.integers(0, n_views, len(rows)), labels[rows])

    return BatchSampler(batches, labels)


def class_sampler(bank: FeatureBank) -> BatchSampler:
    """Batches by true class, for supervised methods."""
    if bank.classes is None:
        raise InputError("a supervised method needs the classes of the training images")
    return label_sampler(bank.classes)


def aas_sampler(bank: FeatureBank) -> BatchSampler:
    """Batches by AAS cluster, two levels of it."""
    return label_sampler(aas_labels(bank, n_levels=2))


def kmeans_sampler(bank: FeatureBank) -> BatchSampler:
    """Batches by k-means cluster."""
    return label_sampler(kmeans_labels(bank, CLUSTERS))


def instance_sampler(bank: FeatureBank) -> BatchSampler:
    """Two views per image; each image is its own label."""
    return BatchSampler(partial(instance_batches, len(bank.features)))


def instance_batches(
    n_images: int, rng: Generator, n_views: int, batch_size: int
) -> Iterator[BatchIndices]:
    """Yield batches of two views per image, in random order."""
    order = rng.permutation(n_images)
    for start in range(0, n_images, batch_size // 2):
        images = order[start : start + batch_size // 2]
        if len(images) < 2:
            return
        yield in_two_views(images, n_views, rng)


def in_two_views(images: Indices, n_views: int, rng: Generator) -> BatchIndices:
    """Return two different views of each image; the same view twice if there is only one."""
    rows, first = np.tile(images, 2), rng.integers(0, n_views, len(images))
    step = rng.integers(1, n_views, len(images)) if n_views > 1 else 0
    return BatchIndices(rows, np.concatenate([first, (first + step) % n_views]), rows)


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
