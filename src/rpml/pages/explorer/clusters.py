"""The clusters of the rows: sizes, modes, impurity, the ascent tree and distinctive words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from rpml.estimator import RPML
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.pseudo_labels import as_clusterer
from rpml.pages.explorer.index import ExactIndex
from rpml.runtime.rows import Array, Indices, Integers, Labels, slices

_NEAREST = 10
_MEMBERS = 12  # members per cluster whose neighbors are searched
_MAX_QUERIES = 10_000  # members over all clusters
_BLOCK = 8192
SORTS = ("size", "impurity", "name")


@dataclass(frozen=True)
class Clusters:
    """All clusters, numbered as in `labels` (-1 for noise); arrays of c values have one each.

    `names` (c,) are the labels that occur. `modes` (c,) are the members that the clusters ascend
    to, or the most central ones if the ascent is unknown. `impurity` (c,) is the share of the
    members' nearest neighbors in other clusters, NaN if not measured. `parents` (n_samples,) is the
    ascent tree of Authority Ascent Shift, if it could be reproduced. `words` are distinctive words
    of the texts of each cluster, empty without texts.
    """

    labels: Labels
    names: Indices
    sizes: Indices
    modes: Indices
    impurity: NDArray[np.float64]
    parents: Indices | None
    words: list[list[str]]

    def title(self, name: int) -> str:
        """Return the number of a cluster and its distinctive words."""
        at = self.position(name)
        words = self.words[at] if self.words and at is not None else []
        return f"{name}: {', '.join(words)}" if words else str(name)

    def ordered(self, sort: str) -> Indices:
        """Return positions of the clusters: largest first, least pure first, or by number."""
        if sort == "impurity":
            return np.lexsort((-self.sizes, -np.nan_to_num(self.impurity, nan=-1.0)))
        if sort == "size":
            return np.argsort(-self.sizes, kind="stable")
        return np.arange(len(self.names))

    def position(self, name: int) -> int | None:
        at = int(np.searchsorted(self.names, name))
        return at if at < len(self.names) and self.names[at] == name else None

    def members(self, name: int) -> Indices:
        return np.flatnonzero(self.labels == name)


def find_clusters(
    labels: Indices,
    embedding: ExactIndex,
    parents: Indices | None,
    rng: np.random.Generator,
    texts: Sequence[str] | None = None,
) -> Clusters:
    """Compute modes and impurity of the clusters in `labels`; name them by their texts."""
    rows = np.flatnonzero(labels >= 0)
    names, codes = np.unique(labels[rows], return_inverse=True)
    sizes = np.bincount(codes, minlength=len(names))
    below = np.zeros(len(rows), np.bool_) if parents is None else parents[rows] != rows
    order = np.lexsort((rows, -_centrality(rows, codes, embedding), below, codes))
    modes = rows[order[np.cumsum(sizes) - sizes]]  # the first row of each cluster
    impurity = _impurity(labels, embedding, rng)
    clusters = np.full(len(labels), -1)
    clusters[rows] = codes
    words = [] if texts is None else distinctive_words(texts, clusters)
    return Clusters(labels, names, sizes, modes, impurity, parents, words)


def _centrality(rows: Indices, codes: Indices, embedding: ExactIndex) -> Array:
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
    labels: Indices, embedding: ExactIndex, rng: np.random.Generator
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


def ascent_tree(model: RPML, X: Array, labels: Labels | None) -> tuple[Labels, Indices | None]:
    """Return the clusters of the rows, those of the fit if it made any, and the ascent tree.

    The model's Authority Ascent Shift is run again. There is no tree if the labels come from
    elsewhere, or if the run does not reproduce them.
    """
    clusterer = as_clusterer(model.clustering, min(model.n_neighbors, len(X) - 1))
    if not isinstance(clusterer, AuthorityAscentShift):
        return model.cluster_rows(X)[0] if labels is None else labels, None
    ascent = clone(clusterer).fit(np.asarray(model.preprocessing_.apply(X)))
    if labels is None:
        several = 1 < ascent.n_clusters_ < len(X)  # otherwise another threshold is tried
        labels = ascent.labels_ if several else model.cluster_rows(X)[0]
    reproduced = same_partition(ascent.labels_, labels)
    return labels, np.asarray(ascent.parents_, np.intp) if reproduced else None


def same_partition(one: Integers, other: Integers) -> bool:
    """Whether two labelings differ only in the names of the clusters."""
    pairs = np.unique(np.stack([one, other]), axis=1)
    return bool(pairs.shape[1] == len(np.unique(one)) == len(np.unique(other)))


N_WORDS = 3
_WORD = r"(?u)\b[^\W\d_]{2,}\b"
_MAX_WORDS = 50_000  # the most frequent ones
_RATIO = 1.5  # a word must be more frequent than in all texts by this factor


def distinctive_words(texts: Sequence[str], codes: Indices) -> list[list[str]]:
    """Return up to three words per cluster that contribute most to its divergence from all texts.

    A word scores s log(s / t), where s is its share of the texts of the cluster and t its share of
    all texts: a term of the Kullback-Leibler divergence. `codes` are the clusters 0 to c - 1 of
    the texts, or -1.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(binary=True, token_pattern=_WORD, max_features=_MAX_WORDS)
    n_clusters = int(codes.max(initial=-1)) + 1
    try:
        contains = counter.fit_transform(texts).astype(np.float64)
    except ValueError:  # no text has a word
        return [[] for _ in range(n_clusters)]
    rows = np.flatnonzero(codes >= 0)
    members = sparse.csr_matrix(
        (np.ones(len(rows)), (codes[rows], rows)), shape=(n_clusters, len(texts))
    )
    scored = sparse.csr_matrix(members @ contains)
    sizes = np.bincount(codes[rows], minlength=n_clusters)
    shares = scored.data / np.repeat(sizes, np.diff(scored.indptr))
    overall = np.asarray(contains.sum(axis=0)).ravel() / len(texts)
    ratio = shares / overall[scored.indices]
    scored.data = np.where(ratio >= _RATIO, shares * np.log(ratio), 0)
    words = counter.get_feature_names_out()
    by_cluster = []
    for c in range(n_clusters):
        part = slice(scored.indptr[c], scored.indptr[c + 1])
        scores, columns = scored.data[part], scored.indices[part]
        best = np.lexsort((columns, -scores))[:N_WORDS]
        by_cluster.append([str(words[columns[i]]) for i in best if scores[i] > 0])
    return by_cluster
