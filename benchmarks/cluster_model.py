"""What will a fit on a cluster cost? Constants from measured sizes, predictions for others.

python benchmarks/cluster_model.py                         constants, checks, extrapolation
python benchmarks/cluster_model.py --predict 500000        one more size

Reads results/cluster-size-*.json (see cluster.py). Each kind of task has a law of growth; its
constant is
the processor seconds measured at the largest of the sizes it is calibrated with.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import RESULTS, publish

CELL, SAMPLE, TRAINING, ROUNDS, K = 600, 800, 64, 8, 50


@dataclass(frozen=True)
class Size:
    """Rows, and what follows from them."""

    n: float
    d: int = 128
    l: int = 64
    triplets: float = 400_000
    partitions: float = 8
    probes: float = 24.0
    """Cells a row looks into."""
    visits: float = 4.0
    """Buckets a row looks into."""
    evaluations: float = 40.0
    """Gradients and trials of the optimiser."""

    @property
    def cells(self) -> float:
        return min(self.n / CELL, 2 * np.sqrt(self.n))

    @property
    def compared(self) -> float:
        """Rows each row is compared with."""
        return self.probes * self.n / self.cells


LAWS = {
    "read": lambda s: s.n * s.d,
    "whitening: moments": lambda s: s.n * s.d**2,
    "whitening: scatter": lambda s: 1.0,
    "neighbours: centres": lambda s: TRAINING * ROUNDS * s.cells**2 * s.d,
    "neighbours: cells of a row": lambda s: s.n * s.cells * s.d,
    "neighbours: sample": lambda s: SAMPLE * s.n * s.d,
    "neighbours: search": lambda s: s.n * s.compared * s.d,
    "neighbours: merge": lambda s: s.n * s.visits * K,
    "graph": lambda s: s.n * K,
    "ascent": lambda s: s.n * K,
    "optimiser": lambda s: s.evaluations * s.triplets * s.l,
}
TASKS = {
    "readpart": "read",
    "look": "read",
    "rowsum": "whitening: moments",
    "secondmoments": "whitening: moments",
    "apply": "whitening: moments",
    "scatter": "whitening: scatter",
    "centersums": "neighbours: centres",
    "moved": "neighbours: centres",
    "probes": "neighbours: cells of a row",
    "scan": "neighbours: sample",
    "visitors": "neighbours: search",
    "search": "neighbours: search",
    "merge": "neighbours: merge",
    "found": "graph",
    "returned": "graph",
    "bothends": "graph",
    "ascend": "ascent",
    "modes": "ascent",
    "degrees": "ascent",
    "strongest": "ascent",
    "threshold": "ascent",
    "authority": "ascent",
    "bandwidths": "ascent",
    "along": "optimiser",
    "gradients": "optimiser",
    "setline": "optimiser",
    "accept": "optimiser",
    "move": "optimiser",
    "weightsum": "optimiser",
    "make": "optimiser",
}


def measured(run: dict) -> dict[str, float]:
    """Processor seconds of each law in a run of cluster.py."""
    out = dict.fromkeys(LAWS, 0.0)
    for task, seconds in run["task CPU seconds"].items():
        law = TASKS.get(task.removeprefix("rpml-"))
        if law is not None:
            out[law] += seconds
    return out


def size_of(n: int, run: dict) -> Size:
    """The size of a run, with what it reported of itself."""
    text = " ".join(run["notes"])
    probes = float(text.split("looks into ")[1].split()[0]) if "looks into" in text else 24.0
    return Size(
        n,
        triplets=run["triplets"],
        partitions=run["partitions"],
        probes=probes,
        evaluations=run["trials"] + run["iterations"] + 1,
    )


def runs() -> dict[int, dict]:
    found = {}
    for path in sorted(RESULTS.glob("cluster-size-*.json")):
        for entry in json.loads(Path(path).read_text(encoding="utf8"))["results"]["sizes"]:
            found[int(entry["rows"])] = entry["two"]
    return dict(sorted(found.items()))


def constants(n: int, run: dict) -> dict[str, float]:
    """Nanoseconds a unit of each law."""
    size = size_of(n, run)
    return {law: 1e9 * seconds / LAWS[law](size) for law, seconds in measured(run).items()}


def predict(size: Size, unit: dict[str, float]) -> dict[str, float]:
    return {law: unit[law] * LAWS[law](size) / 1e9 for law in LAWS}


def traffic(size: Size) -> dict[str, float]:
    """Gigabytes that cross partitions, at four bytes a number."""
    row = 4.0 * size.d
    return {
        "neighbours: rows out": size.n * size.visits * (row + 4 * size.probes) / 1e9,
        "neighbours: lists back": size.n * size.visits * K * 12 / 1e9,
        "graph": size.n * K * 12 / 1e9,
        "triplets": min(3 * size.triplets, size.n) * row / 1e9,
        "vectors, each worker": 24 * size.n / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calibrate", type=int, help="rows of the run the constants come from")
    parser.add_argument("--predict", type=int, default=0)
    options = parser.parse_args()
    known = runs()
    base = options.calibrate or max(known)
    unit = constants(base, known[base])
    out: dict = {"calibrated with": base, "nanoseconds a unit": unit, "checks": []}
    for n, run in known.items():
        found, guess = measured(run), predict(size_of(n, run), unit)
        check = {"rows": n, "measured": sum(found.values()), "predicted": sum(guess.values())}
        out["checks"].append(check | {"stages": {k: [found[k], guess[k]] for k in LAWS}})
    probes = size_of(base, known[base]).probes
    for n in (options.predict, 100_000_000, 1_000_000_000):
        if n:
            size = Size(n, probes=probes, triplets=4e5 if n < 1e7 else 4e6)
            out[f"{n:,} rows"] = {
                "core seconds": predict(size, unit),
                "total core hours": sum(predict(size, unit).values()) / 3600,
                "gigabytes moved": traffic(size),
            }
    publish("cluster-model", out)


if __name__ == "__main__":
    sys.exit(main())
