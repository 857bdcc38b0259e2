"""Hours, memory and tasks of a fit, an embedding and a scoring on large clusters, on paper.

python benchmarks/cluster_model.py

The constants come from the sizes of results/cluster.json but for 1M and 3M rows, which check them.
Costs are CPU seconds of one core; workers are processes with one core.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import RESULTS, publish

PARTITION, FAN_IN, QUERIES = 256 * 2**20, 8, 50_000
ROWS, WORKERS = (10**7, 10**8, 10**9), (8, 64, 512)
WIDTH, DIM = 768, 64
CHECKED = (1_000_000, 3_000_000)
# assumed, not measured here:
DISK = 0.5e9  # bytes per second and worker, from its share of the network or disk
TASK = 1e-3  # seconds of the scheduler per task; Dask says 200 microseconds to 1 ms


@dataclass(frozen=True)
class Costs:
    """CPU seconds per value (float32) of a row, besides products, and of what is done once."""

    read: float
    """Read, check, scale and center a value of a row."""
    embed: float
    """Read, check and scale a value of a row, and write its share of the embedding."""
    started: float
    """Of both workers: messages and what runs for the first time."""
    learn: float
    """Learn from the sample, in the client."""
    flops: float
    """Operations per second of a product in single precision."""

    def products(self, n: float, d: float, l: float) -> float:
        """CPU seconds of (n x d) times (d x l)."""
        return 2 * n * d * l / self.flops


def flops() -> float:
    """Measure products of the model's width on one core."""
    A, B = (np.ones((rows, WIDTH), np.float32) for rows in (8192, WIDTH))
    A @ B
    start = time.process_time()
    for _ in range(10):
        A @ B
    return 20 * 8192 * WIDTH**2 / (time.process_time() - start)


def fitted(sizes: list[dict[str, Any]]) -> Costs:
    """Return the constants of measured sizes, by least squares."""
    d, speed, slopes, starts = sizes[0]["features"], flops(), [], []
    rows = [size["rows"] for size in sizes]
    for kind, l in (("fit", d / 2), ("embed", DIM)):
        spent = [size["runs"][kind]["worker CPU seconds"] for size in sizes]
        slope, start = np.polyfit(rows, spent, 1)
        slopes.append(max(0.0, slope / d - 2 * l / speed))
        starts.append(max(0.0, start))
    learn = np.median([size["runs"]["fit"]["process CPU seconds"] for size in sizes])
    return Costs(*slopes, float(np.mean(starts)), float(learn), speed)


def cpu_seconds(costs: Costs, n: float, d: int) -> dict[str, float]:
    """Return what the workers compute in each kind of work; a matrix of moments is symmetric."""
    return {
        "fit": costs.started + costs.read * n * d + costs.products(n, d, d / 2),
        "embed": costs.started + costs.embed * n * d + costs.products(n, d, DIM),
        "evaluate": 2 * costs.products(min(n, QUERIES), DIM, n),
    }


def tasks(n: float, d: int) -> dict[str, float]:
    """Return the number of tasks; a partition has three in a fit, and a share in the tree."""
    parts = -(-n * d * 4 // PARTITION)
    tree = parts / (FAN_IN - 1)
    return {"fit": 3 * parts + tree, "embed": parts, "evaluate": 4 * parts + 2 * tree}


def predict(costs: Costs, n: int, workers: int) -> dict[str, Any]:
    """Return minutes and gigabytes of a cluster."""
    cpu, count = cpu_seconds(costs, n, WIDTH), tasks(n, WIDTH)
    read = n * WIDTH * 4 / workers / DISK
    minutes = {}
    for kind in cpu:
        busy = max(cpu[kind] / workers, read if kind != "evaluate" else 0.0)
        alone = costs.learn * WIDTH / 128 if kind == "fit" else 0.0
        minutes[kind] = (max(busy, count[kind] * TASK) + alone) / 60
    moments = WIDTH**2 * 8
    return {
        "rows": n,
        "workers": workers,
        "minutes": minutes,
        "tasks": count,
        "GB per worker": {
            "fit, embed": (4 * 2**25 + 2 * moments) / 1e9,
            "evaluate": (n * DIM * 4 / workers + QUERIES * DIM * 8) / 1e9,
        },
        "GB of the client": (8 * n + 50_000 * WIDTH * 4 * 4) / 1e9,
        "GB between workers": tasks(n, WIDTH)["fit"] / 3 * moments / 1e9,
    }


def main() -> None:
    content = json.loads((RESULTS / "cluster.json").read_text(encoding="utf8"))
    sizes = content["results"]["sizes"]
    known = [size for size in sizes if size["rows"] not in CHECKED]
    costs = fitted(known)
    check = [
        {
            "rows": size["rows"],
            kind: {
                "predicted": cpu_seconds(costs, size["rows"], size["features"])[kind],
                "measured": size["runs"][kind]["worker CPU seconds"],
                "tasks": size["runs"][kind]["tasks"],
            },
        }
        for size in sizes
        if size["rows"] in CHECKED
        for kind in ("fit", "embed")
    ]
    results = {
        "constants from rows": [size["rows"] for size in known],
        "costs": vars(costs),
        "check": check,
        "features": WIDTH,
        "components": DIM,
        "predicted": [predict(costs, n, workers) for n in ROWS for workers in WORKERS],
    }
    publish("cluster-model", results)


if __name__ == "__main__":
    sys.exit(main())
