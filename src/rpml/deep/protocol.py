"""The methods that train the network, on the images of a dataset, as rows of the same table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.deep.backbones import Network
from rpml.deep.cache import Sight, build_cache
from rpml.deep.embedder import Descriptors, descriptors
from rpml.deep.finetune import (
    Start,
    Training,
    common_start,
    descriptor_network,
    embed,
    finetune,
)
from rpml.deep.methods import METHODS, check_methods
from rpml.deep.trainer import Evaluate, frozen_descriptors
from rpml.evaluation.protocol.scores import Row, scores_of
from rpml.io.checkpoint import Checkpoint, fingerprint
from rpml.io.datasets.image_sets import ImageSet
from rpml.runtime.context import Context, Progress
from rpml.vision.files import ImageFile
from rpml.vision.views import Views

FROZEN = "frozen"


class DeepProtocol:
    """Trains on the training images and scores the others; all methods share one cache.

    Parameters
    ----------
    images : ImageSet
        The dataset.
    network : Network
        The backbone, cut where training begins.
    training : Training
        Settings of every run.
    folder : Path
        Where the caches and finished epochs are kept.
    context : Context
        Hears of progress.
    """

    def __init__(
        self, images: ImageSet, network: Network, training: Training, folder: Path, context: Context
    ) -> None:
        self.training, self.folder, self.context = training, folder, context
        folder.mkdir(parents=True, exist_ok=True)
        self.digest = network.fingerprint()
        self.network = network
        self.start = self._prepare(_files(images, images.train), network)
        sight = Sight(training.sight.size, Views())
        self.test = build_cache(
            _files(images, ~images.train), network, sight, folder / "test", context
        )
        label = dict(zip(images.paths, images.labels.tolist(), strict=True))
        seen = [label[name] for name in self.start.inputs.ids]
        self.classes = np.unique(seen, return_inverse=True)[1]
        self.test_classes = np.array([label[i] for i in self.test.ids])

    def _prepare(self, files: list[ImageFile], network: Network) -> Start:
        training, context = self.training, self.context
        inputs = build_cache(files, network, training.sight, self.folder / "train", context)
        # the descriptors are the same for every dimension and schedule: kept apart from the rest
        settings = {"pool": training.pool, "half": training.half, "sight": asdict(training.sight)}
        common = Context(0, context.report, self._store("frozen", settings))
        plain = descriptor_network(network, inputs, training)
        frozen = frozen_descriptors(plain, inputs, common)
        own = Context(training.schedule.seed, context.report, self._store("start"))
        return common_start(inputs, frozen, network, training, own)

    def _store(self, name: str, settings: dict[str, Any] | None = None) -> Checkpoint:
        """Finished stages; the settings are in the folder's name, so others do not disturb."""
        settings = settings or self.training.settings()
        key = fingerprint(self.digest, settings)[:12]
        return Checkpoint(self.folder / f"{name}-{key}", self.digest, settings, resume=True)

    def test_descriptors(self) -> NDArray[np.float32]:
        """The pooled descriptors of the test images before training."""
        plain = descriptor_network(self.network, self.test, self.training)
        return descriptors(Descriptors(plain), self.test, 0)

    def run(
        self, names: Sequence[str], ks: tuple[int, ...]
    ) -> tuple[list[Row], dict[str, NDArray[Any]]]:
        """Measure the frozen start and every method; rows, and embeddings of the test images."""
        rows, embeddings = [], {}
        for number, name in enumerate([FROZEN, *check_methods(names)]):
            self.context.report(Progress("methods", number, len(names) + 1))
            row, Z = self.measure(name, ks)
            rows.append(row)
            embeddings[row.method] = Z
        return rows, embeddings

    def measure(
        self, name: str, ks: tuple[int, ...], evaluate: Evaluate | None = None
    ) -> tuple[Row, NDArray[Any]]:
        """Train by one method, or not at all, and score; `evaluate` is asked after every epoch."""
        seed = self.training.schedule.seed
        history: list[dict[str, float]] = []
        if name == FROZEN:
            embedder, title, labelled = self.start.embedder, "before training (linear RPML)", False
        else:
            method = METHODS[name]
            context = Context(seed, self.context.report, self._store(name))
            embedder, history = finetune(
                self.start, method, self.training.schedule, context, self.classes, evaluate
            )
            title, labelled = f"{method.title}, end to end", method.uses_labels
        # of every epoch, also of those an interrupted run had finished
        seconds = round(sum(epoch["seconds"] for epoch in history), 3)
        Z = embed(embedder, self.test)
        scores = {"cosine": scores_of(Z, self.test_classes, "cosine", ks, seed)}
        settings = {**asdict(self.training.schedule), "history": history}
        row = Row(f"deep-{name}", title, Z.shape[1], scores, seconds, settings,
                  uses_labels=labelled)  # fmt: skip
        return row, Z


def _files(images: ImageSet, chosen: NDArray[np.bool_]) -> list[ImageFile]:
    return [
        ImageFile(path, images.root / path)
        for path, take in zip(images.paths, chosen, strict=True)
        if take
    ]
