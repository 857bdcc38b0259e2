"""The schedule and the training loop of every method: batches, loss, step, moving averages.

Also distillation from the network before training: training on a few classes makes a network forget
the others. Two terms keep the features of an image close to those before training, averaged over
its views. Since that mean is a better descriptor than any single view, the terms also teach the
network to predict from one view what it used to predict from all of them.
"""

import copy
import itertools
import logging
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from io import BytesIO

import numpy as np
import torch
from torch.nn.functional import log_softmax, normalize

from rpml.deep.embedder import Embedder, MultiViewDataset, mean_features, view_agreement
from rpml.deep.methods.base import (
    SUPERVISED,
    Batch,
    Batches,
    BatchIndices,
    FeatureBank,
    LossSpec,
    Method,
)
from rpml.runtime.context import Arrays, Context, Json, Progress
from rpml.runtime.errors import InputError, TrainingError
from rpml.runtime.rows import Array, Indices, unit_rows
from rpml.vision.extract import run_ahead

logger = logging.getLogger(__name__)
Scores = dict[str, float]
TEMPERATURE = 0.05  # of neighborhood distillation
LOSS_RATE = 1e-3  # learning rate of the parameters that belong to a loss
FEATURE_MOMENTUM = 0.9  # of the running mean of the features of each image
MAX_REFERENCES = 20_000
_COLLAPSED = 0.999  # norm of the mean of unit rows; whitened ones start near 0
_PARTS = ("student", "teacher", "loss", "optimizer")
_MINIMUM = {"epochs": 1, "batch_size": 2, "patience": 1, "seed": 0}  # integers
_OPTIONAL = ("patience", "learning_rate")
_MAXIMUM = {"ema_decay": 1}
BUDGETS = ("common", "paper")
PUBLISHED_RATE, PUBLISHED_EMA_DECAY = 1e-4, 0.999  # those of STML


@dataclass(frozen=True)
class Schedule:
    """How long and how fast a network is trained; the same for every method."""

    epochs: int = 6
    """Passes over the images."""
    batch_size: int = 120
    """Images per step."""
    learning_rate: float | None = None
    """Of the upper blocks; None: that of the method."""
    projection_rate: float = 1e-4
    """Learning rate of the projection, for losses that do not update it themselves."""
    ema_decay: float = 0.95
    """Decay of the exponential moving average of the weights (the mean teacher), which training
    returns; 0 returns the trained weights themselves."""
    feature_distillation: float = 3.0
    """Weight in `rpml.deep.trainer.FeatureDistillation`, like the next one."""
    neighbor_distillation: float = 1.0
    patience: int | None = None
    """Stop after this many epochs in which the label-free score has not risen; None: never."""
    seed: int = 0
    """Of batches, views and initial parameters."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name in _OPTIONAL and value is None:
                continue
            low, high = _MINIMUM.get(name, 0), _MAXIMUM.get(name, math.inf)
            kinds = (int, np.integer) if name in _MINIMUM else (int, float, np.number)
            is_number = isinstance(value, kinds) and not isinstance(value, bool)
            if not (is_number and low <= value <= high):
                kind = "a whole number" if name in _MINIMUM else "a number"
                upper = f" and at most {high}" if name in _MAXIMUM else ""
                raise InputError(f"{name} must be {kind} of at least {low}{upper}, got {value!r}")


def check_free(name: str, user_settings: Mapping[str, object]) -> None:
    """Raise InputError for settings that the papers' schedule would replace."""
    replaced = asdict(paper_schedule(SUPERVISED, Schedule())).items() - asdict(Schedule()).items()
    for setting in user_settings.keys() & dict(replaced).keys() if name == "paper" else ():
        raise InputError(f"{setting} is set by the schedule of the papers: leave one of them out")


def paper_schedule(budget: tuple[int, int], schedule: Schedule) -> Schedule:
    """Return the schedule with the published epochs and batch size, without distillation.

    The optimizer is still AdamW, with the learning rate (1e-4) and the weight average of STML.
    """
    epochs, batch_size = budget
    return replace(
        schedule,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=PUBLISHED_RATE,
        projection_rate=PUBLISHED_RATE,
        ema_decay=PUBLISHED_EMA_DECAY,
        feature_distillation=0.0,
        neighbor_distillation=0.0,
    )


class FeatureDistillation:
    """Cosine and neighborhood distillation from the features before training.

    `features` (n_images, n_features) and `projection` are those before training, the features as
    unit rows averaged over the views. The schedule has the weights: `feature_distillation` is that
    of 1 - cosine between the features of an image now and then, `neighbor_distillation` that of the
    cross-entropy between the softmax of its similarities to at most `MAX_REFERENCES` reference
    images, then and now.
    """

    def __init__(self, features: Array, projection: torch.Tensor, schedule: Schedule) -> None:
        self.feature_weight = schedule.feature_distillation
        self.neighbor_weight = schedule.neighbor_distillation
        self._features = torch.from_numpy(features.copy()).to(projection.device)
        self._projection = projection.detach().clone()
        self._embedding = self._embed(self._features)
        step = -(-len(features) // MAX_REFERENCES)
        self._references = self._embedding[::step]

    def loss(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the distillation loss of a batch of features of the images `rows`."""
        total = features.new_zeros(())
        if self.feature_weight:
            cosine = (features * self._features[rows]).sum(1)
            total = total + self.feature_weight * (1 - cosine).mean()
        if self.neighbor_weight:
            total = total + self.neighbor_weight * self._neighborhood(features, rows)
        return total

    def _neighborhood(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        before, now = self._embedding[rows], self._embed(features)
        references = self._references
        if len(references) < len(self._embedding):  # sampled: add the images of the batch
            references = torch.cat([references, before])
        target = torch.softmax(before @ references.T / TEMPERATURE, 1)
        return -(target * log_softmax(now @ references.T / TEMPERATURE, 1)).sum(1).mean()

    def _embed(self, features: torch.Tensor) -> torch.Tensor:
        return normalize(features @ self._projection)


class Trainer:
    """Trains a copy of an embedder by one method.

    `frozen` are the descriptors of every view before training (see `frozen_descriptors`), and
    `classes` the true classes of the images, passed on only to methods with `uses_labels`.
    """

    def __init__(
        self,
        embedder: Embedder,
        inputs: MultiViewDataset,
        method: Method,
        schedule: Schedule,
        frozen: Array,
        classes: Indices | None = None,
    ) -> None:
        self.inputs, self.method, self.schedule = inputs, method, schedule
        self.classes = classes if method.uses_labels else None
        rate = schedule.learning_rate
        self.learning_rate = method.learning_rate if rate is None else rate
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.student = copy.deepcopy(embedder).to(self.device)
        p, l = self.student.projection.shape
        n_classes = 0 if self.classes is None else int(self.classes.max()) + 1
        spec = LossSpec(len(inputs), p, l, n_classes, schedule.seed, schedule.ema_decay)
        self.loss = method.loss(spec).to(self.device)
        self.student.projection.requires_grad_(not self.loss.learns_projection)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        groups = [
            {"params": list(self.student.upper.parameters()), "lr": self.learning_rate},
            {"params": [self.student.projection], "lr": schedule.projection_rate},
            {"params": list(self.loss.parameters()), "lr": LOSS_RATE},
        ]
        groups = [group for group in groups if group["params"]]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        # of each image, a running mean over views and epochs, which is clustered
        self.features = mean_features(self.student, frozen)
        self.epoch, self.history = 0, list[Scores]()
        self.distillation = FeatureDistillation(self.features, self.student.projection, schedule)

    def run(self, context: Context | None = None) -> Embedder:
        """Train the network; return the exponential moving average of the embedder.

        The context's store keeps every finished epoch; its `report` receives progress and may stop
        the run after an epoch.
        """
        context = context or Context()
        schedule = self.schedule
        mined = self._sample() if self.method.mines_once else None
        if saved := context.load("epoch"):
            self._restore(*saved)
        context.report(Progress("train", self.epoch, schedule.epochs))
        while self.epoch < schedule.epochs and not self._stalled():
            begun = time.perf_counter()
            scores = self._epoch(*(mined or self._sample()), context)
            scores["seconds"] = round(time.perf_counter() - begun, 3)
            self.epoch += 1
            if schedule.patience is not None:
                scores["agreement"] = view_agreement(self.teacher, self.inputs)
            self.history.append(scores)
            logger.info("epoch %d: %s", self.epoch, scores)
            context.save("epoch", *self._snapshot())
            if context.report(Progress("train", self.epoch, schedule.epochs, scores)):
                break
        return self.teacher

    def _sample(self) -> tuple[Batches, Indices | None]:
        """Batches of an epoch, from the current features."""
        return self.method.sampler(FeatureBank(self.features, self.classes, self.schedule.seed))

    def _epoch(self, batches: Batches, labels: Indices | None, context: Context) -> Scores:
        schedule = self.schedule
        # one stream for the batches and one for the loss, so that batches depend on neither the
        # loss nor how far ahead they are loaded
        drawing, rng = (np.random.default_rng([schedule.seed, self.epoch, k]) for k in (0, 1))
        steps = max(1, len(self.inputs) // schedule.batch_size)
        self.loss.begin_epoch(labels)
        losses = []
        drawn = itertools.islice(self._repeat(batches, drawing), steps)

        def load(batch: BatchIndices) -> tuple[BatchIndices, torch.Tensor]:
            return batch, self.inputs.load(batch.rows, batch.views)

        with ThreadPoolExecutor(1, "rpml-load") as pool:  # loads the next batch
            for step, loaded in enumerate(run_ahead(pool, load, drawn, 2)):
                loss, mean_norm = self._step(*loaded.result(), rng)
                self._check(loss, mean_norm, step)
                losses.append(loss)
                context.report(Progress("batches", step + 1, steps, {"loss": loss}))
        return {"loss": float(np.mean(losses)), "steps": float(len(losses))}

    def _repeat(self, batches: Batches, rng: np.random.Generator) -> Iterator[BatchIndices]:
        """The batches without end: every method takes the same number of steps."""
        while True:
            count = 0
            for indices in batches(rng, self.inputs.n_views, self.schedule.batch_size):
                count += 1
                yield indices
            if not count:
                raise TrainingError(
                    f"{self.method.title}: no batch can be formed, every image is alone in its "
                    "pseudo-label"
                )

    def _step(
        self, indices: BatchIndices, maps: torch.Tensor, rng: np.random.Generator
    ) -> tuple[float, float]:
        """One optimizer step; returns the loss and the norm of the mean of the features."""
        maps = maps.to(self.device)
        features = self.student.features(maps)
        rows, labels = (
            torch.as_tensor(part).to(maps.device) for part in (indices.rows, indices.labels)
        )
        with torch.no_grad():
            teacher = self.teacher.features(maps) if self.method.needs_teacher else None
        batch = Batch(
            features,
            self.student.embed(features),
            labels,
            rows,
            self.student.projection,
            rng,
            teacher,
            None if indices.weights is None else torch.from_numpy(indices.weights).to(features),
        )
        loss = self.loss(batch) + self.distillation.loss(features, rows)
        self.optimizer.zero_grad(set_to_none=True)
        if loss.requires_grad:
            loss.backward()
            self.optimizer.step()
        self._update_teacher()
        new = features.detach().cpu().numpy()
        momentum, stored = FEATURE_MOMENTUM, self.features
        # one by one: views of an image share a row
        for i, x in zip(indices.rows, new, strict=True):
            stored[i] = unit_rows((momentum * stored[i] + (1 - momentum) * x)[None])[0]
        return float(loss.detach()), float(np.linalg.norm(new.mean(axis=0)))

    def _update_teacher(self) -> None:
        """Exponential moving average of the trained parameters; the others are copied."""
        rate = 1 - self.schedule.ema_decay
        pairs = zip(self.teacher.parameters(), self.student.parameters(), strict=True)
        with torch.no_grad():
            for mean, value in pairs:
                mean.lerp_(value, rate if value.requires_grad else 1.0)

    def _check(self, loss: float, mean_norm: float, step: int) -> None:
        if not math.isfinite(loss):
            problem = f"the loss is {loss}"
        elif mean_norm >= _COLLAPSED:
            problem = "the features of all images have become the same"
        else:
            return
        raise TrainingError(
            f"{self.method.title}: {problem} in epoch {self.epoch + 1}, batch {step + 1}: "
            f"lower the learning_rate ({self.learning_rate:g} now) or raise "
            f"feature_distillation ({self.schedule.feature_distillation:g} now)"
        )

    def _stalled(self) -> bool:
        """Whether the label-free score has not risen for `patience` epochs."""
        patience = self.schedule.patience
        if patience is None or len(self.history) <= patience:
            return False
        scores = [past["agreement"] for past in self.history]
        return max(scores[-patience:]) <= max(scores[:-patience])

    def _snapshot(self) -> tuple[Arrays, Json]:
        """Everything the next epoch depends on: `_restore` continues from it exactly."""
        buffer = BytesIO()
        torch.save({name: getattr(self, name).state_dict() for name in _PARTS}, buffer)
        arrays: Arrays = {
            "state": np.frombuffer(buffer.getvalue(), np.uint8),
            "features": self.features,
        }
        return arrays, {"epoch": self.epoch, "history": self.history}

    def _restore(self, arrays: Arrays, metadata: Json) -> None:
        try:  # only tensors are unpickled, no code
            states = torch.load(BytesIO(arrays["state"].tobytes()), weights_only=True)
            for name in _PARTS:
                getattr(self, name).load_state_dict(states[name])
            self.features[:] = arrays["features"]
        except Exception as error:  # torch raises anything
            raise InputError(
                "the finished epochs are damaged or of another version: train without --resume"
            ) from error
        self.epoch, self.history = metadata["epoch"], list(metadata["history"])
