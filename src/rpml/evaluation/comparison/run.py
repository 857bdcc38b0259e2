"""A whole comparison: every method, dimension and seed on one split."""

import itertools
import logging
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rpml.evaluation.comparison.measure import measure
from rpml.evaluation.comparison.table import Comparison
from rpml.evaluation.knowledge import fit_knowledge
from rpml.evaluation.metrics._checks import checked_embedding
from rpml.evaluation.registry import KNOWN, PCA_FAMILY, Method, chosen_methods
from rpml.evaluation.split import make_split
from rpml.runtime.wording import counted

logger = logging.getLogger(__name__)
DEFAULT_METHODS = ("raw", "random", *PCA_FAMILY, "lpp", "aas-lda", "rpml", "lda", "nca")
DEFAULT_SEEDS = (0, 1, 2)
DEFAULT_DIM = 128


def compare(
    X: ArrayLike,
    y: ArrayLike | None = None,
    n_components: int | Sequence[int] | None = None,
    *,
    train: ArrayLike | None = None,
    methods: Sequence[str | Method] | None = None,
    seeds: Sequence[int] = DEFAULT_SEEDS,
    nuisance: ArrayLike | None = None,
    queries: ArrayLike | None = None,
) -> Comparison:
    """Compare RPML with its alternatives at equal dimension, on held-out rows.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Vectors.
    y : array-like of shape (n_samples,), default=None
        Classes, used for scores; only the methods marked as upper bounds learn from them.
        Without classes only label-free figures are measured.
    n_components : int or sequence of int, default=None
        Dimensions to compare at; None means 128, or half the features if there are fewer.
    train : bool array of shape (n_samples,), default=None
        Training rows. None selects the first half of the classes in sorted order, and the others
        for the test (no class is in both, as in the paper); without y a random half.
    methods : sequence of str or Method, default=None
        Names of `rpml.evaluation.registry`, or methods of your own; None: the baselines, RPML and
        the upper bounds.
    seeds : sequence of int, default=(0, 1, 2)
        Each method is run once per seed, also deterministic ones, since the k-means that scores
        clusters is random.
    nuisance, queries : array-like, default=None
        As in `RPML.fit`: RPML is then also fitted with them. With y and a nuisance, "recall@1
        across" is the Recall@1 among rows of other values.

    Returns
    -------
    Comparison
        `.frame()` returns a tidy DataFrame; `.markdown()`, `.write(path)` and `print` format it.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import rpml
    >>> X, y = load_digits(return_X_y=True)
    >>> result = rpml.compare(X, y, 16, methods=("raw", "pca", "rpml"), seeds=(0,))
    >>> [row["method"] for row in result.rows]
    ['raw', 'pca', 'rpml']
    """
    X = checked_embedding(X, "X")
    if len(X) < 4:
        raise ValueError(f"A comparison needs at least 4 rows, X has {len(X)}.")
    known = fit_knowledge(X, nuisance, queries)
    split = make_split(X, y, train, known)
    chosen = _chosen(methods, labeled=y is not None)
    if known and KNOWN not in (method.name for method in chosen):
        chosen += chosen_methods([KNOWN])
    dims = _dims(n_components, X.shape[1])
    if not dims or not len(seeds):
        raise ValueError("A comparison needs at least one number of components and one seed.")
    cells = []
    for seed, dim, method in itertools.product(seeds, dims, chosen):
        cells.append(measure(split, method, dim, seed))
        logger.info("%s, %d dimensions, seed %d", method.name, cells[-1].get("dim", dim), seed)
    return Comparison(cells, [(method, dim) for dim in sorted(set(dims)) for method in chosen])


def _chosen(names: Sequence[str | Method] | None, labeled: bool) -> list[Method]:
    methods = chosen_methods(names or DEFAULT_METHODS)
    if labeled:
        return methods
    label_free = [method for method in methods if not method.uses_labels]
    if names is not None and len(label_free) < len(methods):
        needy = [method.name for method in methods if method.uses_labels]
        raise ValueError(f"methods={needy}: they learn from labels (y), which are not given.")
    return label_free


def checked_size(n_components: int | None, d: int) -> int:
    """Return the number of dimensions, by default 128, or half of d features if they are fewer."""
    if n_components is None:
        return max(1, min(DEFAULT_DIM, d // 2))
    if not isinstance(n_components, Integral) or not 1 <= n_components <= d:
        raise ValueError(
            f"n_components={n_components!r} must be an integer between 1 and the "
            f"{counted(d, 'feature')} of X."
        )
    return int(n_components)


def _dims(n_components: int | Sequence[int] | None, d: int) -> list[int]:
    sizes: Any = [n_components] if np.ndim(n_components) == 0 else n_components  # type: ignore[arg-type]
    return [checked_size(size, d) for size in sizes]
