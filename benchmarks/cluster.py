"""What does the fit on Dask cost, stage by stage, and how does it grow with workers and rows?

python benchmarks/cluster.py --name NAME ...      with, for each of the files in results/
    cluster-overhead        --sizes 50000,100000 --repeats 3 --only pair,local
    cluster-workers         --sizes 100000 --repeats 3 --only one,two
    cluster-workers-400k    --sizes 400000 --only one,two
    cluster-million         --sizes 1000000 --only two
    cluster-sizes           --sizes 200000,400000 --only two       (the model's)
    cluster-predicted       --sizes 600000 --only two

Each size is written as .npy shards first. "one" and "two" are that many workers of one thread;
"pair" is one worker with two threads, to be compared with "local", the fit in this process with two
threads. Every fit runs in a process of its own, in turns; compiled kernels are loaded beforehand by
a small fit. Memory is each worker's largest resident set, seen by the operating system.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from common import in_new_process, peak_memory_mb, publish
from generators import mixture

from rpml import RPML
from rpml.runtime.context import Progress

SHARD_ROWS = 50_000
KINDS = {"one": (1, 1), "two": (2, 1), "pair": (1, 2)}


class Clock:
    """Seconds between the first event of a stage and the first of the next."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, float]] = []

    def __call__(self, progress: Progress) -> None:
        if not self.marks or self.marks[-1][0] != progress.stage:
            self.marks.append((progress.stage, time.perf_counter()))

    def stages(self, end: float) -> dict[str, float]:
        out: dict[str, float] = {}
        for (name, start), (_, stop) in zip(self.marks, [*self.marks[1:], ("", end)], strict=True):
            out[name] = out.get(name, 0.0) + stop - start
        return out


def settings(options: argparse.Namespace) -> dict:
    return {
        "n_components": options.components,
        "training": "always",
        "max_iter": options.max_iter,
        "random_state": 0,
    }


def write_shards(folder: Path, n: int, d: int) -> Path:
    """The rows as shards, made once."""
    target = folder / f"{n}x{d}"
    if not target.exists():
        target.mkdir(parents=True)
        X = mixture(n, d)
        for i, start in enumerate(range(0, n, SHARD_ROWS)):
            np.save(target / f"part-{i:05d}.npy", X[start : start + SHARD_ROWS])
    return target


def report(model: RPML, seconds: float, clock: Clock, end: float) -> dict:
    return {
        "seconds": seconds,
        "stages": clock.stages(end),
        "iterations": model.n_iter_,
        "trials": sum(model.history_["trials"]),
        "clusters": int(model.labels_.max()) + 1,
        "triplets": len(model.triplets_),
        "loss": model.history_["loss"][-1] / len(model.triplets_),
    }


def fit_local(folder: Path, options: argparse.Namespace) -> dict:
    from rpml.io.features import read_features

    RPML(4, max_iter=2, n_neighbors=10).fit(mixture(3000, 32, centers=30))
    clock = Clock()
    start = time.perf_counter()
    X = read_features(folder).values
    model = RPML(**settings(options), callback=clock).fit(X)
    end = time.perf_counter()
    return {**report(model, end - start, clock, end), "peak MB": peak_memory_mb()}


def fit_dask(folder: Path, kind: str, options: argparse.Namespace) -> dict:
    import dask

    from rpml.distributed import Cluster, DaskRPML, open_rows

    workers, threads = KINDS[kind]
    limit = options.memory_limit
    dask.config.set({"distributed.admin.low-level-log-length": 100_000})  # all transfers
    with Cluster(workers=workers, threads=threads, memory_limit=limit) as cluster:
        small = folder.parent / "small"
        if not small.exists():
            write_shards(folder.parent, 3000, 32).rename(small)
        DaskRPML(4, max_iter=2, n_neighbors=10).fit(small, cluster=cluster)
        cluster.client.run_on_scheduler(_forget)
        clock, notes = Clock(), Notes()
        before, begun = cluster.client.run(_tasks), cluster.client.run(_cpu)
        start = time.perf_counter()
        rows = open_rows(folder, cluster)
        partitions = len(rows.edges) - 1
        model = DaskRPML(**settings(options), callback=clock).fit(rows, cluster=cluster)
        end = time.perf_counter()
        out = report(model, end - start, clock, end)
        out |= {"partitions": partitions, "client peak MB": peak_memory_mb()}
        out["worker peak MB"] = list(cluster.client.run(_peak).values())
        now = cluster.client.run(_cpu)
        out["worker CPU seconds"] = [now[worker] - begun.get(worker, 0.0) for worker in now]
        out["task CPU seconds"] = spent(before, cluster.client.run(_tasks))
        out["notes"] = notes.said
        out["network MB"] = sum(cluster.client.run(_received).values()) / 2**20
    return out


class Notes(logging.Handler):
    """What the neighbor search logs: cells, how many a row looks into, recall."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        logger = logging.getLogger("rpml.distributed")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def spent(before: dict, after: dict) -> dict[str, float]:
    """Processor seconds of each kind of task on all workers: other programs do not change them."""
    out: dict[str, float] = {}
    for worker, tasks in after.items():
        for name, seconds in tasks.items():
            out[name] = out.get(name, 0.0) + seconds - before.get(worker, {}).get(name, 0.0)
    return dict(sorted(((k, round(v, 3)) for k, v in out.items()), key=lambda item: -item[1]))


def _tasks(dask_worker: Any) -> dict[str, float]:
    out: dict[str, float] = {}
    for key, value in dask_worker.digests_total.items():
        if isinstance(key, tuple) and key[0] == "execute" and key[-2] == "thread-cpu":
            out[key[-3]] = out.get(key[-3], 0.0) + value
    return out


def _forget(dask_scheduler: Any) -> None:
    """What Dask learned about the length of tasks from the small fit would mislead it."""
    for prefix in dask_scheduler.task_prefixes.values():
        prefix.duration_average = -1


def _peak() -> float:
    return peak_memory_mb()


def _cpu() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


def _received(dask_worker: Any) -> int:
    """Bytes fetched from other workers."""
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def one_size(n: int, options: argparse.Namespace) -> dict:
    """Medians of every kind, run in turns."""
    kinds = options.only.split(",") if options.only else ["one", "two", "pair", "local"]
    runs: dict[str, list[dict]] = {kind: [] for kind in kinds}
    for _ in range(options.repeats):
        for kind in kinds:
            arguments = ["--one", kind, "--sizes", str(n), "--folder", options.folder]
            for name in ("features", "components", "max_iter", "memory_limit"):
                arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
            runs[kind].append(in_new_process(__file__, *arguments))
            print(n, kind, f"{runs[kind][-1]['seconds']:.1f} s", flush=True)
    out: dict = {"rows": n}
    for kind, found in runs.items():
        middle = statistics.median_low([run["seconds"] for run in found])
        out[kind] = next(run for run in found if run["seconds"] == middle)
    if "one" in out and "two" in out:
        out["speed-up of two workers"] = out["one"]["seconds"] / out["two"]["seconds"]
    if "pair" in out and "local" in out:
        out["overhead over local"] = out["pair"]["seconds"] / out["local"]["seconds"] - 1
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="20000,50000,100000")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--max-iter", type=int, default=30)
    parser.add_argument("--memory-limit", default="3GB")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", help="some of one,two,pair,local")
    parser.add_argument("--folder", help="where the shards are written; a temporary one else")
    parser.add_argument("--name", default="cluster")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        folder = Path(options.folder) / f"{options.sizes}x{options.features}"
        warnings.simplefilter("ignore")
        run = fit_local(folder, options) if options.one == "local" else None
        print(json.dumps(run or fit_dask(folder, options.one, options)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        options.folder = options.folder or temporary
        rows = []
        for n in (int(s) for s in options.sizes.split(",")):
            write_shards(Path(options.folder), n, options.features)
            rows.append(one_size(n, options))
    publish(options.name, {"features": options.features, "sizes": rows})


if __name__ == "__main__":
    sys.exit(main())
