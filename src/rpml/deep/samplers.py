"""Batch samplers: m images per label, two views per image, neighborhoods, triplets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from rpml.method.triplets.batches import batch_sampler

Indices = NDArray[np.intp]
BATCH_SIZE = 120


@dataclass(frozen=True)
class BatchIndices:
    """One mini-batch: image, view and label of each row, and weights for losses that use them."""

    rows: Indices
    views: Indices
    labels: Indices
    weights: NDArray[np.floating] | None = None


class BatchSampler(Protocol):
    """The mini-batches of one epoch; `labels` are their pseudo-labels, if any."""

    @property
    def labels(self) -> Indices | None: ...

    def batches(self, rng: Generator, n_views: int, batch_size: int) -> Iterator[BatchIndices]: ...


@dataclass(frozen=True)
class LabelSampler:
    """`m_per_label` images per label; labels with a single image are skipped."""

    labels: Indices
    m_per_label: int = 4

    def batches(self, rng: Generator, n_views: int, batch_size: int) -> Iterator[BatchIndices]:
        for rows in batch_sampler(self.labels, rng, batch_size, self.m_per_label):
            yield BatchIndices(rows, rng.integers(0, n_views, len(rows)), self.labels[rows])


def in_two_views(images: Indices, n_views: int, rng: Generator) -> BatchIndices:
    """Return two different views of each image; the same view twice if there is only one."""
    rows, first = np.tile(images, 2), rng.integers(0, n_views, len(images))
    step = rng.integers(1, n_views, len(images)) if n_views > 1 else 0
    return BatchIndices(rows, np.concatenate([first, (first + step) % n_views]), rows)


@dataclass(frozen=True)
class InstanceSampler:
    """Two views per image; each image is its own label."""

    n_images: int
    labels: None = None

    def batches(self, rng: Generator, n_views: int, batch_size: int) -> Iterator[BatchIndices]:
        order = rng.permutation(self.n_images)
        for start in range(0, self.n_images, batch_size // 2):
            images = order[start : start + batch_size // 2]
            if len(images) < 2:
                return
            yield in_two_views(images, n_views, rng)


@dataclass(frozen=True)
class NeighborSampler:
    """Two views of random query images and of their nearest neighbors, (n_images, k) indices."""

    neighbors: Indices
    labels: None = None

    def batches(self, rng: Generator, n_views: int, batch_size: int) -> Iterator[BatchIndices]:
        n, k = self.neighbors.shape
        groups = np.hstack([np.arange(n)[:, None], self.neighbors])
        per_batch = max(1, batch_size // (2 * (k + 1)))
        order = rng.permutation(n)
        for start in range(0, n, per_batch):
            images = groups[order[start : start + per_batch]].ravel()
            yield in_two_views(images, n_views, rng)


@dataclass(frozen=True)
class TripletSampler:
    """Consecutive (anchor, positive, negative) rows, drawn from the pools of each anchor.

    `weights` are those of the triplets with each positive.
    """

    anchors: Indices
    positives: Sequence[Indices]
    negatives: Sequence[Indices]
    weights: Sequence[NDArray[np.floating]]
    labels: None = None

    def batches(self, rng: Generator, n_views: int, batch_size: int) -> Iterator[BatchIndices]:
        order = rng.permutation(len(self.anchors))
        per_batch = max(1, batch_size // 3)
        for start in range(0, len(order), per_batch):
            selected = order[start : start + per_batch]
            pairs = [(i, rng.integers(len(self.positives[i]))) for i in selected]
            triplets = [
                (self.anchors[i], self.positives[i][p], rng.choice(self.negatives[i]))
                for i, p in pairs
            ]
            rows = np.array(triplets).ravel()
            weights = np.array([self.weights[i][p] for i, p in pairs])
            yield BatchIndices(rows, rng.integers(0, n_views, len(rows)), rows, weights)
