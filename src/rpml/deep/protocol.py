"""The protocol of the paper for methods that train the network."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import compress
from pathlib import Path

import numpy as np

from rpml.deep.backbones import Network
from rpml.deep.embedder import descriptors
from rpml.deep.finetune import Training, prepare
from rpml.deep.inputs import ImageSpec, open_inputs
from rpml.deep.methods import METHODS, check_methods
from rpml.deep.trainer import Trainer
from rpml.evaluation.protocol import MeasuredRow, scores_of
from rpml.io.checkpoint import Checkpoint, fingerprint
from rpml.io.datasets.image_sets import ImageSet
from rpml.runtime.context import Context, Json, Progress
from rpml.runtime.rows import Array
from rpml.vision.images import ImageFile, Views

FROZEN = "frozen"


class DeepProtocol:
    """Trains on the training images and evaluates on the test images.

    `folder` holds the cached activations, which all methods share, and the finished epochs.
    """

    def __init__(
        self, images: ImageSet, network: Network, training: Training, folder: Path, context: Context
    ) -> None:
        self.training, self.folder, self.context = training, folder, context
        folder.mkdir(parents=True, exist_ok=True)
        self.digest = network.fingerprint()
        files = [ImageFile(path, images.root / path) for path in images.paths]
        common = {name: asdict(training)[name] for name in ("pool", "bf16", "image_spec")}
        self.embedder, self.inputs, self.frozen = prepare(
            list(compress(files, images.train)),
            network,
            training,
            folder / "train",
            self._context("start", training.schedule.seed),
            self._context("frozen", 0, common),
        )
        held_out = list(compress(files, ~images.train))
        image_spec = ImageSpec(training.image_spec.size, Views())
        self.test = open_inputs(held_out, network, image_spec, folder / "test", context)
        label = dict(zip(images.paths, images.labels.tolist(), strict=True))
        classes = [label[name] for name in self.inputs.ids]
        self.classes = np.unique(classes, return_inverse=True)[1]
        self.test_classes = np.array([label[i] for i in self.test.ids])

    def _context(self, name: str, seed: int, settings: Json | None = None) -> Context:
        """A context with a checkpoint whose folder is named after its settings."""
        settings = settings or asdict(self.training)
        folder = self.folder / f"{name}-{fingerprint(self.digest, settings)[:12]}"
        store = Checkpoint(folder, self.digest, settings, resume=True)
        return Context(seed, self.context.report, store)

    def run(
        self, names: Sequence[str], ks: tuple[int, ...]
    ) -> tuple[list[MeasuredRow], dict[str, Array]]:
        """Rows of the initial embedder and of every method, and their test embeddings."""
        rows, embeddings = [], {}
        for number, name in enumerate([FROZEN, *check_methods(names)]):
            self.context.report(Progress("methods", number, len(names) + 1))
            row, Z = self.measure(name, ks)
            rows.append(row)
            embeddings[row.method] = Z
        return rows, embeddings

    def measure(self, name: str, ks: tuple[int, ...]) -> tuple[MeasuredRow, Array]:
        """Train by one method, or not at all, and score the test images."""
        schedule = self.training.schedule
        seed = schedule.seed
        history: list[dict[str, float]] = []
        if name == FROZEN:
            embedder, labeled = self.embedder, False
            title = "before training (linear RPML)"
        else:
            method = METHODS[name]
            schedule = self.training.schedule_of(name)
            trainer = Trainer(
                self.embedder, self.inputs, method, schedule, self.frozen, self.classes
            )
            embedder, history = trainer.run(self._context(name, seed)), trainer.history
            title, labeled = f"{method.title}, end to end", method.uses_labels
        # of every epoch, including those of an interrupted run
        seconds = round(sum(epoch["seconds"] for epoch in history), 3)
        Z = descriptors(embedder, self.test)
        scores = {"cosine": scores_of(Z, self.test_classes, "cosine", ks, seed)}
        settings = {**asdict(schedule), "history": history}
        row = MeasuredRow(f"deep-{name}", title, Z.shape[1], scores, seconds, settings,
                  uses_labels=labeled)  # fmt: skip
        return row, Z
