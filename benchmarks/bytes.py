"""Bytes per vector against Recall@1: codes of RPML, of PCA, of faiss and of the first columns.

python benchmarks/bytes.py --data DIR [--sets A,B] [--sizes 8,16] [--codes pq,int2] [--uses new]

Two uses: `searched`, fitted on the rows that are searched, and `new`, the map fitted on the
training classes and used on the others. Queries are floats, at most 1,000 per set, rows are codes
whose codebooks are learned from the searched rows. Peers at their best: unit rows, centered, PCA
to 256 dimensions where there are more, compared by L2. results/bytes.json is written after every
set, so an interrupted run continues; bytes_page.py makes the page.
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
MAX_QUERIES, PEER_AXES, OPQ_ROUNDS = 1000, 256, 20
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


def measure(data: FeatureSet, use: str, sizes: list[int], codes: list[str]) -> Iterator[Row]:
    """Every system on one set; maps and codes of one's own, then the peers."""
    split = data.split
    X, y = (data.X, data.y) if use == "searched" else (split.X_test, split.y_test)
    rows, fitted = Rows(X, y), data.X if use == "searched" else split.X_train
    base = {"set": data.name, "use": use, "features": X.shape[1], "rows": len(X)}
    yield {**base, "bytes": 4 * X.shape[1], "system": "raw", **rows.score(rows.X, rows.X)}
    rank = int(np.linalg.matrix_rank(fitted[:2000] - fitted.mean(axis=0)))
    most = min(fitted.shape[1], len(fitted) - 1, rank)
    spaces: dict[tuple[str, int], tuple[Vectors, float]] = {}
    asked = [code for n in sizes for code in configurations(n, most, codes)]
    for size, output, n_bytes in asked:
        for method in chosen_methods(("pca", "rpml")):
            key = (method.name, size)
            if key not in spaces:
                start = time.process_time()
                model = method.fit(fitted, None, size, 0)[0]
                seconds = time.process_time() - start
                spaces[key] = unit_rows(np.asarray(model.transform(X), np.float32)), seconds
            Z, seconds = spaces[key]
            start = time.process_time()
            decoded = coded(Z, output, n_bytes)
            seconds += time.process_time() - start
            place = {"bytes": n_bytes, "dim": size, "seconds": round(seconds, 2)}
            system = f"{method.title}, {output}"
            yield {**base, **place, "system": system, **rows.score(Z, decoded)}
    for n in sizes if use == "searched" else ():
        for name, peer in PEERS.items():
            if name == "faiss RaBitQ" and n <= 8:
                continue
            start = time.process_time()
            pair = peer(rows.X, n)
            place = {"bytes": n, "seconds": round(time.process_time() - start, 2)}
            yield {**base, **place, "system": name, **rows.score(*pair)}


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
