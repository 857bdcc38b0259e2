"""Names of clusters: the words that set their texts apart."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

N_WORDS = 3
_WORD = r"(?u)\b[^\W\d_]{2,}\b"
_MAX_WORDS = 50_000  # the most frequent ones
_RATIO = 1.5  # a word less frequent than this, compared with all texts, is no name


def distinctive_words(texts: Sequence[str], codes: NDArray[np.intp]) -> list[list[str]]:
    """The words of each cluster that raise its divergence from all texts most.

    A word scores s log(s / t), where s is the share of the texts of the cluster that contain it
    and t its share of all texts: the terms of a Kullback-Leibler divergence.

    Parameters
    ----------
    texts : sequence of str
    codes : int ndarray of shape (n_texts,)
        The cluster of each text, 0 to c - 1; -1 for none.

    Returns
    -------
    list of list of str
        Up to three words per cluster, the best first.
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
