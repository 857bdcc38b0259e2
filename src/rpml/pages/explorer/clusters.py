"""The pseudo-clusters of a fit: sizes, modes, impurity and the ascent tree."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rpml.estimator import RPML
from rpml.pages.explorer.index import ExactIndex
from rpml.runtime.rows import Array, slices

_NEAREST = 10
_MEMBERS = 12  # members per cluster whose neighbors are searched
_MAX_QUERIES = 10_000  # members over all clusters
_BLOCK = 8192
SORTS = ("size", "impurity", "name")


@dataclass(frozen=True)
class Clusters:
    """All clusters, numbered as in `labels` (-1 for noise)."""

    labels: NDArray[np.intp]
    names: NDArray[np.intp]
    """(c,) labels that occur."""
    sizes: NDArray[np.intp]
    modes: NDArray[np.intp]
    """(c,) members that the clusters ascend to; the most central ones if the ascent is unknown."""
    impurity: NDArray[np.float64]
    """(c,) share of the members' nearest neighbors in other clusters; NaN if not measured."""
    parents: NDArray[np.intp] | None
    """(n_samples,) ascent tree of Authority Ascent Shift, if it could be reproduced."""
    words: list[list[str]] = field(default_factory=list)
    """Distinctive words of the texts of each cluster; empty without texts."""

    def title(self, name: int) -> str:
        """Return the number of a cluster and its distinctive words."""
        at = self.position(name)
        words = self.words[at] if self.words and at is not None else []
        return f"{name}: {', '.join(words)}" if words else str(name)

    def ordered(self, sort: str) -> NDArray[np.intp]:
        """Return positions of the clusters: largest first, least pure first, or by number."""
        if sort == "impurity":
            return np.lexsort((-self.sizes, -np.nan_to_num(self.impurity, nan=-1.0)))
        if sort == "size":
            return np.argsort(-self.sizes, kind="stable")
        return np.arange(len(self.names))

    def position(self, name: int) -> int | None:
        """Return the index of a cluster in `names`."""
        at = int(np.searchsorted(self.names, name))
        return at if at < len(self.names) and self.names[at] == name else None

    def members(self, name: int) -> NDArray[np.intp]:
        """Return the rows of a cluster."""
        return np.flatnonzero(self.labels == name)


def find_clusters(
    labels: NDArray[np.intp],
    embedding: ExactIndex,
    parents: NDArray[np.intp] | None,
    rng: np.random.Generator,
) -> Clusters:
    """Compute sizes, modes and impurity of the clusters in `labels`."""
    rows = np.flatnonzero(labels >= 0)
    names, codes = np.unique(labels[rows], return_inverse=True)
    sizes = np.bincount(codes, minlength=len(names))
    below = np.zeros(len(rows), np.bool_) if parents is None else parents[rows] != rows
    order = np.lexsort((rows, -_centrality(rows, codes, embedding), below, codes))
    modes = rows[order[np.cumsum(sizes) - sizes]]  # the first row of each cluster
    return Clusters(labels, names, sizes, modes, _impurity(labels, embedding, rng), parents)


def _centrality(rows: NDArray[np.intp], codes: NDArray[np.intp], embedding: ExactIndex) -> Array:
    """Return the inner product of each row and the sum of its cluster."""
    n = int(codes.max(initial=-1)) + 1
    members = sparse.csr_matrix(
        (np.ones(len(rows), np.float32), (codes, rows)), shape=(n, len(embedding))
    )
    sums = members @ embedding.rows
    out = np.empty(len(rows), np.float32)
    for part in slices(len(rows), _BLOCK):
        out[part] = np.einsum("ij,ij->i", embedding.rows[rows[part]], sums[codes[part]])
    return out


def _impurity(
    labels: NDArray[np.intp], embedding: ExactIndex, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Measure impurity over min(10, size - 1) neighbors per member, so that it can be 0.

    NaN for singletons and, if there are more than 10,000 clusters, for all but the largest.
    """
    shuffled = rng.permutation(np.flatnonzero(labels >= 0))
    rows = shuffled[np.argsort(labels[shuffled], kind="stable")]
    _, codes, sizes = np.unique(labels[rows], return_inverse=True, return_counts=True)
    largest = np.argsort(-sizes, kind="stable")[:_MAX_QUERIES]
    measured = np.zeros(len(sizes), np.bool_)
    measured[largest[sizes[largest] > 1]] = True
    each = max(1, min(_MEMBERS, _MAX_QUERIES // max(1, int(measured.sum()))))
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    asked = np.flatnonzero((rank < each) & measured[codes])
    near = embedding.nearest_rows(rows[asked], _NEAREST)
    counted = np.arange(near.shape[1]) < sizes[codes[asked], None] - 1
    elsewhere = counted & (labels[near] != labels[rows[asked], None])
    others, total = (
        np.bincount(codes[asked], hits.sum(axis=1), len(sizes)) for hits in (elsewhere, counted)
    )
    return np.where(total > 0, others / np.maximum(total, 1), np.nan)


def ascent_tree(model: RPML, X: Array, labels: NDArray[np.intp]) -> NDArray[np.intp] | None:
    """Return the parents of the rows in the model's Authority Ascent Shift, which is run again.

    None if the labels come from elsewhere, or if the second run does not reproduce them.
    """
    from rpml.method.clustering.aas import AuthorityAscentShift
    from rpml.method.clustering.pseudo_labels import as_clusterer

    clustering = as_clusterer(model.clustering, model.n_neighbors)
    if not isinstance(clustering, AuthorityAscentShift) or clustering.metric == "precomputed":
        return None
    again = AuthorityAscentShift(**clustering.get_params(deep=False))
    again.fit(np.asarray(model.preprocessing_.apply(X)))
    if not same_partition(again.labels_, labels):
        return None
    return np.asarray(again.parents_, np.intp)


def same_partition(one: NDArray[np.integer], other: NDArray[np.integer]) -> bool:
    """Whether two labelings differ only in the names of the clusters."""
    pairs = np.unique(np.stack([one, other]), axis=1)
    return bool(pairs.shape[1] == len(np.unique(one)) == len(np.unique(other)))
