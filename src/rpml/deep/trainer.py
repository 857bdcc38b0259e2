"""The training loop shared by every method: sampler, forward pass, loss, step, moving averages."""

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from rpml.deep.descriptors import MultiViewDataset, mean_features, view_agreement
from rpml.deep.distillation import FeatureDistillation
from rpml.deep.embedder import Embedder
from rpml.deep.methods.base import Batch, FeatureBank, Indices, Loss, LossSpec, Method
from rpml.deep.samplers import BatchIndices, BatchSampler
from rpml.deep.schedule import Schedule
from rpml.deep.state import Scores, State, restore, snapshot, state_schema
from rpml.runtime.context import Context, Progress
from rpml.runtime.errors import TrainingError
from rpml.runtime.rows import unit_rows

logger = logging.getLogger(__name__)
_COLLAPSED = 0.999  # norm of the mean of unit rows; whitened ones start near 0
Evaluate = Callable[[State], Scores]


class Trainer:
    """Trains an embedder by one method.

    Parameters
    ----------
    embedder : Embedder
        The initial embedder; it is not changed.
    inputs : MultiViewDataset
        Activations of the training images.
    method : Method
        Batch sampler and loss.
    schedule : Schedule
        How long and how fast.
    frozen : ndarray of shape (n_images, n_views, n_channels)
        Descriptors of every view before training (see `frozen_descriptors`).
    classes : ndarray of shape (n_images,), default=None
        True classes; only passed on to methods with `uses_labels`.
    """

    def __init__(
        self,
        embedder: Embedder,
        inputs: MultiViewDataset,
        method: Method,
        schedule: Schedule,
        frozen: NDArray[np.floating],
        classes: Indices | None = None,
    ) -> None:
        self.inputs, self.method, self.schedule = inputs, method, schedule
        self.classes = classes if method.uses_labels else None
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.state = self._initial_state(embedder, frozen)
        self.initial_features = self.state.features.copy()
        self.distillation = FeatureDistillation(
            self.initial_features,
            self.state.student.projection,
            schedule.feature_distillation,
            schedule.neighbor_distillation,
        )
        self._mined: BatchSampler | None = None

    def _initial_state(self, embedder: Embedder, frozen: NDArray[np.floating]) -> State:
        student = copy.deepcopy(embedder).to(self.device)
        p, l = student.projection.shape
        classes = 0 if self.classes is None else int(self.classes.max()) + 1
        schedule = self.schedule
        spec = LossSpec(len(self.inputs), p, l, classes, schedule.seed, schedule.ema_decay)
        loss = self.method.loss(spec).to(self.device)
        student.projection.requires_grad_(not loss.learns_projection)
        teacher = copy.deepcopy(student).requires_grad_(False)
        features = mean_features(student, frozen)
        optimizer = self._optimizer(student, loss)
        return State(student, teacher, loss, optimizer, features, features.copy())

    def _optimizer(self, student: Embedder, loss: Loss) -> torch.optim.Optimizer:
        schedule = self.schedule
        groups = [
            {"params": list(student.upper.parameters()), "lr": schedule.learning_rate},
            {"params": [student.projection], "lr": schedule.projection_rate},
            {"params": list(loss.parameters()), "lr": schedule.loss_rate},
        ]
        groups = [group for group in groups if group["params"]]
        return torch.optim.AdamW(groups, weight_decay=schedule.weight_decay)

    def run(self, context: Context | None = None, evaluate: Evaluate | None = None) -> Embedder:
        """Train the network.

        Parameters
        ----------
        context : Context, default=None
            Its store keeps every finished epoch; its `report` receives progress and may stop the
            run after an epoch.
        evaluate : callable, default=None
            Scores of the state, recorded after every epoch.

        Returns
        -------
        Embedder
            The exponential moving average of the trained embedder.
        """
        context = context or Context()
        state, schedule = self.state, self.schedule
        if saved := context.load("epoch", state_schema(state)):
            restore(state, *saved)
        while state.epoch < schedule.epochs and not self._stalled():
            begun = time.perf_counter()
            scores = self._epoch(self._sampler(), context)
            scores["seconds"] = round(time.perf_counter() - begun, 3)
            state.epoch += 1
            if schedule.patience is not None:
                scores["agreement"] = view_agreement(state.teacher, self.inputs)
            scores |= evaluate(state) if evaluate else {}
            state.history.append(scores)
            logger.info("epoch %d: %s", state.epoch, scores)
            context.save("epoch", *snapshot(state))
            if context.report(Progress("train", state.epoch, schedule.epochs, scores)):
                break
        return state.teacher

    def _sampler(self) -> BatchSampler:
        """The epoch's batches; pseudo-labels are computed again every `relabel_every` epochs."""
        state, seed = self.state, self.schedule.seed
        if self.method.mines_once:
            if self._mined is None:
                bank = FeatureBank(self.initial_features, self.classes, seed)
                self._mined = self.method.sampler(bank)
            return self._mined
        if state.epoch % self.schedule.relabel_every == 0:
            state.label_features[:] = state.features
        sampler = self.method.sampler(FeatureBank(state.label_features, self.classes, seed))
        state.labels = sampler.labels
        return sampler

    def _epoch(self, sampler: BatchSampler, context: Context) -> Scores:
        state = self.state
        rng = np.random.default_rng([self.schedule.seed, state.epoch])
        steps = max(1, len(self.inputs) // self.schedule.batch_size)
        state.loss.begin_epoch(sampler)
        losses = []
        for step, indices in zip(range(steps), self._repeat(sampler, rng), strict=False):
            loss, mean_norm = self._step(indices, rng)
            self._check(loss, mean_norm, step)
            losses.append(loss)
            context.report(Progress("batches", step + 1, steps, {"loss": loss}))
        return {"loss": float(np.mean(losses)) if losses else math.nan, "steps": float(len(losses))}

    def _repeat(self, sampler: BatchSampler, rng: np.random.Generator) -> Iterator[BatchIndices]:
        """The sampler's batches without end: every method takes the same number of steps."""
        while True:
            count = 0
            for indices in sampler.batches(rng, self.inputs.n_views, self.schedule.batch_size):
                count += 1
                yield indices
            if not count:
                raise TrainingError(
                    f"{self.method.title}: no batch can be formed, every image is alone in its "
                    "pseudo-label"
                )

    def _step(self, indices: BatchIndices, rng: np.random.Generator) -> tuple[float, float]:
        """One optimizer step; returns the loss and the norm of the mean of the features."""
        state = self.state
        maps = self.inputs.load(indices.rows, indices.views).to(self.device)
        features = state.student.features(maps)
        rows = self._tensor(indices.rows)
        batch = Batch(
            features,
            state.student.embed(features),
            self._tensor(indices.labels),
            rows,
            state.student.projection,
            rng,
            self._teacher_features(maps),
            None if indices.weights is None else torch.from_numpy(indices.weights).to(features),
        )
        loss = state.loss(batch) + self.distillation.loss(features, rows)
        state.optimizer.zero_grad(set_to_none=True)
        if loss.requires_grad:
            loss.backward()
            state.optimizer.step()
        self._update_teacher()
        new = features.detach().cpu().numpy()
        self._update_features(indices.rows, new)
        return float(loss.detach()), float(np.linalg.norm(new.mean(axis=0)))

    def _tensor(self, indices: Indices) -> torch.Tensor:
        return torch.from_numpy(np.asarray(indices, np.int64)).to(self.device)

    def _teacher_features(self, maps: torch.Tensor) -> torch.Tensor | None:
        if not self.method.needs_teacher:
            return None
        with torch.no_grad():
            return self.state.teacher.features(maps)

    def _update_teacher(self) -> None:
        """Exponential moving average of the trained parameters; the others are copied."""
        rate = 1 - self.schedule.ema_decay
        pairs = zip(self.state.teacher.parameters(), self.state.student.parameters(), strict=True)
        with torch.no_grad():
            for mean, value in pairs:
                mean.lerp_(value, rate if value.requires_grad else 1.0)

    def _update_features(self, rows: Indices, new: NDArray[np.float32]) -> None:
        """One row after the other: a batch may hold several views of an image."""
        momentum, features = self.schedule.feature_momentum, self.state.features
        for i, x in zip(rows, new, strict=True):
            features[i] = unit_rows((momentum * features[i] + (1 - momentum) * x)[None])[0]

    def _check(self, loss: float, mean_norm: float, step: int) -> None:
        if math.isfinite(loss) and mean_norm < _COLLAPSED:
            return
        problem = "the features of all images have become the same"
        if not math.isfinite(loss):
            problem = f"the loss is {loss}"
        schedule = self.schedule
        raise TrainingError(
            f"{self.method.title}: {problem} in epoch {self.state.epoch + 1}, batch {step + 1}: "
            f"lower the learning_rate ({schedule.learning_rate:g} now) or raise "
            f"feature_distillation ({schedule.feature_distillation:g} now)"
        )

    def _stalled(self) -> bool:
        """Whether the label-free score has not risen for `patience` epochs."""
        patience = self.schedule.patience
        if patience is None or len(self.state.history) <= patience:
            return False
        scores = [past["agreement"] for past in self.state.history]
        return max(scores[-patience:]) <= max(scores[:-patience])
