"""What does a whole default fit of a few thousand rows cost, in units of what nobody can avoid?

python benchmarks/fits.py --data FOLDER [--against SRC] [--plain PYTHON] [--repeats 3]

CPU seconds of this process alone, in turns: the machine is shared. The units are the exact search
of 50 neighbors plus one PCA of the same rows. The whitening is counted without the principal axes,
which are that PCA. `--against` takes the src folder of another version, measured in the same run;
`--plain` an interpreter with the dependencies of rpml alone, for the fit in a fresh process, since
scikit-learn imports what else it finds installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import publish

SETS = {"cub_googlenet": 128, "banking77_minilm": 64}
FRESH = """
import rpml, numpy as np
rng = np.random.default_rng(0)
X = rng.normal(size=(40, 64))[rng.integers(40, size=1000)] + 0.3 * rng.normal(size=(1000, 64))
rpml.RPML(16, random_state=0).fit(X)
"""


def cpu_seconds(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def training_rows(path: Path) -> np.ndarray:
    with np.load(path) as file:
        X = file["rmac" if "rmac" in file else "X"]
        return np.asarray(X[file["train"]], np.float32)


def measure(X: np.ndarray, size: int, repeats: int) -> dict[str, float]:
    """Median CPU seconds of each subject, run in turns; and of the stages of a fit."""
    import rpml
    from rpml.method.whitening.linear_map import principal_axes
    from rpml.runtime.threads import single_blas_thread

    stages: dict[str, list[float]] = {}

    def fit() -> None:
        marks = [("prepare", time.process_time())]

        def listen(progress: Any) -> None:
            if progress.stage != marks[-1][0]:
                marks.append((progress.stage, time.process_time()))

        rpml.RPML(size, random_state=0, callback=listen).fit(X)
        marks.append(("", time.process_time()))
        for (name, start), (_, stop) in itertools.pairwise(marks):
            stages.setdefault(name, []).append(stop - start)

    subjects: dict[str, Callable[[], Any]] = {
        "fit": fit,
        "principal axes": single_blas_thread()(lambda: principal_axes(X, True)),
        "recommend": lambda: rpml.recommend(X, size),
        "stochastic": lambda: rpml.RPML(size, solver="stochastic", random_state=0).fit(X),
    }
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for repeat in range(repeats + 1):  # the first compiles
            for name, run in subjects.items():
                value = cpu_seconds(run)
                if repeat:
                    seconds[name].append(value)
    found = {name: statistics.median(values) for name, values in seconds.items()}
    return found | {f"stage {name}": statistics.median(v[1:]) for name, v in stages.items()}


def unavoidable(X: np.ndarray, size: int, repeats: int) -> float:
    """Median CPU seconds of the exact search of 50 neighbors and one PCA."""
    from sklearn.decomposition import PCA

    from rpml.method.graph.neighbors import nearest_neighbors
    from rpml.runtime.threads import single_blas_thread

    def run() -> None:
        with single_blas_thread():
            nearest_neighbors(X, 50, metric="cosine")
            PCA(size, svd_solver="covariance_eigh").fit(X)

    run()
    return statistics.median(cpu_seconds(run) for _ in range(repeats))


def in_version(source: Path, *arguments: str) -> Any:
    """The same measurement with the package of another folder."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, __file__, *arguments]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(out.stdout.strip().splitlines()[-1])


def fresh_process(source: Path, python: str, repeats: int) -> float:
    """CPU seconds of a process that imports rpml and fits 1,000 rows.

    Compiled code and Python's bytecode are cached, as those of an installed package are.
    """
    command = [python, "-W", "ignore", "-c", FRESH]
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(repeats + 1):  # the first fills the caches
            before = os.times()
            subprocess.run(command, check=True, env=environment)
            after = os.times()
            user = after.children_user - before.children_user
            seconds.append(user + after.children_system - before.children_system)
    return statistics.median(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--against", type=Path, help="src folder of another version")
    parser.add_argument("--plain", default=sys.executable, help="interpreter of a fresh process")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        X = training_rows(options.data / f"{options.one}.npz")
        print(json.dumps({"rows": list(X.shape), **measure(X, SETS[options.one], options.repeats)}))
        return
    own = Path(__file__).resolve().parent.parent / "src"
    sources = {"now": own} | ({"before": options.against} if options.against else {})
    results: dict[str, Any] = {}
    for name, size in SETS.items():
        X = training_rows(options.data / f"{name}.npz")
        row: dict[str, Any] = {
            "components": size,
            "search and PCA": unavoidable(X, size, options.repeats),
        }
        for version, source in sources.items():
            asked = ("--data", str(options.data), "--repeats", str(options.repeats))
            seconds = in_version(source, *asked, "--one", name)
            row["rows"] = seconds.pop("rows")
            row[version] = {key: round(value, 3) for key, value in seconds.items()}
            fit = seconds["fit"]
            row[version] |= {
                "fit / search and PCA": round(fit / row["search and PCA"], 2),
                "recommend / fit": round(seconds["recommend"] / fit, 2),
                "stochastic / fit": round(seconds["stochastic"] / fit, 2),
                "whitening's share": round(
                    (seconds["stage whiten"] - seconds["principal axes"]) / fit, 2
                ),
            }
        results[name] = row
        print(name, json.dumps(row))
    results["fresh process"] = {
        name: round(fresh_process(s, options.plain, options.repeats), 2)
        for name, s in sources.items()
    }
    print("fresh process", results["fresh process"])
    publish("fits", results)


if __name__ == "__main__":
    main()
