"""End to end on images: the frozen features, sRPML and every competitor from one trunk cache.

    python benchmarks/deep.py --data cub130 --backbone googlenet.onnx --work /tmp/deep

Trains on the training classes, scores on the others. A row that is in the results already is not
measured again; remove it to measure it again. The results are written after every row.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
from common import RESULTS, machine

from rpml.deep.backbones import open_network
from rpml.deep.cache import ImageSpec
from rpml.deep.descriptors import descriptors
from rpml.deep.embedder import has_bf16
from rpml.deep.finetune import Training
from rpml.deep.methods import METHODS
from rpml.deep.protocol import DeepProtocol
from rpml.deep.schedule import Schedule
from rpml.deep.state import State
from rpml.evaluation.metrics import first_hit_rank, kmeans
from rpml.evaluation.metrics.partitions import normalized_mutual_information as nmi
from rpml.evaluation.registry import METHODS as REGISTRY
from rpml.io.datasets.folders import read_folders
from rpml.runtime.context import Context
from rpml.runtime.rows import unit_rows
from rpml.vision.views import Views

KMEANS = 10
RESAMPLES = 200
FROZEN = ("raw", "pca", "half-whitened", "pca-whitened", "rpml")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder with train/ and test/ classes")
    parser.add_argument("--backbone", required=True, help="GoogLeNet as ONNX")
    parser.add_argument("--work", required=True, help="folder of caches and finished epochs")
    parser.add_argument("--name", default="cub130_deep")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="0", help="comma-separated")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--views", type=int, default=8)
    parser.add_argument("--train-from", default="inception_5a")
    return parser.parse_args()


def revision() -> str:
    """The commit on main that is measured, with or without commits on top of it."""
    command = ["git", "merge-base", "HEAD", "main"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()[:7]


def scored(Z: np.ndarray, y: np.ndarray, resamples: int = RESAMPLES) -> dict:
    """R@1 with one digit per query (1: correct), NMI with its values on resampled images.

    NMI is the mean over ten k-means: a single one varies by half a point. The resamples are the
    same for every row, so that differences between rows are paired.
    """
    Z, codes = unit_rows(Z), np.unique(y, return_inverse=True)[1]
    ranks = first_hit_rank(Z, y)
    found = [kmeans(Z, codes.max() + 1, np.random.default_rng(k)).labels for k in range(KMEANS)]
    samples = np.random.default_rng(0).integers(0, len(y), (resamples, len(y)))
    nmis = [nmi(labels, codes) for labels in found]
    again = [np.mean([nmi(labels[rows], codes[rows]) for labels in found]) for rows in samples]
    return {
        "r1": float(np.mean(ranks == 0)),
        "nmi": float(np.mean(nmis)),
        "nmi_of_each_kmeans": [round(value, 4) for value in nmis],
        "nmi_resampled": [round(float(value), 5) for value in again],
        "hits": "".join("1" if rank == 0 else "0" for rank in ranks),
    }


class Rows:
    """The results on disk."""

    def __init__(self, path: Path, settings: dict) -> None:
        self.path, self.settings = path, settings
        self.rows = json.loads(path.read_text())["rows"] if path.exists() else []

    def has(self, method: str, seed: int | None) -> bool:
        """Whether there is a row of this seed; None: of any seed."""
        return any(r["method"] == method and seed in (None, r["seed"]) for r in self.rows)

    def add(self, row: dict) -> None:
        """Append a row; several processes may write to the same file."""
        with open(self.path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.path.exists():
                self.rows = json.loads(self.path.read_text())["rows"]
            self.rows.append({"source": "measured", "revision": revision(), **row})
            content = {"machine": machine(), "settings": self.settings, "rows": self.rows}
            self.path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
        figures = f"{100 * row['r1']:.1f} {100 * row['nmi']:.1f}"
        print(row["method"], row["seed"], figures, flush=True)


def frozen_rows(protocol: DeepProtocol, rows: Rows, dim: int, seed: int) -> None:
    """Rows of the descriptors before training."""
    train, test = protocol.initial.frozen[:, 0], protocol.test_descriptors()
    for name in FROZEN:
        # only RPML depends on the seed
        if rows.has(f"frozen {name}", seed if name == "rpml" else None):
            continue
        start = time.perf_counter()
        made = REGISTRY[name].build(dim, seed)
        Z = made.fit(train).transform(test)
        took = round(time.perf_counter() - start, 1)
        found = scored(Z, protocol.test_classes)
        rows.add({"method": f"frozen {name}", "title": f"frozen, {name}", "uses_labels": False,
                  "seed": seed, "dim": Z.shape[1], **found, "seconds": took})  # fmt: skip


def purity(labels: np.ndarray | None, classes: np.ndarray) -> float | None:
    """Share of the rows in the majority class of their pseudo-label; singletons are ignored."""
    if labels is None:
        return None
    sizes = np.bincount(labels[labels >= 0])
    kept = (labels >= 0) & (sizes[np.maximum(labels, 0)] > 1)
    most = [np.bincount(classes[labels == k]).max() for k in np.unique(labels[kept])]
    return float(sum(most) / max(1, kept.sum()))


def watcher(protocol: DeepProtocol):
    """R@1 on the test classes and purity of the pseudo-labels after every epoch."""

    def evaluate(state: State) -> dict[str, float]:
        Z = descriptors(state.teacher, protocol.test, 0)
        found = {"r1": float(np.mean(first_hit_rank(Z, protocol.test_classes) == 0))}
        share = purity(state.labels, protocol.classes)
        return found if share is None else {**found, "purity": share}

    return evaluate


def main() -> None:
    chosen = arguments()
    images = read_folders(chosen.data)
    network = open_network(chosen.backbone, chosen.train_from)
    settings = {k: getattr(chosen, k) for k in ("epochs", "dim", "size", "views", "train_from")}
    settings |= {"bf16": has_bf16(), "schedule": asdict(Schedule(chosen.epochs))}
    rows = Rows(RESULTS / f"{chosen.name}.json", settings)
    for seed in map(int, chosen.seeds.split(",")):
        schedule = Schedule(chosen.epochs, seed=seed)
        image_spec = ImageSpec(chosen.size, Views(chosen.views))
        training = Training(chosen.dim, "mac", has_bf16(), image_spec, schedule)
        report = Context(report=lambda p: None)
        protocol = DeepProtocol(images, network, training, Path(chosen.work), report)
        frozen_rows(protocol, rows, chosen.dim, seed)
        for name in filter(None, chosen.methods.split(",")):
            if rows.has(name, seed):
                continue
            row, Z = protocol.measure(name, (1,), watcher(protocol))
            found = scored(Z, protocol.test_classes)
            rows.add({"method": name, "title": METHODS[name].title, "seed": seed,
                      "uses_labels": row.uses_labels, "dim": row.dim, **found,
                      "seconds": row.seconds, "epochs": row.settings["history"]})  # fmt: skip


if __name__ == "__main__":
    main()
