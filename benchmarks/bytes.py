"""Bytes per vector against Recall@1: codes of RPML, of PCA, of faiss and of the first columns.

python benchmarks/bytes.py --data DIR [--sets A,B] [--sizes 8,16] [--codes pq,int2] [--uses new]

Two uses: `searched`, fitted on the rows that are searched, and `new`, the map fitted on the
training classes and used on the others. Queries are floats, at most 5,000 per set, rows are codes
whose codebooks are learned from the searched rows. Peers at their best: unit rows, centered, PCA
to 256 dimensions where there are more, compared by L2. Other maps get the same product codes:
principal axes divided by a power of their eigenvalues, with the power that is best by the labels of
the queries (an upper bound of Spectral Tempering, arXiv 2603.19339, which chooses it by the
eigenvalues alone), and rows without the direction of their mean. results/bytes.json is written
after every set, so an interrupted run continues; bytes_page.py makes the page.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import faiss
import numpy as np
from common import RESULTS, machine
from numpy.typing import NDArray
from results_sets import FeatureSet, commit, feature_sets, parser

from rpml.evaluation.codes import BYTES, coded, configurations
from rpml.evaluation.registry import chosen_methods
from rpml.method.codes import BITS, CODES
from rpml.method.graph.heaps import nearest_rows
from rpml.runtime.rows import unit_rows

TARGET = RESULTS / "bytes.json"
MAX_QUERIES, PEER_AXES, OPQ_ROUNDS = 5000, 256, 20
POWERS, TEMPERED_BYTES = (0.0, 0.25, 0.5, 0.75, 1.0), 16  # 0 is PCA, 1 whitening
Row = dict[str, Any]
Vectors = NDArray[np.float32]


class Rows:
    """The searched rows, their queries and their nearest rows by the raw vectors."""

    def __init__(self, X: Vectors, y: NDArray[np.integer]) -> None:
        self.X, self.y = unit_rows(X), y
        order = np.random.default_rng(0).permutation(len(X))
        self.queries = np.sort(order[:MAX_QUERIES])
        self.near = nearest_rows(self.X[self.queries], self.X, 10, own=self.queries)[1]

    def score(self, Z: Vectors, decoded: Vectors) -> Row:
        """Recall@1 and the share of the raw neighbors, of float queries against decoded rows."""
        found = nearest_rows(Z[self.queries], decoded, 10, own=self.queries)[1]
        kept = (found[:, :, None] == self.near[:, None]).any(axis=1).mean()
        right = np.mean(self.y[found[:, 0]] == self.y[self.queries])
        return {"recall": round(float(right), 5), "kept": round(float(kept), 5)}


def by_l2(Z: Vectors, decoded: Vectors) -> tuple[Vectors, Vectors]:
    """Rows whose dot products rank as the Euclidean distances do."""
    length = -0.5 * np.square(decoded).sum(axis=1, keepdims=True)
    return np.hstack([Z, np.ones((len(Z), 1), np.float32)]), np.hstack([decoded, length])


def principal(X: Vectors, most: int) -> Vectors:
    """Unit rows, centered, in their leading principal axes."""
    centered = X - X.mean(axis=0)
    axes = np.linalg.eigh(np.cov(centered.T))[1]
    return np.ascontiguousarray(centered @ axes[:, ::-1][:, :most], np.float32)


def product_quantized(X: Vectors, n_bytes: int, rotate: bool) -> tuple[Vectors, Vectors]:
    rows = principal(X, PEER_AXES)
    rows = np.ascontiguousarray(np.pad(rows, ((0, 0), (0, -rows.shape[1] % n_bytes))))
    if rotate:
        turn = faiss.OPQMatrix(rows.shape[1], n_bytes)
        turn.niter = OPQ_ROUNDS
        turn.train(rows)
        rows = turn.apply(rows)
    quantizer = faiss.ProductQuantizer(rows.shape[1], n_bytes, 8)
    quantizer.train(rows)
    return by_l2(rows, quantizer.decode(quantizer.compute_codes(rows)))


def rabitq(X: Vectors, n_bytes: int) -> tuple[Vectors, Vectors]:
    """One bit per rotated principal axis and two floats per row, by faiss' own distances."""
    rows = principal(X, min(PEER_AXES, 8 * (n_bytes - 8)))
    turn = faiss.RandomRotationMatrix(rows.shape[1], rows.shape[1])
    turn.init(0)
    rows = turn.apply(rows)
    index = faiss.IndexRaBitQ(rows.shape[1], faiss.METRIC_L2)
    index.train(rows)
    index.add(rows)
    return by_l2(rows, index.reconstruct_n(0, len(rows)))


def first_columns(X: Vectors, n_bytes: int, output: str) -> tuple[Vectors, Vectors]:
    size = min(X.shape[1], 8 * n_bytes // BITS[output])
    rows = unit_rows(X[:, :size])
    return rows, coded(rows, output)


PEERS: dict[str, Callable[[Vectors, int], tuple[Vectors, Vectors]]] = {
    "first columns, int8": lambda X, n: first_columns(X, n, "int8"),
    "first columns, binary": lambda X, n: first_columns(X, n, "binary"),
    "faiss PQ": lambda X, n: product_quantized(X, n, rotate=False),
    "faiss OPQ": lambda X, n: product_quantized(X, n, rotate=True),
    "faiss RaBitQ": rabitq,
}


def tempered(fitted: Vectors, X: Vectors, n_components: int, power: float) -> Vectors:
    """Centered unit rows in their principal axes, divided by a power of the deviations."""
    mean = fitted.mean(axis=0)
    values, axes = np.linalg.eigh(np.cov((fitted - mean).T))
    values, axes = values[::-1][:n_components], axes[:, ::-1][:, :n_components]
    scale = np.maximum(values, 1e-9) ** (-power / 2)
    return unit_rows(((X - mean) @ (axes * scale)).astype(np.float32))


def without_mean_direction(fitted: Vectors, X: Vectors, n_components: int) -> Vectors:
    """Unit rows, not centered, without their mean's direction, in their leading axes."""
    mean = unit_rows(fitted.mean(axis=0)[None])[0]
    rest = fitted - np.outer(fitted @ mean, mean)
    axes = np.linalg.eigh(rest.T @ rest)[1][:, ::-1][:, :n_components]
    return unit_rows((X @ axes).astype(np.float32))  # the mean is no longer among the axes


def other_maps(rows: Rows, fitted: Vectors, most: int) -> Iterator[Row]:
    """The same product codes after maps that a reader may ask for."""
    for size, _, n_bytes in configurations(TEMPERED_BYTES, most, ["pq"]):
        place = {"bytes": n_bytes, "dim": size}
        best: Row = {"recall": -1.0}
        start = time.process_time()
        for power in POWERS:
            Z = tempered(fitted, rows.X, size, power)
            found = {**rows.score(Z, coded(Z, "pq", n_bytes)), "power": power}
            best = max(best, found, key=lambda row: row["recall"])
        seconds = round((time.process_time() - start) / len(POWERS), 2)
        yield {**place, "seconds": seconds, "system": "tempered PCA in hindsight, pq", **best}
        start = time.process_time()
        Z = without_mean_direction(fitted, rows.X, size)
        found = rows.score(Z, coded(Z, "pq", n_bytes))
        seconds = round(time.process_time() - start, 2)
        yield {**place, "seconds": seconds, "system": "mean direction removed, pq", **found}


def own_codes(
    rows: Rows, fitted: Vectors, sizes: list[int], most: int, codes: list[str]
) -> Iterator[Row]:
    """Codes of PCA and of RPML."""
    spaces: dict[tuple[str, int], tuple[Vectors, float]] = {}
    asked = [code for n in sizes for code in configurations(n, most, codes)]
    for size, output, n_bytes in asked:
        for method in chosen_methods(("pca", "rpml")):
            key = (method.name, size)
            if key not in spaces:
                start = time.process_time()
                model = method.fit(fitted, None, size, 0)[0]
                seconds = time.process_time() - start
                spaces[key] = unit_rows(np.asarray(model.transform(rows.X), np.float32)), seconds
            Z, seconds = spaces[key]
            start = time.process_time()
            decoded = coded(Z, output, n_bytes)
            seconds += time.process_time() - start
            place = {"bytes": n_bytes, "dim": size, "seconds": round(seconds, 2)}
            yield {**place, "system": f"{method.title}, {output}", **rows.score(Z, decoded)}


def peers(rows: Rows, sizes: list[int]) -> Iterator[Row]:
    for n in sizes:
        for name, peer in PEERS.items():
            if name == "faiss RaBitQ" and n <= 8:
                continue
            start = time.process_time()
            pair = peer(rows.X, n)
            place = {"bytes": n, "seconds": round(time.process_time() - start, 2)}
            yield {**place, "system": name, **rows.score(*pair)}


def measure(data: FeatureSet, use: str, sizes: list[int], codes: list[str]) -> Iterator[Row]:
    """Every system on one set; maps and codes of one's own, then the peers."""
    split = data.split
    X, y = (data.X, data.y) if use == "searched" else (split.X_test, split.y_test)
    rows, fitted = Rows(X, y), data.X if use == "searched" else split.X_train
    base = {"set": data.name, "use": use, "features": X.shape[1], "rows": len(X)}
    yield {**base, "bytes": 4 * X.shape[1], "system": "raw", **rows.score(rows.X, rows.X)}
    rank = int(np.linalg.matrix_rank(fitted[:2000] - fitted.mean(axis=0)))
    most = min(fitted.shape[1], len(fitted) - 1, rank)
    found = list(own_codes(rows, fitted, sizes, most, codes))
    found += other_maps(rows, unit_rows(fitted), most)
    if use == "searched":
        found += peers(rows, sizes)
    yield from ({**base, **row} for row in found)


def load() -> list[Row]:
    return json.loads(TARGET.read_text(encoding="utf8"))["rows"] if TARGET.exists() else []


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--sizes", default=",".join(map(str, BYTES)), help="bytes, by comma")
    arguments.add_argument("--codes", default=",".join(CODES), help="codes, by comma")
    arguments.add_argument("--uses", default="searched,new")
    given, source = arguments.parse_args(), commit()
    sizes, codes = [int(size) for size in given.sizes.split(",")], given.codes.split(",")
    for data in feature_sets(given.data, given.sets):
        for use in given.uses.split(","):
            rows = load()
            if any((row["set"], row["use"]) == (data.name, use) for row in rows):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows += measure(data, use, sizes, codes)
            content = {"source": source, "machine": machine(), "rows": rows}
            TARGET.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
            print(data.name, use, flush=True)


if __name__ == "__main__":
    main()
