"""Triplets of a partitioned dataset: each shard draws those of its own anchors.

Positives and negatives are any rows of a shared pool, most of them on other workers, so that
clusters that span shards are learned like any other. The pool is every row with a label, or, if
there are very many, whole clusters chosen at random: a few hundred thousand triplets use no more
rows than that. The triplets depend only on the seed and the rows, not on the partitions: random
streams belong to blocks of consecutive rows, and up to one block the triplets are those of the
local fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from dask.sizeof import sizeof
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.method.local import supervised_labels
from rpml.method.settings import FitInputs, FitSettings
from rpml.method.supervision.constraints import Supervision
from rpml.method.triplets.members import Members, members_of, repeat_anchors, uniform_partners
from rpml.method.whitening.groups import Groups
from rpml.runtime.context import Context
from rpml.runtime.rows import Labels

Drawn = tuple[NDArray[np.intp], NDArray[np.bool_]]
"""(triplets of row numbers, which of them are certain)."""
BLOCK = 65_536  # rows that share a random stream
POOL = 4  # rows in the pool per requested triplet


@dataclass(frozen=True)
class Plan:
    """How many triplets are drawn from n_rows rows, in blocks that share a random stream."""

    n_rows: int
    block: int
    per_anchor: int
    limit: int
    """Maximum number of triplets."""


@dataclass(frozen=True)
class Pool:
    """The m rows that triplets are drawn from, on every worker that draws."""

    rows: NDArray[np.intp]
    """(m,) row numbers, ascending."""
    members: Members
    """Which positions in `rows` share a label."""
    groups: Groups | None
    supervision: Supervision | None
    plan: Plan
    quota: NDArray[np.int64]
    """Maximum number of triplets of each block."""

    def draw(self, b: int, rng: np.random.Generator) -> Drawn:
        """Draw the triplets of the anchors in block b."""
        ends = np.searchsorted(self.rows, [b * self.plan.block, (b + 1) * self.plan.block])
        able = self.members.anchors(slice(*ends.tolist()))
        anchors = repeat_anchors(able, rng, self.plan.per_anchor, int(self.quota[b]))
        partners = uniform_partners(anchors, self.members, rng, self.groups)
        places = np.stack([anchors, *partners], axis=1)[partners[1] >= 0]
        known = self.supervision
        pinned = np.zeros(len(places), bool) if known is None else known.pinned(places)
        return self.rows[places], pinned


@sizeof.register(Pool)  # type: ignore[untyped-decorator]
def _bytes(pool: Pool) -> int:
    return 8 * int(pool.rows.nbytes)


def draw_triplets(
    cluster: Cluster,
    edges: NDArray[np.int64],
    labels: Labels,
    inputs: FitInputs,
    settings: FitSettings,
    context: Context,
) -> list[Task]:
    """Draw T of Algorithm 1: one task per partition, with the `Drawn` of its anchors."""
    groups, supervision = inputs.groups, inputs.supervision
    sources = [labels, *supervised_labels(inputs)]
    limit = settings.max_triplets // len(sources)
    rng = context.rng("pool")
    plan = Plan(len(labels), BLOCK, settings.triplets_per_anchor, limit)
    pools = []
    for names in sources:
        rows = pool_rows(names, POOL * settings.max_triplets, rng)
        together = groups[rows] if groups.max() >= 0 else None
        known = None if supervision is None else supervision.subset(rows)
        pools.append(cluster.submit(_make_pool, rows, names[rows], together, known, plan))
    spans = pairwise(edges.tolist())
    return [cluster.submit(_draw, pools, span, context.seed) for span in spans]


def pool_rows(labels: Labels, limit: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Return the labeled rows; if more than `limit`, those of random whole clusters."""
    rows = np.flatnonzero(labels >= 0)
    if len(rows) <= limit:
        return rows
    sizes = np.bincount(labels[rows])
    order = rng.permutation(len(sizes))
    retained = np.zeros(len(sizes), bool)
    retained[order[: max(2, int(np.searchsorted(np.cumsum(sizes[order]), limit)))]] = True
    return np.asarray(rows[retained[labels[rows]]])


def _make_pool(
    rows: NDArray[np.intp],
    labels: Labels,
    groups: Groups | None,
    supervision: Supervision | None,
    plan: Plan,
) -> Pool:
    members, count = members_of(labels), -(-plan.n_rows // plan.block)
    able = np.bincount(rows[members.anchors()] // plan.block, minlength=count)
    # in proportion to the anchors of each block, exactly
    quota = np.diff(plan.limit * np.cumsum([0, *able]) // max(1, int(able.sum())))
    return Pool(rows, members, groups, supervision, plan, quota)


def _draw(pools: Sequence[Pool], span: tuple[int, int], seed: int) -> Drawn:
    """Draw the triplets of a partition's anchors from every pool; blocks may extend beyond it."""
    (low, high), block = span, pools[0].plan.block
    drawn = []
    for b in range(low // block, -(-high // block)):
        rng = Context(seed).rng("triplets" if b == 0 else f"triplets-{b}")
        for pool in pools:
            triplets, pinned = pool.draw(b, rng)
            mine = (triplets[:, 0] >= low) & (triplets[:, 0] < high)
            drawn.append((triplets[mine], pinned[mine]))
    return np.concatenate([t for t, _ in drawn]), np.concatenate([c for _, c in drawn])
