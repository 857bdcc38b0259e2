"""Choose the recipe of sRPML on the training classes alone, from the cache of deep.py.

    python benchmarks/deep_choice.py --backbone googlenet.onnx --work /tmp/deep

The training classes are split into two halves; the network is trained on either half and evaluated
on the other, so every training image is a query once. The test classes are not used.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from common import RESULTS, machine
from deep import purity, scored

from rpml.deep.backbones import open_network
from rpml.deep.cache import TrunkCache
from rpml.deep.descriptors import descriptors, frozen_descriptors, mean_features
from rpml.deep.embedder import Embedder, has_bf16
from rpml.deep.finetune import Training, descriptor_network
from rpml.deep.methods import METHODS, Method
from rpml.deep.methods.base import Batch, FeatureBank, Loss
from rpml.deep.methods.labels import aas_labels, aas_sampler, class_sampler, kmeans_labels
from rpml.deep.methods.srpml import SRPML, Settings
from rpml.deep.samplers import BatchSampler, LabelSampler
from rpml.deep.schedule import Schedule
from rpml.deep.state import State
from rpml.deep.trainer import Trainer
from rpml.estimator import RPML
from rpml.runtime.rows import unit_rows

CLASSES_SEED = 7
CROSS_FITTED = "sRPML, labels from other views"


class Nothing(Loss):
    """No loss of its own: the effect of distillation alone."""

    learns_projection = True

    def forward(self, batch: Batch) -> torch.Tensor:
        return batch.features.sum() * 0.0


def srpml(sampler: Callable[[FeatureBank], BatchSampler] = aas_sampler, **settings: Any) -> Method:
    chosen = Settings(**settings)
    return replace(METHODS["srpml"], sampler=sampler, loss=lambda spec: SRPML(spec, chosen))


def aas_once(bank: FeatureBank) -> LabelSampler:
    return LabelSampler(aas_labels(bank, 1))


def clusters(bank: FeatureBank) -> LabelSampler:
    return LabelSampler(kmeans_labels(bank, 150))


def agreed_labels(bank: FeatureBank, n_levels: int = 2) -> np.ndarray:
    """One label per group of images that AAS joins by each of two random halves of the features."""
    order = np.random.default_rng(bank.seed).permutation(bank.features.shape[1])
    halves = [unit_rows(bank.features[:, half]) for half in np.array_split(order, 2)]
    found = [aas_labels(replace(bank, features=half), n_levels) for half in halves]
    return np.unique(np.stack(found), axis=1, return_inverse=True)[1].ravel()


def agreed_sampler(bank: FeatureBank) -> LabelSampler:
    return LabelSampler(agreed_labels(bank))


@dataclass(frozen=True)
class CrossFittedSampler:
    """Batches by the labels of one half of the views that show the other half, in turn."""

    sides: tuple[LabelSampler, LabelSampler]

    @property
    def labels(self) -> np.ndarray:
        return self.sides[0].labels

    def batches(self, rng: np.random.Generator, n_views: int, batch_size: int) -> Any:
        both = [side.batches(rng, n_views, batch_size) for side in self.sides]
        for pair in zip(*both, strict=False):
            for side, batch in enumerate(pair):  # labels of view k % 2 == side, views of the others
                others = np.arange(1 - side, n_views, 2)
                yield replace(batch, views=rng.choice(others, len(batch.rows)))


def cross_fitted(embedder: Embedder, frozen: np.ndarray) -> Method:
    """sRPML on labels before training, each from one half of the views."""

    def sampler(bank: FeatureBank) -> CrossFittedSampler:
        halves = (mean_features(embedder, frozen[:, side::2]) for side in (0, 1))
        first, second = (LabelSampler(aas_labels(replace(bank, features=x), 2)) for x in halves)
        return CrossFittedSampler((first, second))

    return replace(METHODS["srpml"], sampler=sampler, mines_once=True)


RECIPES: dict[str, tuple[Method, dict[str, Any]]] = {
    "sRPML": (METHODS["srpml"], {}),
    "supervised, triplet + hard": (METHODS["triplet-hard"], {}),
    "views alone": (replace(METHODS["srpml"], loss=lambda spec: Nothing()), {}),
    "sRPML, halves of the features agree": (srpml(agreed_sampler), {}),
    CROSS_FITTED: (METHODS["srpml"], {}),
    "sRPML, L and theta fixed": (srpml(cg_steps=0), {}),
    "sRPML, share 0.02": (srpml(update_rate=0.02), {}),
    "sRPML, neighbors 3": (METHODS["srpml"], {"neighbor_distillation": 3.0}),
    "sRPML, neighbors 0": (METHODS["srpml"], {"neighbor_distillation": 0.0}),
    "sRPML, anchor 10": (METHODS["srpml"], {"feature_distillation": 10.0}),
    "sRPML, two views": (METHODS["srpml"], {"views": 3}),
    "sRPML, AAS once": (srpml(aas_once), {}),
    "sRPML, k-means 150": (srpml(clusters), {}),
    "sRPML, true classes": (replace(srpml(class_sampler), uses_labels=True), {}),
    "sRPML, memory 0.5": (METHODS["srpml"], {"feature_momentum": 0.5}),
    "sRPML, rate 3e-4": (METHODS["srpml"], {"learning_rate": 3e-4}),
}
"""A method, and what differs in the schedule or (views) in the cache."""


class Half:
    """Some of the images of a cache."""

    def __init__(self, cache: TrunkCache, rows: np.ndarray) -> None:
        self._cache, self._rows, self.n_views = cache, rows, cache.n_views

    def first_views(self, n_views: int) -> Half:
        fewer = Half(self._cache, self._rows)
        fewer.n_views = n_views
        return fewer

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
        self.number, self.epochs = number, training.schedule.epochs
        self.train, self.held = (Half(cache, np.flatnonzero(side)) for side in (~held, held))
        self.classes = np.unique(classes[~held], return_inverse=True)[1]
        self.held_classes = classes[held]
        plain = descriptor_network(network, self.train, training)
        self.frozen = frozen_descriptors(plain, self.train)
        start = RPML(training.dim, random_state=0).fit(self.frozen[:, 0])
        self.embedder = Embedder(
            network.upper, training.pool, start.preprocessing_, start.components_.T, training.bf16
        )

    def measure(self, name: str) -> dict[str, Any]:
        embedder, history = self.embedder, []
        if name in RECIPES:
            method, changes = RECIPES[name][0], dict(RECIPES[name][1])
            if name == CROSS_FITTED:
                method = cross_fitted(embedder, self.frozen)
            train = self.train.first_views(changes.pop("views", self.train.n_views))
            frozen = self.frozen[:, : train.n_views]
            trainer = Trainer(
                embedder,
                train,
                method,
                Schedule(**{"epochs": self.epochs, **changes}),
                frozen,
                self.classes,
            )
            embedder, history = trainer.run(None, self._purity), trainer.state.history
        seconds = round(sum(epoch["seconds"] for epoch in history), 1)
        found = scored(descriptors(embedder, self.held, 0), self.held_classes, resamples=0)
        views = [descriptors(embedder, self.held, view) for view in range(self.held.n_views)]
        averaged = scored(np.mean(views, axis=0), self.held_classes, resamples=0)
        several = {"r1_views": averaged["r1"], "nmi_views": averaged["nmi"]}
        return {"fold": self.number, **found, **several, "seconds": seconds, "epochs": history}

    def _purity(self, state: State) -> dict[str, float]:
        share = purity(state.labels, self.classes)
        return {} if share is None else {"purity": share}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", required=True, help="GoogLeNet as ONNX")
    parser.add_argument("--work", required=True, help="where deep.py has left its caches")
    parser.add_argument("--recipes", default="|".join(["frozen", *RECIPES]), help="by |")
    parser.add_argument("--train-from", default="inception_5a")
    parser.add_argument("--name", default="cub130_deep_choice")
    parser.add_argument("--epochs", type=int, default=6)
    return parser.parse_args()


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


def main() -> None:
    chosen = arguments()
    network = open_network(chosen.backbone, chosen.train_from)
    cache = TrunkCache(Path(chosen.work) / "train")
    training = Training(bf16=has_bf16(), schedule=Schedule(chosen.epochs))
    path = RESULTS / f"{chosen.name}.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    bank = {(row["recipe"], row["fold"]) for row in rows}
    for number in (0, 1):
        todo = [name for name in chosen.recipes.split("|") if (name, number) not in bank]
        fold = Fold(number, cache, network, training) if todo else None
        for name in todo:
            begun = time.perf_counter()
            found = fold.measure(name)
            rows.append({"recipe": name, **found})
            write(path, rows)
            took = time.perf_counter() - begun
            figures = f"{100 * found['r1']:.2f} {100 * found['nmi']:.2f} {took:.0f} s"
            print(number, name, figures, flush=True)


if __name__ == "__main__":
    main()
