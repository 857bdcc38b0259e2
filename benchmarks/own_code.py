"""Is what we wrote ourselves worth it next to the library that does the same?

python benchmarks/own_code.py [part ...]    parts: search csv model

CPU seconds are those of this process and all its threads. k-means is in evaluation.py, exact search
in knn.py. docs/decisions/written-by-hand.md has the conclusions.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, publish

SEED = 0


def cost(
    subjects: Mapping[str, Callable[[], Any]], repeats: int = 3, warm: bool = True
) -> dict[str, dict[str, float]]:
    """Median wall and CPU seconds of each subject, in turns, after one run to compile if warm."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in subjects}
    for run in subjects.values() if warm else ():
        run()
    for _ in range(repeats):
        for name, run in subjects.items():
            start = time.perf_counter(), time.process_time()
            run()
            times[name].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return {
        name: {
            "seconds": statistics.median(t[0] for t in runs),
            "cpu seconds": statistics.median(t[1] for t in runs),
        }
        for name, runs in times.items()
    }


def rows_of(n: int, d: int) -> np.ndarray:
    """A Gaussian mixture of intrinsic dimension 16, unit rows."""
    rng = np.random.default_rng(SEED)
    plane = rng.standard_normal((16, d), dtype=np.float32)
    latent = rng.standard_normal((n // 100, 16), dtype=np.float32)[rng.integers(0, n // 100, n)]
    X = (latent + 0.5 * rng.standard_normal((n, 16), dtype=np.float32)) @ plane
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def search(n: int = 60_000, d: int = 128, k: int = 50) -> dict[str, Any]:
    """Approximate k-NN of all rows: our cells against faiss IVF and HNSW."""
    import faiss

    from rpml.method.graph.neighbors import nearest_neighbors

    X = rows_of(n, d)
    faiss.omp_set_num_threads(2)
    queries = np.random.default_rng(1).choice(n, 500, replace=False)
    flat = faiss.IndexFlatIP(d)
    flat.add(X)
    truth = flat.search(X[queries], k + 1)[1]

    def ivf(nprobe: int) -> np.ndarray:
        index = faiss.index_factory(d, f"IVF{n // 600},Flat", faiss.METRIC_INNER_PRODUCT)
        index.train(X)
        index.add(X)
        index.nprobe = nprobe
        return index.search(X, k + 1)[1]

    found: dict[str, np.ndarray] = {}
    subjects = {
        "rpml cells": lambda: found.update(
            {"rpml cells": nearest_neighbors(X, k, metric="cosine", method="ann").indices}
        ),
        **{
            f"faiss IVF nprobe {p}": lambda p=p: found.update({f"faiss IVF nprobe {p}": ivf(p)})
            for p in (8, 16)
        },
    }
    nearest_neighbors(X[:2000], k, metric="cosine", method="ann")  # compile
    times = cost(subjects, repeats=1, warm=False)
    for name, indices in found.items():
        hits = [len(set(truth[i][1:]) & set(indices[q])) for i, q in enumerate(queries)]
        times[name]["recall"] = float(np.mean(hits)) / k
    return {"rows": n, "columns": d, "neighbors": k, **times}


def text(n: int = 20_000, d: int = 128) -> dict[str, Any]:
    """Reading a CSV file with ids and names."""
    from pyarrow import csv

    from rpml.io.features import read_features

    X = np.random.default_rng(SEED).standard_normal((n, d))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        with path.open("w", encoding="utf8") as file:
            print("id", *(f"f{i}" for i in range(d)), sep=",", file=file)
            for i, row in enumerate(X):
                print(f"row {i}", *row, sep=",", file=file)
        size = path.stat().st_size / 1e6
        times = cost({"rpml": lambda: read_features(path), "pyarrow": lambda: csv.read_csv(path)})
    return {"rows": n, "columns": d, "MB": size, **times}


def model(n: int = 2_000_000) -> dict[str, Any]:
    """Writing the arrays of a model: our writer against safetensors' own."""
    from safetensors.numpy import save_file

    from rpml.io.container import write_container

    rng = np.random.default_rng(SEED)
    arrays = {"rows": rng.standard_normal((n, 16)).astype(np.float32), "labels": np.arange(n)}
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours", Path(folder) / "theirs"
        times = cost(
            {
                "rpml, atomic and with a checksum": lambda: write_container(
                    ours, arrays, {}, "model", 1
                ),
                "safetensors": lambda: save_file(arrays, theirs),
            }
        )
    return {"MB": sum(a.nbytes for a in arrays.values()) / 1e6, **times}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "search": search,
    "csv": text,
    "model": model,
}


def main() -> None:
    import json

    path = RESULTS / "own-code.json"
    known = json.loads(path.read_text(encoding="utf8"))["results"] if path.exists() else {}
    publish("own-code", {**known, **{part: PARTS[part]() for part in sys.argv[1:] or PARTS}}, SEED)


if __name__ == "__main__":
    main()
