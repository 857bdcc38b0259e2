"""A whole comparison: every method, dimension and seed on one split, with a cache."""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rpml.evaluation.comparison.measure import Cell, measure
from rpml.evaluation.comparison.table import Comparison
from rpml.evaluation.metrics._checks import checked_embedding
from rpml.evaluation.registry import PCA_FAMILY, Method, chosen_methods
from rpml.evaluation.split import Split, make_split
from rpml.runtime.wording import counted, one_line

logger = logging.getLogger(__name__)
DEFAULT_METHODS = ("raw", "random", *PCA_FAMILY, "lpp", "aas-lda", "rpml", "lda", "nca")
DEFAULT_SEEDS = (0, 1, 2)
DEFAULT_DIM = 128
Key = tuple[str, str, int, int]


def compare(
    X: ArrayLike,
    y: ArrayLike | None = None,
    n_components: int | Sequence[int] | None = None,
    *,
    train: ArrayLike | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] = DEFAULT_SEEDS,
) -> Comparison:
    """Compare RPML with its alternatives at equal dimension, on held-out rows.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Vectors.
    y : array-like of shape (n_samples,), default=None
        Classes, used for scores; only the methods marked as upper references learn from them.
        Without classes only label-free figures are measured.
    n_components : int or sequence of int, default=None
        Dimensions to compare at; None means 128, or half the features if there are fewer.
    train : bool array of shape (n_samples,), default=None
        Training rows. None selects the first half of the classes in sorted order, and the others
        for the test (no class is in both, as in the paper); without y a random half.
    methods : sequence of str, default=None
        Names of `rpml.evaluation.registry`; None: the baselines, RPML and the upper references.
    seeds : sequence of int, default=(0, 1, 2)
        Each method is run once per seed, also deterministic ones, since the k-means that scores
        clusters is random.

    Returns
    -------
    Comparison
        `.frame()` returns a tidy DataFrame; `.markdown()`, `.write(path)` and `print` format it.

    See Also
    --------
    run_cells : The same, cell by cell, with a cache from which an interrupted run resumes.

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
    split = make_split(X, y, train)
    chosen = _chosen(methods, labeled=y is not None)
    dims = _dims(n_components, X.shape[1])
    if not dims or not len(seeds):
        raise ValueError("A comparison needs at least one number of components and one seed.")
    cells = list(run_cells(split, chosen, dims, list(seeds)))
    return Comparison(cells, [(method.name, d) for d in sorted(set(dims)) for method in chosen])


def _chosen(names: Sequence[str] | None, labeled: bool) -> list[Method]:
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


def run_cells(
    split: Split,
    methods: Sequence[Method],
    dims: Sequence[int],
    seeds: Sequence[int],
    cache: str | Path | None = None,
    source: str = "",
) -> Iterator[Cell]:
    """Yield every cell, from the cache or measured and added to it.

    `source`, the version of the code, is stored in new cells.
    """
    data = split_digest(split)
    measured = read_cells(cache) if cache else {}
    for seed in seeds:  # outermost, so that an interrupted run has a complete table
        for dim in dims:
            for method in methods:
                key = (data, settings_of(method, dim, seed), dim, seed)
                if key not in measured:
                    cell = measure(split, method, dim, seed)
                    cell |= {"data": data, "settings": key[1], "source": source}
                    measured[key] = cell
                    _append(cache, cell)
                    logger.info(
                        "%s, %d dimensions, seed %d", method.name, cell.get("dim", dim), seed
                    )
                yield measured[key]


def settings_of(method: Method, dim: int, seed: int) -> str:
    """Return the method and all arguments of its estimator, which identify a stored cell."""
    return f"{method.name}: {one_line(repr(method.build(dim, seed)))}"


def split_digest(split: Split) -> str:
    """Return a digest of the rows and classes of a split."""
    digest = hashlib.sha256()
    for part in (split.X_train, split.y_train, split.X_test, split.y_test):
        digest.update(b"none" if part is None else np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def read_cells(path: str | Path) -> dict[Key, Cell]:
    """Read the cells of a file by key; an incomplete last line is ignored."""
    cells: dict[Key, Cell] = {}
    if not Path(path).exists():
        return cells
    for line in Path(path).read_text(encoding="utf8").splitlines():
        try:
            cell = json.loads(line)
        except ValueError:
            continue
        cells[cell["data"], cell["settings"], cell["asked"], cell["seed"]] = cell
    return cells


def _append(path: str | Path | None, cell: Cell) -> None:
    if path is None:
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    # one write per line, since two processes may append to the file
    with open(path, "a", encoding="utf8", buffering=2**20) as file:
        # an incomplete line of a killed process must not swallow this one
        torn = file.tell() > 0 and not Path(path).read_bytes().endswith(b"\n")
        file.write(("\n" if torn else "") + json.dumps(cell) + "\n")
