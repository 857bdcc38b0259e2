"""Is embedding a memory-mapped file as fast as the plain product, and does its memory stay small?

Writes a file of n x 128 float32, embeds it chunk by chunk as `rpml embed` does, and compares with
numpy's `X @ L` and with plain reading (a sum) over the same mapped file. `--rows 10000000` is the
whole story. `--in-memory` measures the ratio to the product in CPU seconds on rows in memory,
with 128 and 1024 features: both on one thread, and both on all threads, each with its own rows.
"""

from __future__ import annotations

import argparse
import copy
import functools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import alternate, publish

from rpml import RPML
from rpml.runtime.threads import single_blas_thread, times

CHUNK = 65_536
IN_MEMORY = {128: 64, 1024: 128}  # features -> size
BYTES = 2**28


def write(path: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    out = np.lib.format.open_memmap(path, "w+", np.float32, (rows, 128))
    for start in range(0, rows, CHUNK):
        stop = min(start + CHUNK, rows)
        out[start:stop] = rng.standard_normal((stop - start, 128), np.float32)


def ratios_in_memory(features: int, size: int) -> dict[str, float]:
    """CPU seconds of transform over those of the one product, on one thread and on all."""
    X = np.random.default_rng(1).standard_normal((BYTES // 4 // features, features), np.float32)
    model, L = fitted(X[:3000], size)

    alone = copy.copy(model).set_params(n_jobs=1)
    subjects = {"one thread": alone.transform, "all threads": model.transform}
    runs = {name: functools.partial(transform, X) for name, transform in subjects.items()}
    products = {
        "product, one thread": single_blas_thread()(lambda: X @ L),
        "product, all threads": lambda: times(X, L),
    }
    seconds = alternate(runs | products, repeats=15, clock=time.process_time)
    return {name: seconds[name] / seconds[f"product, {name}"] for name in runs}


def fitted(X: np.ndarray, size: int) -> tuple[RPML, np.ndarray]:
    """A model, and the matrix of its one product."""
    model = RPML(size, random_state=0, max_iter=5, tol=1e-2).fit(X)
    return model, np.asarray(model.preprocessing_.matrix @ model.components_.T, np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(options.write, options.rows)
        return
    if options.in_memory:
        ratios = {str(d): ratios_in_memory(d, size) for d, size in IN_MEMORY.items()}
        publish("transform-memory", {"CPU seconds / product": ratios})
        return
    rng = np.random.default_rng(0)
    model, L = fitted(rng.standard_normal((3000, 128)).astype(np.float32), 64)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        # in a process of its own: a child inherits the peak of its parent
        script = (sys.executable, __file__, "--rows", str(options.rows))
        subprocess.run([*script, "--write", str(path)], check=True)

        def chunks():
            X = np.load(path, mmap_mode="r")
            for start in range(0, options.rows, CHUNK):
                yield X[start : start + CHUNK]

        def embed() -> None:
            for chunk in chunks():
                model.transform(chunk)

        def product() -> None:
            for chunk in chunks():
                chunk @ L

        def read() -> None:
            for chunk in chunks():
                chunk.sum()

        model.save(Path(folder) / "model.rpml")
        command = [sys.executable, "-m", "rpml", "embed", str(Path(folder) / "model.rpml")]
        start = time.perf_counter()
        child = subprocess.Popen([*command, str(path), "-o", str(Path(folder) / "small.npy"), "-q"])
        usage = os.wait4(child.pid, 0)[2]
        whole = time.perf_counter() - start
        subjects = {"transform": embed, "X @ L": product, "reading": read}
        seconds = alternate(subjects, repeats=3)
    slower = max(seconds["X @ L"], seconds["reading"])
    publish(
        "transform",
        {
            "rows": options.rows,
            "seconds": seconds,
            "rows per second": options.rows / seconds["transform"],
            "transform / product": seconds["transform"] / seconds["X @ L"],
            "transform / the slower of product and reading": seconds["transform"] / slower,
            "rpml embed, seconds from file to file": whole,
            "rpml embed, peak MB": usage.ru_maxrss / 1024,
        },
    )


if __name__ == "__main__":
    main()
