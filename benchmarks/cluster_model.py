"""Does a model of what each stage costs predict a size that it has not seen?

python benchmarks/cluster_model.py --fit 200000,1000000 --predict 400000,600000

Reads the runs of cluster.py on two workers. Each stage has a law, what it grows with; its constant
comes from the processor seconds of the sizes given to --fit and is applied to the others. How many
cells a row looks into is no constant: it follows from the data and is what the fit itself measures
on 400 rows before it searches, so that it is taken from the size that is predicted.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from typing import Any

import numpy as np
from common import RESULTS, publish
from scipy.optimize import nnls

FILES = ("cluster-million", "cluster-sizes", "cluster-predicted")
STAGES = {
    "read": ("look", "readpart"),
    "whitening: one task": ("scatter",),
    "whitening: moments, preprocessing": ("rowsum", "secondmoments", "apply"),
    "k-means centres": ("centersums", "rowsof", "moved"),
    "nearest centres": ("probes", "cellsizes", "dealcells"),
    "rows searched exactly": ("scan", "needed", "short"),
    "search": ("search",),
    "visitors, merging": ("visitors", "looks", "merge", "item"),
    "graph and ascent": (
        *("ownscale", "joined", "bandwidths", "found", "returned", "bothends", "degrees"),
        *("rpml", "authority", "scaledauthority", "strongest", "threshold"),
        *("ascend", "ascendscaled", "followed", "numbered", "narrow"),
    ),
    "triplets": ("makepool", "draw", "count", "readby", "cut", "pick", "join"),
    "optimiser": (
        *("make", "move", "gradients", "setline", "along", "accept", "weightsum", "terms"),
    ),
    "modes": ("sums", "middles", "best"),
}
BETWEEN = "serialising, moving"
CLUSTERS = {  # what is extrapolated to: nodes of 16 cores, 10 Gbit/s
    "100 million": {"n": 1e8, "nodes": 32, "GB a node": 128, "partition": 1e6},
    "1 billion": {"n": 1e9, "nodes": 128, "GB a node": 256, "partition": 4e6},
}
CORES, WIDTH, K_NEIGHBORS, TRIPLETS = 16, 128, 50, 4e6
VISITS = 4.2  # buckets a row looked into where the constants come from


def cells(n: float) -> float:
    return min(n / 600, 2 * math.sqrt(n))


def size_of(run: dict[str, Any], n: int) -> dict[str, float]:
    """What the laws need to know of a run."""
    looks = next(re.search(r"looks into (\d+)", note) for note in run["notes"] if "looks" in note)
    return {
        "n": n,
        "m": float(looks[1]),
        "T": run["triplets"],
        "steps": run["iterations"] * 2 + run["trials"],
    }


def laws(s: dict[str, float]) -> dict[str, list[float]]:
    """What each stage grows with: the terms of its cost."""
    n, K = s["n"], cells(s["n"])
    sample = min(n, 64 * K)
    return {
        "read": [n],
        "whitening: one task": [1.0],
        "whitening: moments, preprocessing": [n],
        "k-means centres": [sample * K, sample],
        "nearest centres": [n * K, n],
        "rows searched exactly": [n],
        "search": [n * s["m"] * n / K, n],  # products; filling the heaps and making lists
        "visitors, merging": [n],
        "graph and ascent": [n],
        "triplets": [s["T"]],
        "optimiser": [s["T"] * s["steps"]],
        "modes": [n],
        BETWEEN: [n],
    }


def measured(run: dict[str, Any]) -> dict[str, float]:
    """Processor seconds of each stage, and what the workers spent outside of tasks."""
    tasks = {name.removeprefix("rpml-"): s for name, s in run["task CPU seconds"].items()}
    out = {stage: sum(tasks.get(name, 0.0) for name in names) for stage, names in STAGES.items()}
    out[BETWEEN] = sum(run["worker CPU seconds"]) - sum(out.values())
    return out


def read_runs() -> dict[int, dict[str, Any]]:
    runs = {}
    for name in FILES:
        content = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf8"))
        runs |= {row["rows"]: row["two"] for row in content["results"]["sizes"]}
    return runs


def constants(known: dict[int, dict[str, Any]]) -> dict[str, list[float]]:
    """Seconds a unit of each term, the smallest relative errors over the sizes."""
    sizes = [(measured(run), laws(size_of(run, n))) for n, run in known.items()]
    out = {}
    for stage in sizes[0][1]:
        relative = np.array([np.array(terms[stage]) / truth[stage] for truth, terms in sizes])
        unit = relative.max(axis=0)
        out[stage] = (nnls(relative / unit, np.ones(len(sizes)))[0] / unit).tolist()
    return out


def costs(found: dict[str, list[float]], size: dict[str, float]) -> dict[str, float]:
    """Processor seconds of each stage."""
    return {stage: float(np.dot(found[stage], terms)) for stage, terms in laws(size).items()}


def task_seconds(count: int = 20_000) -> float:
    """What a task costs that does nothing: client, scheduler and worker, by the clock."""
    from rpml.distributed import Cluster

    with Cluster(workers=2, threads=1) as cluster:
        cluster.values([cluster.submit(abs, -1) for _ in range(200)])
        start = time.perf_counter()
        cluster.values([cluster.submit(abs, -i) for i in range(count)])
        return (time.perf_counter() - start) / count


def extrapolate(
    cluster: dict[str, float], found: dict[str, list[float]], m: float, task: float
) -> dict:
    """Seconds of each stage, gigabytes and tasks on a cluster; every row visits m buckets."""
    n, nodes = cluster["n"], cluster["nodes"]
    size = {"n": n, "m": m, "T": TRIPLETS, "steps": 12}
    core = costs(found, size)
    more = m / VISITS - 1
    core["visitors, merging"] *= 1 + more
    core["search"] += more * found["search"][1] * n  # a heap and a list a visit
    row = 4 * WIDTH + 4 * m + 8 * K_NEIGHBORS + 8  # sent to a bucket, and what comes back
    moved = n * m * row / 1e9
    core[BETWEEN] *= moved / (n * 3.3e-6)  # measured at 3.3 GB a million rows
    share = cluster["GB a node"] * 1e9 / CORES
    row = 4 * (12 * WIDTH + 16 * K_NEIGHBORS)
    bucket = min(2e6, 0.4 * share / row)
    partitions, buckets = n / cluster["partition"], max(2 * CORES * nodes, n / bucket)
    tasks = partitions * (2 * buckets + partitions)
    alone = core.pop("whitening: one task")
    return {
        "seconds": {stage: s / (CORES * nodes) for stage, s in core.items()} | {"one task": alone},
        "core seconds": core,
        "cells, rows in each": [cells(n), n / cells(n)],
        "moved GB, a node, seconds": [moved, moved / nodes, moved / nodes / 1.25],
        "rows, neighbors and edges GB a node": n * (4 * WIDTH + 24 * K_NEIGHBORS) / 1e9 / nodes,
        "search task GB": bucket * row / 1e9,
        "partitions, buckets, tasks": [partitions, buckets, tasks],
        "scheduler seconds": tasks * task,
        "vectors GB a worker, labels GB on the client": [3 * 8 * n / 1e9, 8 * n / 1e9],
        "kept neighbors GB": n * K_NEIGHBORS * 8 / 1e9,
    }


def check(found: dict[str, list[float]], run: dict[str, Any], n: int) -> dict:
    """Predicted and measured processor seconds of a size."""
    size = size_of(run, n)
    guess, truth = costs(found, size), measured(run)
    return {
        "rows": n,
        "cells a row looks into": size["m"],
        "stages": {s: {"predicted": guess[s], "measured": truth[s]} for s in guess},
        "sum": {"predicted": sum(guess.values()), "measured": sum(truth.values())},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", default="200000,1000000", help="sizes the constants come from")
    parser.add_argument("--predict", default="400000,600000", help="sizes they are applied to")
    parser.add_argument("--name", default="cluster-model")
    options = parser.parse_args()
    runs = read_runs()
    known = {n: runs[n] for n in map(int, options.fit.split(","))}
    found = constants(known)
    task = task_seconds()
    m = size_of(runs[max(runs)], max(runs))["m"]
    results = {
        "fitted on": sorted(known),
        "constants": found,
        "predicted": [check(found, runs[n], n) for n in map(int, options.predict.split(","))],
        "seconds a task": task,
        "extrapolated": {k: extrapolate(c, found, m, task) for k, c in CLUSTERS.items()},
    }
    publish(options.name, results)


if __name__ == "__main__":
    sys.exit(main())
