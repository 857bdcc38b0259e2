"""Hours, memory and tasks of a fit, an embedding and a scoring on large clusters, on paper.

python benchmarks/cluster_model.py

The constants come from the smallest size of results/cluster.json; the largest size checks them.
Costs are CPU seconds of one core; workers are processes with one core.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from common import RESULTS, publish

PARTITION, FAN_IN, QUERIES = 256 * 2**20, 8, 50_000
ROWS, WORKERS = (10**7, 10**8, 10**9), (8, 64, 512)
WIDTH, DIM = 768, 64
# assumed, not measured here:
FLOPS = 25e9  # per second and core, of a product of matrices in single precision
DISK = 0.5e9  # bytes per second and worker, from its share of the network or disk
TASK = 1e-3  # seconds of the scheduler per task; Dask says 200 microseconds to 1 ms


@dataclass(frozen=True)
class Costs:
    """CPU seconds per value (float32) of a row, besides products, and of what is done once."""

    read: float
    """Read, check, scale and center a value of a row."""
    embed: float
    """Read, check and scale a value of a row, and write its share of the embedding."""
    learn: float
    """Learn from the sample, in the client."""


def fitted(size: dict[str, Any]) -> Costs:
    """Return the constants of a measured size."""
    n, d, runs = size["rows"], size["features"], size["runs"]
    read = runs["fit"]["worker CPU seconds"] - products(n, d, d / 2)
    embed = runs["embed"]["worker CPU seconds"] - products(n, d, DIM)
    learn = runs["fit"]["process CPU seconds"]
    return Costs(max(0.0, read) / (n * d), max(0.0, embed) / (n * d), learn)


def products(n: float, d: float, l: float) -> float:
    """CPU seconds of (n x d) times (d x l)."""
    return 2 * n * d * l / FLOPS


def cpu_seconds(costs: Costs, n: float, d: int) -> dict[str, float]:
    """Return what the workers compute in each kind of work; a matrix of moments is symmetric."""
    return {
        "fit": costs.read * n * d + products(n, d, d / 2),
        "embed": costs.embed * n * d + products(n, d, DIM),
        "evaluate": 2 * products(min(n, QUERIES), DIM, n),
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
    costs, largest = fitted(sizes[0]), sizes[-1]
    expected = cpu_seconds(costs, largest["rows"], largest["features"])
    check = {
        kind: {
            "predicted": expected[kind],
            "measured": largest["runs"][kind]["worker CPU seconds"],
            "tasks": largest["runs"][kind]["tasks"],
        }
        for kind in ("fit", "embed")
    }
    results = {
        "constants from rows": sizes[0]["rows"],
        "costs": vars(costs),
        "checked at rows": largest["rows"],
        "check": check,
        "features": WIDTH,
        "components": DIM,
        "predicted": [predict(costs, n, workers) for n in ROWS for workers in WORKERS],
    }
    publish("cluster-model", results)


if __name__ == "__main__":
    sys.exit(main())
