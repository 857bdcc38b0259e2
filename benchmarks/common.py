"""What every benchmark needs: alternating timings, medians, peak memory, a JSON file of results."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAUSE = 0.1  # seconds; BLAS' threads spin for a while after a product and would slow what follows
PACKAGES = ("rpml", "numpy", "scipy", "scikit-learn", "numba")


def alternate(
    subjects: Mapping[str, Callable[[], Any]],
    repeats: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each subject, run in turns so that a noisy neighbor hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for run in subjects.values():
        run()  # compile, warm the caches
    for _ in range(repeats):
        for name, run in subjects.items():
            time.sleep(PAUSE)
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def peak_memory_mb() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_new_process(script: str, *arguments: str) -> dict[str, Any]:
    """Run a benchmark file as a process of its own and return the JSON it prints last."""
    command = [sys.executable, script, *arguments]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def machine() -> dict[str, Any]:
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf8").splitlines()
            if line.startswith("model name")
        )
        if Path("/proc/cpuinfo").exists()
        else (),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def publish(name: str, results: Mapping[str, Any], seed: int = 0) -> Path:
    """Write benchmarks/results/<name>.json and print what is in it."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {"benchmark": name, "seed": seed, "machine": machine(), "results": results}
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf8")
    print(json.dumps(results, indent=2))
    print(f"written to {path}")
    return path
