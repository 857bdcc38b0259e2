"""Quality against bytes per vector: codes of PCA and RPML at equal bytes.

Queries are floats, rows are codes, and ranges and codebooks are learned from the rows that are
searched, as an index would.
"""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.evaluation.comparison import Row, Split, figure_text, make_split, mean_figure
from rpml.evaluation.metrics.label_free import NEAREST, neighbor_overlap
from rpml.evaluation.metrics.retrieval import checked_embedding
from rpml.evaluation.registry import Method, chosen_methods
from rpml.method.calibration import AxisRanges
from rpml.method.codes import BITS, learn_codebooks, make_codec
from rpml.method.graph.heaps import nearest_rows
from rpml.method.whitening.linear_map import principal_axes
from rpml.runtime.rows import Array, sorted_sample, unit_rows

logger = logging.getLogger(__name__)
CODED_METHODS = ("pca", "rpml")
BYTES = (8, 16, 32, 64)
SHOWN = ("int8", "int2", "pq")
MAX_ROWS = 10_000
# Dimensions that `pq` codes (benchmarks/bytes_choice.py). Learned axes have the signal in few of
# them; with principal axes as many again cost no Recall@1 and keep more of the raw neighbors.
LEARNED_SIZE, PRINCIPAL_SIZE = 64, 128


def configurations(
    n_bytes: int, most: int, outputs: Sequence[str] = (*BITS, "pq"), learned: bool = True
) -> list[tuple[int, str, int]]:
    """Return (n_components, output, n_bytes) of the codes with at most `most` dimensions.

    More dimensions get fewer bits. How many `pq` codes depends on whether the fit has `learned`
    axes; at least one per byte.
    """
    sizes = {output: 8 * n_bytes // bits for output, bits in BITS.items()}
    sizes["pq"] = max(n_bytes, min(most, LEARNED_SIZE if learned else PRINCIPAL_SIZE))
    return [(sizes[o], o, n_bytes) for o in outputs if sizes[o] <= most]


def has_learned_axes(model: object) -> bool:
    """Whether a fitted model is more than principal axes."""
    return str(getattr(model, "outcome_", "")).startswith("learned")


def coded(rows: Array, output: str, n_bytes: int = 0) -> Array:
    """Return unit rows after encoding and decoding, with ranges or codebooks of their own."""
    books = learn_codebooks(rows, n_bytes, np.random.default_rng(0)) if output == "pq" else None
    ranges = AxisRanges.from_rows(rows, unit=True)
    codec = make_codec(output, rows.shape[1], ranges, books, unit=True)
    return codec.decode(codec.encode(rows))


def code_lines(rows: Sequence[Row]) -> list[list[str]]:
    """Return header and rows of `compare_bytes` as text, in percent."""
    figures = [name for name in ("recall@1", "neighbors_kept") if name in rows[0]]
    lines = [["bytes", "method", "code", "dim", *figures]]
    for row in rows:
        place = [str(row["bytes"]), row["title"], row["code"], str(row["dim"])]
        lines.append([*place, *(figure_text(row, name) for name in figures)])
    return lines


def compare_bytes(
    X: ArrayLike,
    y: ArrayLike | None = None,
    sizes: Sequence[int] = BYTES,
    *,
    methods: Sequence[str | Method] = CODED_METHODS,
    outputs: Sequence[str] = SHOWN,
    seed: int = 0,
) -> list[Row]:
    """Compare codes of equal bytes on at most 10,000 held-out rows: one row per method and code.

    The map is learned on the training half, as in `compare`. `neighbors_kept` is the share of the
    10 nearest rows of the raw vectors that remain among the 10 nearest by the code, `recall@1` the
    Recall@1 of the labels; both with 95% intervals. The first row is that of the raw vectors.

    Parameters
    ----------
    X, y, methods, seed
        As in `compare`; by default PCA and RPML are compared.
    sizes : sequence of int, default=(8, 16, 32, 64)
        Bytes per vector.
    outputs : sequence of str, default=("int8", "int2", "pq")
        Codes, as in `RPML.transform`; of more dimensions than the vectors have, none is measured.
    """
    rows = checked_embedding(X, "X")
    split = make_split(rows, y)
    sampled = sorted_sample(len(split.X_test), MAX_ROWS, np.random.default_rng(seed))
    labels = None if split.y_test is None else split.y_test[sampled]
    split = Split(split.X_train, split.y_train, split.X_test[sampled], labels)
    raw = unit_rows(np.asarray(split.X_test, np.float32))
    k = min(NEAREST, len(raw) - 1)
    near = nearest_rows(raw, raw, k, own=np.arange(len(raw)))[1]
    described = {"bytes": 4 * raw.shape[1], "method": "raw", "title": "raw features"}
    out: list[Row] = [{**described, "code": "float32", **_figures(raw, raw, near, labels)}]
    most = len(principal_axes(split.X_train, unit_input=True).variances)
    if not any(configurations(size, most, outputs) for size in sizes):
        raise ValueError(f"No code of {list(sizes)} bytes has at most {most} dimensions.")
    for method in chosen_methods(methods):
        fitted: dict[int, Any] = {}
        spaces: dict[int, Array] = {}

        def fit(size: int, method: Method = method, fitted: dict[int, Any] = fitted) -> Any:
            if size not in fitted:
                fitted[size] = method.fit(split.X_train, split.y_train, size, seed)[0]
            return fitted[size]

        learned = "pq" in outputs and has_learned_axes(fit(min(most, LEARNED_SIZE)))
        for size, output, n_bytes in (
            c for n in sizes for c in configurations(n, most, outputs, learned)
        ):
            if size not in spaces:
                embedded = fit(size).transform(split.X_test)
                spaces[size] = unit_rows(np.asarray(embedded, np.float32))
            logger.info("%s, %d bytes, %s", method.name, n_bytes, output)
            figures = _figures(spaces[size], coded(spaces[size], output, n_bytes), near, labels)
            described = {"bytes": n_bytes, "method": method.name, "title": method.title}
            out.append({**described, "code": output, **figures})
    return sorted(out, key=lambda row: -row["bytes"])


def _figures(
    queries: Array, rows: Array, near: NDArray[np.intp], labels: NDArray[np.generic] | None
) -> dict[str, float]:
    found = nearest_rows(queries, rows, near.shape[1], own=np.arange(len(rows)))[1]
    overlap = neighbor_overlap(near, found, near.shape[1])
    figures = {"dim": rows.shape[1], **mean_figure("neighbors_kept", overlap)}
    return figures | (
        {} if labels is None else mean_figure("recall@1", labels[found[:, 0]] == labels)
    )
