"""How do time and memory of a whole fit grow with the rows, and where does the time go?

Each size runs in a process of its own, so that its peak memory is its own. Prints the growth
exponent between sizes and each stage's share. `--sizes 10000,30000,100000,300000,1000000` is the
whole story; the default is quick.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings

import numpy as np
from common import in_new_process, peak_memory_mb, publish
from generators import mixture

from rpml import RPML, estimate_resources
from rpml.runtime.context import Progress


class Clock:
    """Seconds of each stage, from the progress events."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started: dict[str, float] = {}

    def __call__(self, progress: Progress) -> None:
        now = time.perf_counter()
        start = self._started.setdefault(progress.stage, now)
        self.seconds[progress.stage] = now - start


def one_size(n: int, d: int, l: int) -> dict:
    X = mixture(n, d, seed=0)
    RPML(l, max_iter=2, random_state=0).fit(X[:2000])  # compile
    expected = estimate_resources(n, d, X=X, n_components=l, random_state=0)
    before = peak_memory_mb()
    clock = Clock()
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RPML(l, random_state=0, callback=clock).fit(X)
    seconds = time.perf_counter() - start
    stages = dict(clock.seconds)
    stages["labels"] = stages.get("labels", 0.0) - stages.get("neighbors", 0.0)  # nested
    return {
        "n": n,
        "d": d,
        "components": l,
        "seconds": seconds,
        "peak MB": peak_memory_mb(),
        "estimated seconds": expected.seconds,
        "estimated peak MB": expected.memory / 2**20,
        "MB before the fit (data included)": before,
        "stages": stages,
        "triplets": len(model.triplets_),
        "clusters": int(model.labels_.max()) + 1,
        "iterations": model.n_iter_,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="3000,10000,30000")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_size(options.one, options.features, options.components)))
        return
    rows = []
    for n in (int(s) for s in options.sizes.split(",")):
        arguments = ("--one", str(n), "--features", str(options.features))
        rows.append(in_new_process(__file__, *arguments, "--components", str(options.components)))
        shares = {k: f"{v / rows[-1]['seconds']:.0%}" for k, v in rows[-1]["stages"].items()}
        last = rows[-1]
        print(
            f"{n}: {last['seconds']:.1f} s (estimated {last['estimated seconds']:.1f}), "
            f"{last['peak MB']:.0f} MB (estimated {last['estimated peak MB']:.0f})",
            shares,
            flush=True,
        )
    exponent = None
    if len(rows) > 1:
        logs = np.log([[r["n"], r["seconds"]] for r in rows])
        exponent = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    name = "scaling" if options.features == 128 else f"scaling-{options.features}"
    publish(name, {"rows": rows, "growth exponent": exponent})


if __name__ == "__main__":
    sys.exit(main())
