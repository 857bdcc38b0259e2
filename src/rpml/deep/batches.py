"""Mini-batches of 120: classes x instances, images x views, neighbourhoods, triplets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rpml.method.triplets.sampling import batch_sampler

Indices = NDArray[np.intp]
BATCH = 120


@dataclass(frozen=True)
class Draw:
    """Which view of which image, and the label that each has in this batch."""

    rows: Indices
    views: Indices
    labels: Indices


class Plan(Protocol):
    """How an epoch goes through the images; `labels` are the pseudo-labels behind it, if any."""

    @property
    def labels(self) -> Indices | None: ...

    def batches(self, rng: np.random.Generator, views: int, size: int) -> Iterator[Draw]: ...


@dataclass(frozen=True)
class ByLabel:
    """Several images of each label a batch; every image whose label has two comes once."""

    labels: Indices
    per_label: int = 4

    def batches(self, rng: np.random.Generator, views: int, size: int) -> Iterator[Draw]:
        for rows in batch_sampler(self.labels, rng, size, self.per_label):
            yield Draw(rows, rng.integers(0, views, len(rows)), self.labels[rows])


def two_views(rng: np.random.Generator, views: int, n: int) -> tuple[Indices, Indices]:
    """Two different views of each of n images, if there are two."""
    first = rng.integers(0, views, n)
    step = rng.integers(1, views, n) if views > 1 else 0
    return first, (first + step) % views


@dataclass(frozen=True)
class ByInstance:
    """Two views of each image; an image is a label of its own."""

    n: int
    labels: None = None

    def batches(self, rng: np.random.Generator, views: int, size: int) -> Iterator[Draw]:
        order = rng.permutation(self.n)
        for start in range(0, self.n, size // 2):
            images = order[start : start + size // 2]
            if len(images) < 2:
                return
            rows = np.tile(images, 2)
            yield Draw(rows, np.concatenate(two_views(rng, views, len(images))), rows)


@dataclass(frozen=True)
class ByNeighbours:
    """Random images, each with some of its nearest neighbours, as STML builds its batches."""

    neighbours: Indices
    labels: None = None

    def batches(self, rng: np.random.Generator, views: int, size: int) -> Iterator[Draw]:
        n, k = self.neighbours.shape
        handful = np.hstack([np.arange(n)[:, None], self.neighbours])
        per_batch = max(1, size // (k + 1))
        order = rng.permutation(n)
        for start in range(0, max(1, n // (k + 1)), per_batch):
            rows = handful[order[start : start + per_batch]].ravel()
            yield Draw(rows, rng.integers(0, views, len(rows)), rows)


@dataclass(frozen=True)
class ByTriplet:
    """(anchor, positive, negative) rows one after the other, drawn from pools of each anchor."""

    anchors: Indices
    positives: list[Indices]
    negatives: list[Indices]
    labels: None = None

    def batches(self, rng: np.random.Generator, views: int, size: int) -> Iterator[Draw]:
        order = rng.permutation(len(self.anchors))
        per_batch = max(1, size // 3)
        for start in range(0, len(order), per_batch):
            chosen = order[start : start + per_batch]
            triplets = [
                (self.anchors[i], rng.choice(self.positives[i]), rng.choice(self.negatives[i]))
                for i in chosen
            ]
            rows = np.array(triplets).ravel()
            yield Draw(rows, rng.integers(0, views, len(rows)), rows)
