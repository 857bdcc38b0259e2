"""End to end on images: the frozen features, sRPML and every competitor from one trunk cache.

    python benchmarks/deep.py rates --data cub130 --backbone googlenet.onnx --work /tmp/deep
    python benchmarks/deep.py splits ...
    python benchmarks/deep.py table ...
    python benchmarks/deep.py pipeline ...

rates     every method at two learning rates, trained on one half of the training classes and
          scored on the other; the same rule chooses the rate of each (`chosen_rates`)
splits    some methods on five random splits of all classes, at their chosen rates
table     every method on the training and test classes of the folder, at their chosen rates
pipeline  the linear RPML fitted anew on descriptors before and after training by sRPML, of the
          image alone and averaged over its views

A row that is in the results already is not measured again; remove it to measure it again. The
results are written after every row, and several processes may add to them.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, machine
from deep_baselines import ALL as METHODS
from sklearn.metrics import normalized_mutual_info_score as nmi

from rpml.deep.backbones import Network, open_network
from rpml.deep.embedder import (
    Embedder,
    MultiViewDataset,
    descriptors,
    frozen_descriptors,
    has_bf16,
    linear_start,
)
from rpml.deep.finetune import Training, descriptor_network
from rpml.deep.inputs import ImageSpec, open_inputs
from rpml.deep.methods.base import Method
from rpml.deep.trainer import Schedule, Trainer
from rpml.estimator import RPML
from rpml.evaluation.metrics import first_hit_rank, kmeans
from rpml.evaluation.registry import chosen_methods
from rpml.io.datasets.image_sets import read_folders
from rpml.runtime.context import Context
from rpml.runtime.rows import unit_rows
from rpml.vision.images import ImageFile, Views

KMEANS = 10
RESAMPLES = 100
START = "rpml, views as groups"  # where training starts
FROZEN = ("raw", "pca", "half-whitened", "pca-whitened", "rpml", START)
RATES = (3e-4, 1e-3)
SPLIT_METHODS = ("srpml", "deepcluster", "invariant", "stml", "triplet-hard")
N_SPLITS = 5
SEEDS = (0, 1, 2)
HALVES_SEED, SPLITS_SEED = 7, 11
KEY = ("problem", "method", "recipe", "learning_rate", "seed")
Row = dict[str, Any]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("rates", "splits", "table", "pipeline"))
    parser.add_argument("--methods", help="comma-separated; default: all of the step")
    parser.add_argument("--halves", default="1,2", help="on which halves rates are compared")
    add_common(parser)
    return parser.parse_args()


def add_common(parser: argparse.ArgumentParser) -> None:
    """What deep_choice.py takes as well."""
    parser.add_argument("--data", required=True, help="folder with train/ and test/ classes")
    parser.add_argument("--backbone", required=True, help="GoogLeNet as ONNX")
    parser.add_argument("--work", required=True, help="folder of the trunk cache")
    parser.add_argument("--name", default="cub130_deep")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--views", type=int, default=8)
    parser.add_argument("--train-from", default="inception_5a")


def revision() -> str:
    """The commit on main that is measured, with or without commits on top of it."""
    command = ["git", "merge-base", "HEAD", "main"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()[:7]


def subset(cache: MultiViewDataset, chosen: np.ndarray) -> MultiViewDataset:
    """Some of the images of a cache."""
    return MultiViewDataset(
        len(chosen), cache.n_views, lambda rows, views: cache.load(chosen[rows], views)
    )


class Images:
    """All images in one trunk cache, with their descriptors before training."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.training = Training(chosen.dim, "mac", has_bf16(), schedule=Schedule(chosen.epochs))
        self.network: Network = open_network(chosen.backbone, chosen.train_from)
        found, work = read_folders(chosen.data), Path(chosen.work)
        files = [ImageFile(path, found.root / path) for path in found.paths]
        spec = ImageSpec(chosen.size, Views(chosen.views))
        self.cache = open_inputs(files, self.network, spec, work / "trunk", Context())
        where = [found.paths.index(name) for name in self.cache.ids]
        self.classes, self.is_train = found.labels[where], found.train[where]
        if not (work / "frozen.npy").exists():
            plain = descriptor_network(self.network, self.cache, self.training)
            np.save(work / "frozen.npy", frozen_descriptors(plain, self.cache))
        self.frozen = np.load(work / "frozen.npy", mmap_mode="r")
        rng, n, k = np.random.default_rng(0), len(self.classes), self.classes.max() + 1
        self.counts = {  # how often each image is drawn; the same for every row: paired intervals
            "images": rng.multinomial(n, np.full(n, 1 / n), RESAMPLES),
            "classes": rng.multinomial(k, np.full(k, 1 / k), RESAMPLES)[:, self.classes],
        }

    @property
    def test_classes(self) -> Problem:
        return Problem("test classes", self, np.flatnonzero(self.is_train), ~self.is_train)

    def halves(self) -> Iterator[Problem]:
        """The training classes in two halves: train on one, score on the other, both ways."""
        seen = np.unique(self.classes[self.is_train])
        order = np.random.default_rng(HALVES_SEED).permutation(seen)
        for number in (0, 1):
            held = np.isin(self.classes, order[number::2])
            train = np.flatnonzero(self.is_train & ~held)
            yield Problem(f"half {number + 1}", self, train, held)

    def splits(self) -> Iterator[Problem]:
        """All classes, split at random into as many for training and test as in the folder."""
        n_test = len(np.unique(self.classes[~self.is_train]))
        rng = np.random.default_rng(SPLITS_SEED)
        for number in range(1, N_SPLITS + 1):
            held = np.isin(self.classes, rng.permutation(self.classes.max() + 1)[:n_test])
            yield Problem(f"split {number}", self, np.flatnonzero(~held), held)


@dataclass(frozen=True)
class Problem:
    """Images to train on, and images of other classes to score."""

    name: str
    images: Images
    train: np.ndarray
    held: np.ndarray

    @property
    def classes(self) -> np.ndarray:
        return np.unique(self.images.classes[self.train], return_inverse=True)[1]

    @property
    def frozen(self) -> np.ndarray:
        return np.asarray(self.images.frozen[self.train])

    @cached_property
    def fits(self) -> dict[int, RPML]:
        return {}

    def linear(self, seed: int) -> RPML:
        """The linear RPML on the descriptors of all views before training, fitted once."""
        if seed not in self.fits:
            self.fits[seed] = linear_start(self.frozen, self.images.training.dim, seed)
        return self.fits[seed]

    def start(self, seed: int) -> Embedder:
        """The network before training with the linear RPML on top."""
        fitted, training = self.linear(seed), self.images.training
        return Embedder(
            self.images.network.upper,
            training.pool,
            fitted.preprocessing_,
            fitted.components_.T,
            training.bf16,
        )

    def trained(
        self, method: Method, schedule: Schedule
    ) -> tuple[Embedder, list[dict[str, float]]]:
        """The embedder after training, and its history."""
        inputs, start = subset(self.images.cache, self.train), self.start(schedule.seed)
        trainer = Trainer(start, inputs, method, schedule, self.frozen, self.classes)
        return trainer.run(), trainer.history

    def score(self, embedder: Embedder) -> Row:
        held = subset(self.images.cache, np.flatnonzero(self.held))
        return self.scores(descriptors(embedder, held, 0))

    def scores(self, Z: np.ndarray) -> Row:
        """R@1 and NMI, each also on resampled images and on resampled classes.

        NMI is the mean over ten k-means: a single one varies by half a point.
        """
        y = np.unique(self.images.classes[self.held], return_inverse=True)[1]
        Z = unit_rows(Z)
        hit = first_hit_rank(Z, y) == 0
        found = [kmeans(Z, y.max() + 1, np.random.default_rng(k)).labels_ for k in range(KMEANS)]
        row: Row = {"r1": float(hit.mean()), "nmi": float(np.mean([nmi(p, y) for p in found]))}
        for kind, counts in self.images.counts.items():
            drawn = [np.repeat(np.arange(len(y)), count[self.held]) for count in counts]
            values = [float(np.mean([nmi(p[rows], y[rows]) for p in found])) for rows in drawn]
            row[f"r1_{kind}"] = [round(float(hit[rows].mean()), 4) for rows in drawn]
            row[f"nmi_{kind}"] = [round(value, 4) for value in values]
        return row


class Rows:
    """The results on disk."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.path = RESULTS / f"{chosen.name}.json"
        names = ("epochs", "dim", "size", "views", "train_from")
        schedule = asdict(Schedule(chosen.epochs))
        self.settings = {name: getattr(chosen, name) for name in names}
        self.settings |= {"bf16": has_bf16(), "schedule": schedule}
        self.rows: list[Row] = []
        self.read()

    def read(self) -> None:
        if self.path.exists():
            self.rows = json.loads(self.path.read_text(encoding="utf8"))["rows"]

    def has(self, **key: object) -> bool:
        """Whether there is a row with these values, by now."""
        self.read()
        return any(all(row.get(k) == v for k, v in key.items()) for row in self.rows)

    def add(self, row: Row) -> None:
        """Append a row; several processes may write to the same file."""
        with open(self.path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.has(**{name: row[name] for name in KEY if name in row}):
                return  # another process was faster
            self.rows.append({"revision": revision(), **row})
            temporary = self.path.with_suffix(".tmp")
            temporary.write_text(self._text(), encoding="utf8")
            temporary.replace(self.path)  # others may be reading
        figures = f"{100 * row['r1']:.1f} {100 * row['nmi']:.1f} {row['seconds']:.0f} CPU s"
        print({k: row[k] for k in list(row)[:4]}, figures, flush=True)

    def _text(self) -> str:
        """JSON with one line per row."""
        lines = ",\n".join(json.dumps(row) for row in self.rows)
        head = json.dumps({"machine": machine(), "settings": self.settings})
        return f'{head[:-1]},\n"rows": [\n{lines}\n]}}\n'


def chosen_rates(rows: list[Row]) -> dict[str, float]:
    """The learning rate of each method: the one with the highest R@1 + NMI on the halves."""
    found: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        if row["problem"].startswith("half") and row["method"] in METHODS:
            rates = found.setdefault(row["method"], {})
            rates.setdefault(row["learning_rate"], []).append(row["r1"] + row["nmi"])
    return {name: max(rates, key=lambda r: np.mean(rates[r])) for name, rates in found.items()}


def measure(problem: Problem, rows: Rows, name: str, rate: float, seed: int) -> None:
    """Add the row of a method unless it is there."""
    key = {"problem": problem.name, "method": name, "learning_rate": rate, "seed": seed}
    if rows.has(**key):
        return
    begun = time.process_time()
    schedule = replace(problem.images.training.schedule, learning_rate=rate, seed=seed)
    embedder, history = problem.trained(METHODS[name], schedule)
    seconds = round(time.process_time() - begun, 1)
    rows.add({**key, "title": METHODS[name].title, "uses_labels": METHODS[name].uses_labels,
              "dim": problem.images.training.dim, **problem.score(embedder), "seconds": seconds,
              "loss": [round(epoch["loss"], 4) for epoch in history]})  # fmt: skip


def measure_frozen(problem: Problem, rows: Rows, seed: int) -> None:
    """Add the rows of the descriptors before training; only RPML depends on the seed."""
    train, test = problem.frozen[:, 0], np.asarray(problem.images.frozen[problem.held, 0])
    for name in FROZEN if seed == SEEDS[0] else ("rpml", START):
        key = {"problem": problem.name, "method": f"frozen {name}", "seed": seed}
        if rows.has(**key):
            continue
        begun = time.process_time()
        if name == START:
            Z = problem.linear(seed).transform(test)
        else:
            Z = (
                chosen_methods([name])[0]
                .build(problem.images.training.dim, seed)
                .fit(train)
                .transform(test)
            )
        seconds = round(time.process_time() - begun, 1)
        rows.add({**key, "learning_rate": None, "title": f"frozen, {name}", "uses_labels": False,
                  "dim": Z.shape[1], **problem.scores(Z), "seconds": seconds})  # fmt: skip


def measure_pipeline(problem: Problem, rows: Rows, rate: float, seed: int) -> None:
    """Add the rows of the linear RPML on descriptors of the image alone, and of all its views."""
    images, networks = problem.images, {"frozen": None, "trained": METHODS["srpml"]}
    for name, method in networks.items():
        key = {"problem": "pipeline", "seed": seed}
        if rows.has(**key, method=f"{name}, all views"):
            continue
        described, begun = images.frozen, time.process_time()
        if method is not None:
            schedule = replace(images.training.schedule, learning_rate=rate, seed=seed)
            embedder, _ = problem.trained(method, schedule)
            described = frozen_descriptors(embedder, images.cache)
        for views in (1, images.cache.n_views):
            X = np.mean([unit_rows(described[:, view]) for view in range(views)], axis=0)
            fitted = RPML(images.training.dim, random_state=seed).fit(X[problem.train])
            seconds = round(time.process_time() - begun, 1)
            title = f"{name}, {'all views' if views > 1 else 'the image alone'}"
            rows.add({**key, "method": title, "learning_rate": None, "title": title,
                      "uses_labels": False, "dim": images.training.dim,
                      **problem.scores(fitted.transform(X[problem.held])),
                      "seconds": seconds})  # fmt: skip


def main() -> None:
    chosen = arguments()
    images, rows = Images(chosen), Rows(chosen)
    if chosen.step == "pipeline":
        for seed in SEEDS:
            measure_pipeline(images.test_classes, rows, chosen_rates(rows.rows)["srpml"], seed)
        return
    default = SPLIT_METHODS if chosen.step == "splits" else METHODS
    names = chosen.methods.split(",") if chosen.methods else list(default)
    if chosen.step == "rates":
        for problem in images.halves():
            if problem.name.removeprefix("half ") in chosen.halves.split(","):
                measure_frozen(problem, rows, SEEDS[0])
                for name in names:
                    for rate in RATES:
                        measure(problem, rows, name, rate, SEEDS[0])
        return
    problems = images.splits() if chosen.step == "splits" else [images.test_classes]
    for problem in problems:
        for seed in SEEDS if chosen.step == "table" else SEEDS[:1]:
            measure_frozen(problem, rows, seed)
            for name in names:
                measure(problem, rows, name, chosen_rates(rows.rows)[name], seed)


if __name__ == "__main__":
    main()
