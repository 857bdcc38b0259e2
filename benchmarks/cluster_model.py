"""Does a model of what each stage costs predict a size that it has not seen?

python benchmarks/cluster_model.py --fit 200000,1000000 --predict 400000

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
from typing import Any

from common import RESULTS, publish

FILES = ("cluster-million", "cluster-sizes")
STAGES = {
    "read": ("look", "readpart"),
    "whitening: one task": ("scatter",),
    "whitening: moments, preprocessing": ("rowsum", "secondmoments", "apply"),
    "k-means centres": ("centersums", "rowsof", "moved"),
    "nearest centres": ("probes", "cellsizes", "dealcells"),
    "rows searched exactly": ("scan", "needed", "short"),
    "search": ("search",),
    "visitors, merging": ("visitors", "merge", "item"),
    "graph and ascent": (
        *("ownscale", "joined", "bandwidths", "found", "returned", "bothends", "degrees"),
        *(
            "rpml",
            "authority",
            "strongest",
            "threshold",
            "ascend",
            "followed",
            "numbered",
            "narrow",
        ),
    ),
    "triplets": ("makepool", "draw", "count", "readby", "cut", "pick", "join"),
    "optimiser": (
        *("make", "move", "gradients", "setline", "along", "accept", "weightsum", "terms"),
    ),
    "modes": ("sums", "middles", "best"),
}
BETWEEN = "serialising, moving"


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


def laws(s: dict[str, float]) -> dict[str, float]:
    """What each stage grows with."""
    n, K = s["n"], cells(s["n"])
    return {
        "read": n,
        "whitening: one task": 1.0,
        "whitening: moments, preprocessing": n,
        "k-means centres": min(n, 64 * K) * K,
        "nearest centres": n * K,
        "rows searched exactly": n,
        "search": n * s["m"] * n / K,
        "visitors, merging": n,
        "graph and ascent": n,
        "triplets": s["T"],
        "optimiser": s["T"] * s["steps"],
        "modes": n,
        BETWEEN: n,
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


def constants(known: dict[int, dict[str, Any]]) -> dict[str, float]:
    """Seconds a unit of each law: the mean over the sizes, by ratio."""
    out = {}
    for stage in laws(size_of(next(iter(known.values())), 1)):
        ratios = [measured(run)[stage] / laws(size_of(run, n))[stage] for n, run in known.items()]
        out[stage] = math.exp(sum(math.log(max(r, 1e-15)) for r in ratios) / len(ratios))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit", default="200000,1000000", help="sizes the constants come from")
    parser.add_argument("--predict", default="400000", help="the size they are applied to")
    parser.add_argument("--name", default="cluster-model")
    options = parser.parse_args()
    runs = read_runs()
    known = {n: runs[n] for n in map(int, options.fit.split(","))}
    found = constants(known)
    target = int(options.predict)
    size = size_of(runs[target], target)
    guess = {stage: found[stage] * x for stage, x in laws(size).items()}
    truth = measured(runs[target])
    results = {
        "fitted on": sorted(known),
        "predicted": target,
        "cells a row looks into": {n: size_of(run, n)["m"] for n, run in sorted(runs.items())},
        "constants": found,
        "stages": {s: {"predicted": guess[s], "measured": truth[s]} for s in guess},
        "sum": {"predicted": sum(guess.values()), "measured": sum(truth.values())},
    }
    publish(options.name, results)


if __name__ == "__main__":
    sys.exit(main())
