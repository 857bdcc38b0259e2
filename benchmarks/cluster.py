"""What do a fit and an embedding cost on a cluster, and what on one process?

python benchmarks/cluster.py --rows 300000,1000000,3000000

Mixtures (generators.py) in .npy shards, two workers with one thread each. CPU seconds count: of the
process, and on Dask also of its workers. Both fits learn from the same 50,000 rows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import publish
from generators import mixture

from rpml import RPML
from rpml.estimator.features import embed_file
from rpml.io.features import open_features, read_features

SHARD, SAMPLE, DIM = 100_000, 50_000, 64


def write(folder: Path, n: int, d: int) -> tuple[Path, Path]:
    """Write the rows as one file and as shards."""
    whole, shards = folder / f"{n}.npy", folder / f"{n}"
    shards.mkdir()
    X = np.lib.format.open_memmap(whole, "w+", np.float32, (n, d))
    mixture(n, d, out=X)
    for i, start in enumerate(range(0, n, SHARD)):
        np.save(shards / f"part-{i}.npy", X[start : start + SHARD])
    return whole, shards


class Meter:
    """CPU seconds of this process and of the workers, seconds by the clock, and tasks."""

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.rows = cluster, {}

    def _now(self) -> tuple[float, float, float, int]:
        workers = self.cluster.client.run(time.process_time) if self.cluster else {}
        tasks = self.cluster.tasks if self.cluster else 0
        return time.process_time(), sum(workers.values()), time.perf_counter(), tasks

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        before = self._now()
        out = work()
        spent = [b - a for a, b in zip(before, self._now(), strict=True)]
        keys = ("process CPU seconds", "worker CPU seconds", "seconds", "tasks")
        self.rows[name] = dict(zip(keys, spent, strict=True))
        print(name, self.rows[name], flush=True)
        return out


def settings() -> dict[str, Any]:
    return {"n_components": DIM, "subsample": SAMPLE, "training": "always", "random_state": 0}


def one_size(n: int, d: int, cluster: Any, folder: Path) -> dict[str, Any]:
    from rpml.distributed import DaskRPML, embed

    whole, shards = write(folder, n, d)
    meter, local_meter = Meter(cluster), Meter(None)

    def fit_here() -> RPML:
        return RPML(**settings()).fit(read_features(whole).values)

    def embed_here() -> int:
        return embed_file(local, open_features(str(shards)), str(folder / f"local-{n}.npy"))

    local = local_meter("local fit", fit_here)
    model = meter("fit", lambda: DaskRPML(**settings()).fit(str(shards), cluster=cluster))
    local_meter("local embed", embed_here)
    out = folder / f"out-{n}"
    meter("embed", lambda: embed(local, str(shards), out, cluster, kind="npy"))
    cosines = np.linalg.svd(model.components_ @ local.components_.T)[1]
    runs = local_meter.rows | meter.rows
    cpu = {name: sum(list(row.values())[:2]) for name, row in runs.items()}
    return {
        "rows": n,
        "features": d,
        "runs": runs,
        "fit, CPU of Dask / local": cpu["fit"] / cpu["local fit"],
        "embed, CPU of Dask / local": cpu["embed"] / cpu["local embed"],
        "smallest cosine of the subspaces": float(cosines.min()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="300000,1000000")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--name", default="cluster")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from rpml.distributed import Cluster

    class Counting(Cluster):
        """Counts the tasks it submits."""

        tasks = 0

        def submit(self, work: Any, *arguments: Any) -> Any:
            self.tasks += 1
            return super().submit(work, *arguments)

        def each(self, work: Any, /, *columns: Any, **shared: Any) -> Any:
            self.tasks += len(columns[0])
            return super().each(work, *columns, **shared)

    with (
        Counting(workers=2, threads=1, memory_limit="3GB") as cluster,
        tempfile.TemporaryDirectory() as folder,
    ):
        one_size(60_000, options.features, cluster, Path(folder))  # compile
        sizes = [
            one_size(n, options.features, cluster, Path(folder))
            for n in map(int, options.rows.split(","))
        ]
    publish(options.name, {"sample": SAMPLE, "components": DIM, "sizes": sizes})


if __name__ == "__main__":
    sys.exit(main())
