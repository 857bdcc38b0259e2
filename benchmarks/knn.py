"""Is the exact neighbor search the fastest there is, and what does the approximate one find?

python benchmarks/knn.py            50 neighbors, exact: ours, scikit-learn brute force, faiss Flat
python benchmarks/knn.py --large    1,000,000 x 128 rows by cells, with the recall measured

Wall-clock seconds are what a user waits; on a busy machine the seconds of processor time compare
the methods more fairly, so both are kept.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from common import peak_memory_mb, publish
from generators import mixture
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.threads import thread_count

K = 50
SIZES = ((20_000, 1024), (50_000, 128))
Rows = NDArray[np.float32]


def ours(X: Rows) -> None:
    nearest_neighbors(X, K, metric="euclidean", method="exact")


def scikit_learn(X: Rows) -> None:
    NearestNeighbors(n_neighbors=K + 1, algorithm="brute").fit(X).kneighbors(X)


def faiss_flat(X: Rows) -> None:
    index = faiss.IndexFlatL2(X.shape[1])
    index.add(X)
    index.search(X, K + 1)


SUBJECTS: dict[str, Callable[[Rows], None]] = {
    "rpml": ours,
    "scikit-learn brute": scikit_learn,
    "faiss Flat": faiss_flat,
}


def timed(run: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds of wall clock and of processor time, and what came out."""
    wall, work = time.perf_counter(), time.process_time()
    out = run()
    return time.perf_counter() - wall, time.process_time() - work, out


def exact(n: int, d: int, repeats: int) -> dict[str, Any]:
    """Medians over runs in turns."""
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in SUBJECTS}
    for run in SUBJECTS.values():
        run(X[:3000])  # compile, start the threads
    for _ in range(repeats):
        for name, run in SUBJECTS.items():
            wall, work, _ = timed(lambda run=run: run(X))
            times[name].append((wall, work))
    median = {
        name: [statistics.median(column) for column in zip(*pairs, strict=True)]
        for name, pairs in times.items()
    }
    return {
        "rows": n,
        "columns": d,
        "neighbors": K,
        "threads": thread_count(),
        "repeats": repeats,
        "seconds": {name: wall for name, (wall, _) in median.items()},
        "processor seconds": {name: work for name, (_, work) in median.items()},
        "times faster": {name: m[0] / median["rpml"][0] for name, m in median.items()},
        "times less work": {name: m[1] / median["rpml"][1] for name, m in median.items()},
    }


def approximate(n: int, method: str) -> dict[str, Any]:
    """The committed mixture: 10,000 centres of intrinsic dimension 16, plus noise."""
    X = mixture(n)
    nearest_neighbors(X[:3000], K, metric="euclidean")  # compile
    before = peak_memory_mb()
    wall, work, found = timed(lambda: nearest_neighbors(X, K, metric="euclidean", method=method))
    return {
        "rows": n,
        "columns": X.shape[1],
        "neighbors": K,
        "threads": thread_count(),
        "method": found.method,
        "recall": found.recall,
        "seconds": wall,
        "processor seconds": work,
        "peak MB": peak_memory_mb(),
        "MB before (data included)": before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    faiss.omp_set_num_threads(thread_count())
    if options.large:
        publish("knn-large", approximate(options.rows, "auto"))
        return
    publish("knn", {f"{n} x {d}": exact(n, d, options.repeats) for n, d in SIZES})


if __name__ == "__main__":
    main()
