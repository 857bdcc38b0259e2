"""How long does scoring an embedding take, and are our seeds of k-means as good as the library's?

python benchmarks/evaluation.py           small and medium sizes, a few minutes
python benchmarks/evaluation.py --full    60,502 x 512 rows of 11,316 classes as well, the size
                                          of Stanford Online Products' test set
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
from common import alternate, peak_memory_mb, publish
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.neighbors import NearestNeighbors

from rpml.evaluation.metrics import clustering_scores, kmeans, recall_at_k

SEEDS = 20  # data sets: the NMI of one run varies by a point
Rows = NDArray[np.float32]


def mixture(n: int, d: int, classes: int, noise: float, seed: int) -> tuple[Rows, NDArray[Any]]:
    """Unit rows around class centres, two rows per class or more."""
    rng = np.random.default_rng(seed)
    every = np.repeat(np.arange(classes), 2)
    y = np.sort(np.concatenate([every, rng.integers(0, classes, n - len(every))]))
    spectrum = (np.arange(1, d + 1) ** -0.7).astype(np.float32)
    centres = rng.standard_normal((classes, d), dtype=np.float32) * spectrum
    X = rng.standard_normal((n, d), dtype=np.float32)
    for rows in np.array_split(np.arange(n), 1 + n // 4096):  # in blocks: no copies of X
        X[rows] = centres[y[rows]] + noise * spectrum * X[rows]
        X[rows] /= np.linalg.norm(X[rows], axis=1, keepdims=True)
    return X, y


def compare_kmeans(n: int, d: int, classes: int, n_init: int) -> dict[str, Any]:
    """Run both over several data sets in turns: seconds, inertia and NMI."""
    seconds: dict[str, list[float]] = {"rpml": [], "scikit-learn": []}
    inertia: dict[str, list[float]] = {"rpml": [], "scikit-learn": []}
    nmi: dict[str, list[float]] = {"rpml": [], "scikit-learn": []}
    for seed in range(SEEDS):
        X, y = mixture(n, d, classes, 1.0, seed)
        for name in seconds:
            start = time.perf_counter()
            if name == "rpml":
                ours = kmeans(X, classes, np.random.default_rng(seed), n_init=n_init)
                labels, tight = ours.labels_, ours.inertia_
            else:
                theirs = KMeans(classes, n_init=n_init, random_state=seed).fit(X)
                labels, tight = theirs.labels_, theirs.inertia_
            seconds[name].append(time.perf_counter() - start)
            inertia[name].append(float(tight))
            nmi[name].append(float(normalized_mutual_info_score(y, labels)))
    gains = [a - b for a, b in zip(nmi["rpml"], nmi["scikit-learn"], strict=True)]
    ratios = [a / b for a, b in zip(inertia["rpml"], inertia["scikit-learn"], strict=True)]
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "rows": n,
        "dimensions": d,
        "clusters": classes,
        "n_init": n_init,
        "median_seconds": medians,
        "times_faster": medians["scikit-learn"] / medians["rpml"],
        "inertia_ratio_mean": statistics.mean(ratios),
        "inertia_ratio_standard_error": statistics.stdev(ratios) / len(ratios) ** 0.5,
        "nmi_mean": {name: statistics.mean(values) for name, values in nmi.items()},
        "nmi_gain_points_mean": 100 * statistics.mean(gains),
        "nmi_gain_points_standard_error": 100 * statistics.stdev(gains) / len(gains) ** 0.5,
    }


def compare_recall(n: int, d: int, classes: int, repeats: int) -> dict[str, Any]:
    """Recall@1..8 against scikit-learn's brute-force neighbors and against the bare products."""
    X, y = mixture(n, d, classes, 1.0, 0)

    def theirs() -> float:
        index = NearestNeighbors(n_neighbors=9, algorithm="brute", metric="cosine").fit(X)
        found = index.kneighbors(X, return_distance=False)
        others = [row[row != i][:8] for i, row in enumerate(found)]
        return float(np.mean([(y[row] == y[i]).any() for i, row in enumerate(others)]))

    subjects = {
        "rpml": lambda: recall_at_k(X, y),
        "scikit-learn": theirs,
        "products": lambda: products(X),
    }
    seconds = alternate(subjects, repeats)
    return {
        "rows": n,
        "dimensions": d,
        "median_seconds": seconds,
        "times_faster": seconds["scikit-learn"] / seconds["rpml"],
        "ratio_to_products": seconds["rpml"] / seconds["products"],
        "recall_at_8": {"rpml": recall_at_k(X, y, 8)[8], "scikit-learn": theirs()},
    }


def products(X: Rows) -> None:
    """Every row against every row, in blocks: what no exact method can avoid."""
    for start in range(0, len(X), 1024):
        for stop in range(0, len(X), 8192):
            X[start : start + 1024] @ X[stop : stop + 8192].T


def at_scale() -> dict[str, Any]:
    """Score the size of Stanford Online Products' test set."""
    n, d, classes = 60_502, 512, 11_316
    X, y = mixture(n, d, classes, 0.8, 0)
    recall_at_k(X[:2000], y[:2000])  # compiles
    seconds, results = {}, {}
    for name, run in {
        "products": lambda: products(X),
        "recall": lambda: recall_at_k(X, y),
        "clustering": lambda: clustering_scores(X, y),
    }.items():
        start = time.perf_counter()
        results[name] = run()
        seconds[name] = time.perf_counter() - start
    peak = peak_memory_mb()
    return {
        "rows": n,
        "dimensions": d,
        "classes": classes,
        "seconds": seconds,
        "recall_ratio_to_products": seconds["recall"] / seconds["products"],
        "data_mb": X.nbytes / 2**20,
        "peak_memory_mb": peak,
        "recall": {str(k): v for k, v in results["recall"].items()},
        "clustering": results["clustering"],
    }


def main() -> None:
    if "--full" in sys.argv[1:]:
        publish("evaluation-full", at_scale())
        return
    results = {
        "kmeans_small_k": compare_kmeans(6000, 128, 100, n_init=5),
        "kmeans_large_k": compare_kmeans(4000, 64, 600, n_init=1),
        "recall": compare_recall(12_000, 256, 1500, repeats=3),
    }
    publish("evaluation", results)


if __name__ == "__main__":
    main()
