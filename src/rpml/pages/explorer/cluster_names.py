"""Names of clusters: the words that distinguish their texts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

N_WORDS = 3
_WORD = r"(?u)\b[^\W\d_]{2,}\b"
_MAX_WORDS = 50_000  # the most frequent ones
_RATIO = 1.5  # a word must be more frequent than in all texts by this factor


def distinctive_words(texts: Sequence[str], codes: NDArray[np.intp]) -> list[list[str]]:
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
