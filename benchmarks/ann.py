"""Which approximate search of neighbors is worth keeping: our cells, faiss' HNSW or faiss' IVF?

python benchmarks/ann.py [--rows 60000]

50 neighbors of every row on three kinds of data: the generator of the other benchmarks (clear
clusters of low intrinsic dimension), 2,000 overlapping clusters, and isotropic noise. Recall is
measured on 400 rows searched exactly. IVF takes as many cells per query as a recall of
0.98 needs, up to a quarter of all; HNSW 32 links per row and 100 candidates per query. One thread;
seconds of processor time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import faiss
import numpy as np
from common import publish
from generators import mixture
from numpy.typing import NDArray

from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.threads import using_threads

K, WIDTH, CHECKED, TARGET = 50, 128, 400, 0.98
Rows = NDArray[np.float32]


def overlapping(n: int, centers: int = 2_000, intrinsic: int = 48) -> Rows:
    """Clusters as wide as the distances between their centers."""
    rng = np.random.default_rng(0)
    frame = np.linalg.qr(rng.standard_normal((WIDTH, intrinsic)))[0].T.astype(np.float32)
    means = rng.standard_normal((centers, intrinsic), dtype=np.float32)
    own = 0.9 * rng.standard_normal((n, intrinsic), dtype=np.float32)
    X = (means[rng.integers(0, centers, n)] + own) @ frame
    return X + 0.05 * rng.standard_normal(X.shape, dtype=np.float32)


def isotropic(n: int) -> Rows:
    return np.random.default_rng(0).standard_normal((n, WIDTH), dtype=np.float32)


KINDS: dict[str, Callable[[int], Rows]] = {
    "benchmark's generator": mixture,
    "overlapping clusters": overlapping,
    "isotropic": isotropic,
}


def recall(X: Rows, found: NDArray[np.integer]) -> float:
    rows = np.random.default_rng(1).choice(len(X), CHECKED, replace=False)
    flat = faiss.IndexFlatL2(X.shape[1])
    flat.add(X)
    true = flat.search(X[rows], K + 1)[1]
    hits = [np.isin(t[t != row][:K], found[row]).mean() for row, t in zip(rows, true, strict=True)]
    return float(np.mean(hits))


def timed(search: Callable[[], NDArray[np.integer]], X: Rows) -> dict[str, float]:
    start = time.process_time()
    found = search()
    seconds = time.process_time() - start
    return {"CPU seconds": round(seconds, 2), "recall": round(recall(X, found), 4)}


def ours(X: Rows) -> dict[str, object]:
    methods: list[str] = []

    def search() -> NDArray[np.integer]:
        found = nearest_neighbors(X, K, metric="euclidean", method="ann")
        methods.append(found.method)
        return found.indices

    return {**timed(search, X), "method": methods[0]}


def hnsw(X: Rows) -> dict[str, object]:
    def search() -> NDArray[np.integer]:
        index = faiss.IndexHNSWFlat(X.shape[1], 32)
        index.hnsw.efConstruction, index.hnsw.efSearch = 40, 2 * K
        index.add(X)
        return np.asarray(index.search(X, K + 1)[1])

    return timed(search, X)


def ivf(X: Rows) -> dict[str, object]:
    """Cells as faiss recommends, 4 sqrt(n), and as many per query as TARGET needs."""
    cells = int(4 * np.sqrt(len(X)))
    probe = [1]

    def search() -> NDArray[np.integer]:
        index = faiss.index_factory(X.shape[1], f"IVF{cells},Flat")
        index.train(X[:: max(1, len(X) // (64 * cells))])
        index.add(X)
        sample = X[:: len(X) // 200]
        index.nprobe = cells
        true = index.search(sample, K + 1)[1]
        while probe[0] < cells // 4:  # beyond, an exact search is cheaper
            index.nprobe = probe[0]
            found = index.search(sample, K + 1)[1]
            hits = [np.isin(t, f).mean() for t, f in zip(true, found, strict=True)]
            if np.mean(hits) >= TARGET:
                break
            probe[0] *= 2
        index.nprobe = probe[0]
        return np.asarray(index.search(X, K + 1)[1])

    return {**timed(search, X), "cells": cells, "searched": probe[0]}


def exact(X: Rows) -> dict[str, object]:
    return timed(lambda: nearest_neighbors(X, K, metric="euclidean", method="exact").indices, X)


SEARCHES = {"exact": exact, "cells": ours, "hnsw": hnsw, "ivf": ivf}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    rows = []
    with using_threads(1):
        nearest_neighbors(mixture(3000), K, metric="euclidean")  # compile
        for name in options.kinds.split(","):
            X = KINDS[name](options.rows)
            for search, run in SEARCHES.items():
                rows.append({"data": name, "rows": len(X), "search": search, **run(X)})
                print(rows[-1], flush=True)
    publish("ann", rows)


if __name__ == "__main__":
    main()
