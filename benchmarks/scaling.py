"""How do time and memory of a whole fit grow with the rows, and where does the time go?

Each size runs in a process of its own, so that its peak memory is its own. Prints the growth
exponent between sizes and each stage's share. `--sizes 10000,30000,100000,300000,1000000` is the
whole story; the default is quick. With `--mapped FOLDER` the rows are a memory-mapped file there,
and the peak is that of memory which no file backs: `--sizes 1000000,10000000 --mapped FOLDER`.
With `--solver cg` or `--solver stochastic` that solver trains, whatever the evidence says.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import warnings
from pathlib import Path

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


class PrivateMemory(threading.Thread):
    """The peak of the memory that no file backs, looked at ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_mb = 0.0

    def run(self) -> None:
        while True:
            status = Path("/proc/self/status").read_text(encoding="utf8")
            line = next(text for text in status.splitlines() if text.startswith("RssAnon"))
            self.peak_mb = max(self.peak_mb, int(line.split()[1]) / 1024)
            time.sleep(0.1)


def mapped_rows(n: int, d: int, folder: Path) -> np.ndarray:
    """The rows in a file of the folder, written once."""
    path = folder / f"mixture-{n}-{d}.npy"
    if not path.exists():
        rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
        mixture(n, d, seed=0, out=rows)
        rows.flush()
    return np.load(path, mmap_mode="r")


def one_size(n: int, d: int, l: int, folder: Path | None, solver: str | None) -> dict:
    X = mixture(n, d, seed=0) if folder is None else mapped_rows(n, d, folder)
    memory = PrivateMemory()
    if folder is not None:
        memory.start()
    RPML(l, training="always", max_iter=2, random_state=0).fit(X[:2000])  # compile
    expected = estimate_resources(
        n, d, X=X, mapped=folder is not None, n_components=l, random_state=0
    )
    before = peak_memory_mb()
    clock = Clock()
    trained = {} if solver is None else {"solver": solver, "training": "always"}
    start, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RPML(l, random_state=0, callback=clock, **trained).fit(X)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    labels = getattr(model, "labels_", np.empty(0, int))
    return {
        "n": n,
        "d": d,
        "components": l,
        "seconds": seconds,
        "CPU seconds": cpu,
        "peak MB": peak_memory_mb() if folder is None else memory.peak_mb,
        "estimated seconds": expected.seconds,
        "estimated peak MB": expected.memory / 2**20,
        "MB before the fit (data included)": before,
        "stages": clock.seconds,
        "outcome": model.outcome_,
        "triplets": len(getattr(model, "triplets_", ())),
        "clusters": int(labels.max(initial=-1)) + 1,
        "rows learned from": int((labels >= 0).sum()),
        "iterations": model.n_iter_,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="3000,10000,30000")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--mapped", type=Path, metavar="FOLDER")
    parser.add_argument("--solver", choices=("cg", "stochastic"))
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        shape = (options.one, options.features, options.components)
        print(json.dumps(one_size(*shape, options.mapped, options.solver)))
        return
    rows = []
    for n in (int(s) for s in options.sizes.split(",")):
        arguments = ["--one", n, "--features", options.features, "--components", options.components]
        arguments += ["--mapped", options.mapped] if options.mapped else []
        arguments += ["--solver", options.solver] if options.solver else []
        rows.append(in_new_process(__file__, *map(str, arguments)))
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
    name += "-mapped" if options.mapped else ""
    name += f"-{options.solver}" if options.solver else ""
    publish(name, {"rows": rows, "growth exponent": exponent})


if __name__ == "__main__":
    sys.exit(main())
