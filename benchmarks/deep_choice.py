"""Which recipe of sRPML? Chosen on the training classes alone, from the cache of deep.py.

    python benchmarks/deep_choice.py --backbone googlenet.onnx --work /tmp/deep

The training classes are cut in two halves; the network is trained on either half and scored on
the other, so every training image is a query once. The test classes are not looked at.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from common import RESULTS, machine
from deep import scored

from rpml.deep.backbones import open_network
from rpml.deep.batches import ByLabel, Draw, two_views
from rpml.deep.cache import TrunkCache
from rpml.deep.embedder import Embedder, descriptors
from rpml.deep.finetune import Training, descriptor_network
from rpml.deep.methods import METHODS, Method
from rpml.deep.methods.base import Batch, Knowledge, Loss
from rpml.deep.methods.sources import aas_labels, kmeans_labels, true_classes
from rpml.deep.methods.srpml import SRPML, Settings
from rpml.deep.trainer import Schedule, Trainer, frozen_descriptors
from rpml.estimator import RPML
from rpml.triplets import batch_sampler

CLASSES_SEED = 7


class Nothing(Loss):
    """No loss of its own: what the anchor to the mean of the views does alone."""

    learns_projection = True

    def forward(self, batch: Batch) -> torch.Tensor:
        return batch.features.sum() * 0.0


@dataclass(frozen=True)
class ByLabelAndView:
    """As `ByLabel`, but every image comes twice, in different views: so images without a label,
    or alone in theirs, take part as labels of their own."""

    labels: np.ndarray
    per_label: int = 4

    def batches(self, rng: np.random.Generator, views: int, size: int) -> Iterator[Draw]:
        n, labels = len(self.labels), self.labels.copy()
        free = labels < 0
        labels[free] = labels.max(initial=-1) + 1 + np.arange(free.sum())
        first, second = two_views(rng, views, n)
        view = np.concatenate([first, second])
        for chosen in batch_sampler(np.tile(labels, 2), rng, size, self.per_label):
            rows = chosen % n
            yield Draw(rows, view[chosen], labels[rows])


def srpml(source: Callable[..., Any], **settings: Any) -> Method:
    chosen = Settings(**{"alpha": 45.0, "scale": 1.0, **settings})
    return replace(METHODS["srpml"], source=source, loss=lambda setup: SRPML(setup, chosen))


def once(levels: int) -> Callable[..., Any]:
    return lambda known: ByLabel(aas_labels(known, levels))


def twice(levels: int) -> Callable[..., Any]:
    return lambda known: ByLabelAndView(aas_labels(known, levels))


def clusters(known: Knowledge) -> ByLabel:
    return ByLabel(kmeans_labels(known, 300))


RECIPES = {
    "aas": srpml(once(1)),
    "anchor alone": replace(METHODS["srpml"], loss=lambda setup: Nothing()),
    "supervised": METHODS["triplet-hard"],
    "aas, views": srpml(twice(1)),
    "aas twice": srpml(once(2)),
    "aas twice, views": srpml(twice(2)),
    "aas thrice, views": srpml(twice(3)),
    "aas twice, views, scale 4": srpml(twice(2), scale=4.0),
    "aas twice, views, scale 8": srpml(twice(2), scale=8.0),
    "true classes": replace(srpml(true_classes), uses_labels=True),
    "true classes, scale 4": replace(srpml(true_classes, scale=4.0), uses_labels=True),
    "triplet + hard of aas twice": replace(METHODS["triplet-hard"], source=once(2)),
    "triplet + hard of k-means 300": replace(METHODS["triplet-hard"], source=clusters),
    "true classes, 25 degrees, scale 4": replace(
        srpml(true_classes, alpha=25.0, scale=4.0), uses_labels=True
    ),
    "aas twice, 25 degrees, scale 4": srpml(once(2), alpha=25.0, scale=4.0),
    "aas twice, views, 25 degrees, scale 4": srpml(twice(2), alpha=25.0, scale=4.0),
    "aas twice, 30 degrees, scale 4": srpml(once(2), alpha=30.0, scale=4.0),
    "k-means 300, 25 degrees, scale 4": srpml(clusters, alpha=25.0, scale=4.0),
    "k-means 300": srpml(clusters),
}


class Half:
    """Some of the images of a cache."""

    def __init__(self, cache: TrunkCache, rows: np.ndarray) -> None:
        self._cache, self._rows, self.views = cache, rows, cache.views

    def __len__(self) -> int:
        return len(self._rows)

    def load(self, rows: np.ndarray, views: np.ndarray) -> torch.Tensor:
        return self._cache.load(self._rows[rows], views)


class Fold:
    """Half of the training classes to train on, the other half to score."""

    def __init__(self, number: int, cache: TrunkCache, network: Any, training: Training) -> None:
        names = [PurePosixPath(name).parent.name for name in cache.ids]
        classes = np.unique(names, return_inverse=True)[1]
        order = np.random.default_rng(CLASSES_SEED).permutation(classes.max() + 1)
        held = np.isin(classes, order[number::2])
        self.number = number
        self.train, self.held = (Half(cache, np.flatnonzero(side)) for side in (~held, held))
        self.classes = np.unique(classes[~held], return_inverse=True)[1]
        self.held_classes = classes[held]
        plain = descriptor_network(network, self.train, training)
        self.frozen = frozen_descriptors(plain, self.train)
        start = RPML(training.dim, random_state=0).fit(self.frozen[:, 0])
        self.embedder = Embedder(
            network.upper, training.pool, start.preprocessing_, start.components_.T, training.half
        )

    def measure(self, recipe: Method | None) -> dict[str, Any]:
        embedder, history = self.embedder, []
        if recipe is not None:
            schedule = Schedule()
            trainer = Trainer(embedder, self.train, recipe, schedule, self.frozen, self.classes)
            embedder, history = trainer.run(), trainer.state.history
        seconds = round(sum(epoch["seconds"] for epoch in history), 1)
        found = scored(descriptors(embedder, self.held, 0), self.held_classes, resamples=0)
        return {"fold": self.number, **found, "seconds": seconds, "epochs": history}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", required=True, help="GoogLeNet as ONNX")
    parser.add_argument("--work", required=True, help="where deep.py has left its caches")
    parser.add_argument("--recipes", default="|".join(["frozen", *RECIPES]), help="by |")
    parser.add_argument("--train-from", default="inception_5b")
    return parser.parse_args()


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


def main() -> None:
    chosen = arguments()
    network = open_network(chosen.backbone, chosen.train_from)
    cache = TrunkCache(Path(chosen.work) / "train")
    path = RESULTS / "cub130_deep_choice.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    known = {(row["recipe"], row["fold"]) for row in rows}
    for number in (0, 1):
        todo = [name for name in chosen.recipes.split("|") if (name, number) not in known]
        fold = Fold(number, cache, network, Training(half=True)) if todo else None
        for name in todo:
            begun = time.perf_counter()
            found = fold.measure(RECIPES.get(name))
            rows.append({"recipe": name, **found})
            write(path, rows)
            took = time.perf_counter() - begun
            print(number, name, f"{100 * found['r1']:.2f} {100 * found['nmi']:.2f} {took:.0f} s")


if __name__ == "__main__":
    main()
