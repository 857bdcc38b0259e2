"""Quality against bytes per vector: codes of the raw vectors, of PCA and of RPML."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.evaluation.comparison.run import checked_size
from rpml.evaluation.comparison.table import Row, figure_text, html_table, table_text
from rpml.evaluation.metrics._checks import checked_embedding
from rpml.evaluation.metrics.label_free import NEAREST, neighbor_overlap
from rpml.evaluation.registry import Method, chosen_methods
from rpml.evaluation.split import Split, make_split
from rpml.method.codes import AxisRanges, Int8Codec, SignCodec
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.extras import optional
from rpml.runtime.intervals import bounded, interval
from rpml.runtime.rows import Array, slices, sorted_sample, top_columns, unit_rows

logger = logging.getLogger(__name__)
Scores = Callable[[slice], Array]
CODED_METHODS = ("raw", "pca", "rpml")
MAX_ROWS = 10_000
OVERSAMPLE = 4
_BLOCK = 1024
_CENTROIDS, _PQ_ROWS = 256, 4096
_OPQ_DIMS = 256  # beyond, learning the rotation takes minutes


class Coding(NamedTuple):
    """A code: its name, its bytes per vector, and its scores."""

    name: str
    n_bytes: int
    scores: Scores
    """Scores of a slice of the rows as queries against all rows."""


@dataclass(frozen=True)
class CodeComparison:
    """One row per method and code: bytes per vector, neighbors kept, Recall@1 with labels."""

    rows: list[Row]

    def lines(self) -> list[list[str]]:
        """Return header and rows as text, in percent."""
        figures = [name for name in ("recall@1", "neighbors_kept") if name in self.rows[0]]
        lines = [["method", "code", "dim", "bytes", *figures]]
        for row in self.rows:
            place = [row["title"], row["code"], str(row["dim"]), str(row["bytes"])]
            lines.append([*place, *(figure_text(row, name, 100) for name in figures)])
        return lines

    def text(self, ending: str) -> str:
        """Return the rows as the content of a .csv, .json or .md file."""
        return table_text(self.rows, self.lines(), ending)

    def _repr_html_(self) -> str:
        return html_table(self.lines())


def compare_codes(
    X: ArrayLike,
    y: ArrayLike | None = None,
    n_components: int | None = None,
    *,
    methods: Sequence[str] | None = None,
    seed: int = 0,
) -> CodeComparison:
    """Compare float, int8, sign bits, rescored bits, PQ and OPQ on at most 10,000 held-out rows.

    The arguments are those of `compare`; by default raw vectors, PCA and RPML are compared.
    `neighbors_kept` is the share of the 10 nearest rows of the raw vectors that remain among the
    10 nearest by the code, `recall@1` the Recall@1 of the labels; both with 95% intervals.

    Queries are floats and rows are codes, except for sign bits, which are compared by Hamming
    distance. "binary + int8" rescores the 40 nearest rows by the bits with int8. PQ and OPQ have
    as many bytes as the sign bits and need faiss; OPQ only up to 256 dimensions.
    """
    X = checked_embedding(X, "X")
    split = make_split(X, y)
    n_components = checked_size(n_components, X.shape[1])
    chosen = chosen_methods(methods or CODED_METHODS)
    sampled = sorted_sample(len(split.X_test), MAX_ROWS, np.random.default_rng(seed))
    labels = None if split.y_test is None else split.y_test[sampled]
    split = Split(split.X_train, split.y_train, split.X_test[sampled], labels)
    k = min(NEAREST, len(sampled) - 1)
    near = nearest_neighbors(split.X_test, k, metric="cosine").indices
    rows = [row for method in chosen for row in _measure(split, method, n_components, seed, near)]
    return CodeComparison(rows)


def _measure(
    split: Split, method: Method, n_components: int, seed: int, near: NDArray[np.integer]
) -> Iterator[Row]:
    estimator = method.build(n_components, seed)
    estimator.fit(split.X_train, split.y_train if method.uses_labels else None)
    train, test = (
        unit_rows(np.asarray(estimator.transform(X), np.float32))
        for X in (split.X_train, split.X_test)
    )
    for figures in score_codes(train, test, near, split.y_test):
        logger.info("%s, %s", method.name, figures["code"])
        yield {"method": method.name, "title": method.title, **figures}


def score_codes(
    train: Array,
    rows: Array,
    near: NDArray[np.integer],
    y: NDArray[np.generic] | None = None,
    learned: bool = True,
) -> Iterator[Row]:
    """Measure bytes and quality of every code of unit rows.

    Ranges and codebooks are learned from `train`; each of the `rows` is a query against the
    others. `near` (n_samples, k) are the rows to find, `y` the labels. `learned=False` omits PQ
    and OPQ, which take longest.
    """
    for coding in codings(train, rows, learned):
        neighbors = nearest_by_scores(coding.scores, len(rows), near.shape[1])
        overlap = neighbor_overlap(near, neighbors, near.shape[1])
        figures: Row = {
            "code": coding.name,
            "dim": rows.shape[1],
            "bytes": coding.n_bytes,
            **bounded("neighbors_kept", interval(overlap, np.random.default_rng(0))),
        }
        if y is not None:
            hits = y[neighbors[:, 0]] == y
            figures |= bounded("recall@1", interval(hits, np.random.default_rng(0)))
        yield figures


def codings(train: Array, rows: Array, learned: bool) -> Iterator[Coding]:
    """Yield every code of unit rows, with or without those that learn codebooks."""
    size = rows.shape[1]
    yield Coding("float32", 4 * size, _products(rows, rows))
    int8 = Int8Codec(AxisRanges.of(train, unit=True))
    fine = _products(rows, int8.decode(int8.encode(rows)))
    yield Coding("int8", int8.width, fine)
    for name, rotate in (("binary", False), ("binary-rotated", True)):
        bits = SignCodec(size, rotate)
        signs = bits.decode(bits.encode(rows))
        coarse = _products(signs, signs)
        yield Coding(name, bits.width, coarse)
        yield Coding(f"{name} + int8", bits.width + int8.width, _rescored(coarse, fine))
    if learned and len(train) >= _CENTROIDS and (faiss := optional("faiss")) is not None:
        for name in ("PQ", "OPQ")[: 2 if size <= _OPQ_DIMS else 1]:
            decoded = _product_quantized(faiss, train, rows, rotate=name == "OPQ")
            yield Coding(name, -(-size // 8), _products(rows, decoded))


def _products(queries: Array, rows: Array) -> Scores:
    return lambda part: queries[part] @ rows.T


def _rescored(coarse: Scores, fine: Scores) -> Scores:
    """Return fine scores for the rows with the best coarse scores, including the query."""

    def scores(part: slice) -> Array:
        first = coarse(part)
        near = top_columns(first, OVERSAMPLE * NEAREST + 1)
        out = np.full_like(first, -np.inf)
        np.put_along_axis(out, near, np.take_along_axis(fine(part), near, axis=1), axis=1)
        return out

    return scores


def _product_quantized(faiss: ModuleType, train: Array, rows: Array, rotate: bool) -> Array:
    """Return the rows after product quantization with eight axes per byte."""
    size, n_bytes = rows.shape[1], -(-rows.shape[1] // 8)
    train = train[sorted_sample(len(train), _PQ_ROWS, np.random.default_rng(0))]
    train, rows = (
        np.pad(part, ((0, 0), (0, 8 * n_bytes - part.shape[1]))) for part in (train, rows)
    )
    quantizer = faiss.ProductQuantizer(8 * n_bytes, n_bytes, 8)
    quantizer.cp.min_points_per_centroid = 1  # otherwise it warns on standard error
    quantizer.cp.niter = 10
    if rotate:
        turn = faiss.OPQMatrix(8 * n_bytes, n_bytes)
        turn.pq, turn.niter = quantizer, 10
        turn.train(train)
        train, rows = turn.apply(train), turn.apply(rows)
    quantizer.train(train)
    decoded = quantizer.decode(quantizer.compute_codes(rows))
    return np.asarray(turn.reverse_transform(decoded) if rotate else decoded)[:, :size]


def nearest_by_scores(scores: Scores, n: int, k: int) -> NDArray[np.intp]:
    """Return the best other rows of every row, best first, as (n, k)."""
    out = np.empty((n, k), np.intp)
    for part in slices(n, _BLOCK):
        block = scores(part)
        block[np.arange(len(block)), np.arange(n)[part]] = -np.inf
        out[part] = top_columns(block, k)
    return out
