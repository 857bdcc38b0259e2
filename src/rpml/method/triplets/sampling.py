"""Sampling of triplets (anchor, positive, negative) of row indices from labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.method.triplets.members import (
    check_labels,
    draw_positives,
    members_of,
    repeat_anchors,
    uniform_partners,
)
from rpml.method.triplets.samplers import Draw, Sampler, Uniform

Triplets = NDArray[np.intp]


def sample_triplets(
    labels: ArrayLike,
    rng: np.random.Generator,
    *,
    per_anchor: int = 4,
    limit: int | None = None,
    sampler: Sampler | None = None,
    groups: ArrayLike | None = None,
) -> Triplets:
    """Draw (n_triplets, 3) row indices; the positive is any other row of the anchor's label.

    Rows with a negative label are in no triplet, not even as negatives. A row alone in its label is
    not an anchor or positive, but may be a negative. Each anchor has `per_anchor` triplets; if
    they are more than `limit`, all anchors are used equally often, up to one. Rows of one group
    (>= 0) are never negatives of each other.
    """
    names = check_labels(labels)
    groups = None if groups is None else np.asarray(groups)
    members = members_of(names)
    anchors = repeat_anchors(members.anchors(), rng, per_anchor, limit)
    partners = uniform_partners(anchors, members, rng, groups)
    draw = Draw(anchors, *partners, names, groups)
    negatives = (sampler or Uniform()).negatives(draw, rng)
    return np.stack([anchors, draw.positives, negatives], axis=1)[negatives >= 0]


@dataclass(frozen=True)
class LabelSource:
    """Labels to draw triplets from, and their sampler."""

    labels: NDArray[np.intp]
    sampler: Sampler


def draw_from_sources(
    sources: Sequence[LabelSource],
    groups: NDArray[np.intp],
    rng: np.random.Generator,
    per_anchor: int,
    max_triplets: int,
) -> Triplets:
    """Draw T of Algorithm 1: `per_anchor` per anchor and source, at most `max_triplets`."""
    limit = max_triplets // len(sources)
    drawn = [
        sample_triplets(
            source.labels,
            rng,
            per_anchor=per_anchor,
            limit=limit,
            sampler=source.sampler,
            groups=groups,
        )
        for source in sources
    ]
    return np.vstack(drawn)


def parted_triplets(
    labels: NDArray[np.intp], apart: NDArray[np.intp], per_anchor: int, rng: np.random.Generator
) -> Triplets:
    """Return triplets of rows known to be apart, each in turn as anchor and as negative."""
    anchors, negatives = np.vstack([apart, apart[:, ::-1]]).repeat(per_anchor, axis=0).T
    members = members_of(labels)
    able = members.count[anchors] > 1
    anchors, negatives = anchors[able], negatives[able]
    return np.stack([anchors, draw_positives(anchors, members, rng), negatives], axis=1)
