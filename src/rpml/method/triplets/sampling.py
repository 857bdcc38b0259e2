"""Labels -> triplets (anchor, positive, negative) of row indices."""

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
    total: int | None = None,
    sampler: Sampler | None = None,
    groups: ArrayLike | None = None,
) -> Triplets:
    """Draw triplets from pseudo-labels; the positive is any other row of the anchor's label.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,)
        -1 (any negative number): no cluster; such a row takes part in no triplet, not even as a
        negative, for nothing is known of it. A row alone in its label is no anchor and no
        positive, but may be a negative.
    rng : numpy Generator
    per_anchor : int, default=4
        Triplets per anchor. Ignored when `total` is given.
    total : int, default=None
        Triplets in all: every anchor is used equally often, up to one.
    sampler : Sampler, default=Uniform()
        How negatives are drawn.
    groups : ndarray of shape (n_samples,), default=None
        Rows of one group (>= 0) show the same instance: never negatives of each other.

    Returns
    -------
    ndarray of shape (n_triplets, 3)
        Row indices; (0, 3) when no label has two rows or there is only one label.
    """
    names = check_labels(labels)
    groups = None if groups is None else np.asarray(groups)
    members = members_of(names)
    anchors = repeat_anchors(members.anchors(), rng, per_anchor, total)
    partners = uniform_partners(anchors, members, rng, groups)
    draw = Draw(anchors, *partners, names, groups)
    negatives = (sampler or Uniform()).negatives(draw, rng)
    return np.stack([anchors, draw.positives, negatives], axis=1)[negatives >= 0]


@dataclass(frozen=True)
class LabelSource:
    """Labels to draw triplets from, and how."""

    labels: NDArray[np.intp]
    sampler: Sampler


def draw_from_sources(
    sources: Sequence[LabelSource],
    groups: NDArray[np.intp],
    rng: np.random.Generator,
    per_anchor: int,
    max_triplets: int,
) -> Triplets:
    """T of Algorithm 1: each source gives as many, `max_triplets` at most in all."""
    limit = max_triplets // len(sources)
    total = limit if len(groups) * per_anchor > limit else None
    drawn = [
        sample_triplets(
            source.labels,
            rng,
            per_anchor=per_anchor,
            total=total,
            sampler=source.sampler,
            groups=groups,
        )
        for source in sources
    ]
    return np.vstack(drawn)


def parted_triplets(
    labels: NDArray[np.intp], apart: NDArray[np.intp], per_anchor: int, rng: np.random.Generator
) -> Triplets:
    """Triplets of rows known to be apart: one is the anchor, the other the negative, in turn."""
    anchors, negatives = np.vstack([apart, apart[:, ::-1]]).repeat(per_anchor, axis=0).T
    members = members_of(labels)
    able = members.count[anchors] > 1
    anchors, negatives = anchors[able], negatives[able]
    return np.stack([anchors, draw_positives(anchors, members, rng), negatives], axis=1)
