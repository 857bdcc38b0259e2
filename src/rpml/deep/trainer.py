"""The training loop shared by every method: sampler, forward pass, loss, step, moving averages."""

import copy
import itertools
import logging
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from rpml.deep.distillation import FeatureDistillation
from rpml.deep.embedder import Embedder, MultiViewDataset, mean_features, view_agreement
from rpml.deep.methods.base import Batch, Loss, LossSpec, Method
from rpml.deep.methods.batches import BatchIndices, BatchSampler, FeatureBank, Indices
from rpml.deep.schedule import Schedule
from rpml.runtime.context import Arrays, Context, Json, Progress
from rpml.runtime.errors import TrainingError
from rpml.runtime.rows import unit_rows
from rpml.runtime.schema import ANY_FLOAT, COUNT, ArraySpec, Schema
from rpml.vision.engine import run_ahead

logger = logging.getLogger(__name__)
Scores = dict[str, float]
_COLLAPSED = 0.999  # norm of the mean of unit rows; whitened ones start near 0
_MODULES = ("student", "teacher", "loss")
_SLOTS = ("exp_avg", "exp_avg_sq", "step")  # of AdamW


@dataclass
class State:
    """Everything the next epoch depends on."""

    student: Embedder
    teacher: Embedder
    """Exponential moving average of the student's weights."""
    loss: Loss
    optimizer: torch.optim.Optimizer
    features: NDArray[np.float32]
    """(n_images, n_features) running mean of the features of each image."""
    label_features: NDArray[np.float32]
    """`features` when the pseudo-labels were last computed."""
    epoch: int = 0
    """Finished epochs."""
    history: list[Scores] = field(default_factory=list)
    """Scores of each finished epoch."""

    def snapshot(self) -> tuple[Arrays, Json]:
        """Return arrays and JSON values from which `restore` continues exactly."""
        tensors = {
            f"{name}/{key}": tensor
            for name in _MODULES
            for key, tensor in getattr(self, name).state_dict().items()
        }
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{index}/{key}": tensor for key, tensor in slots.items()}
        arrays = {n: t.detach().cpu().contiguous().numpy() for n, t in tensors.items()}
        arrays |= {"features": self.features, "label_features": self.label_features}
        return arrays, {"epoch": self.epoch, "history": self.history}

    def schema(self) -> Schema:
        """Return the schema of `snapshot` after any number of epochs."""
        arrays = {n: ArraySpec(a.dtype.kind, a.shape) for n, a in self.snapshot()[0].items()}
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for index, parameter in enumerate(parameters):
            for slot in _SLOTS:
                shape = () if slot == "step" else tuple(parameter.shape)
                arrays[f"optimizer/{index}/{slot}"] = ArraySpec("f", shape, optional=True)
        return Schema(arrays, {"epoch": COUNT, "history": [{"*": ANY_FLOAT}]})

    def restore(self, arrays: Arrays, metadata: Json) -> None:
        """Set a newly initialized state to a saved one."""
        self.features[:], self.label_features[:] = arrays["features"], arrays["label_features"]
        for name in _MODULES:
            getattr(self, name).load_state_dict(_tensors(arrays, f"{name}/"))
        slots: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in _tensors(arrays, "optimizer/").items():
            index, key = name.split("/")
            slots.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": slots})
        self.epoch, self.history = metadata["epoch"], list(metadata["history"])


def _tensors(arrays: Arrays, prefix: str) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): torch.from_numpy(np.array(array))
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


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
        frozen: NDArray[np.floating],
        classes: Indices | None = None,
    ) -> None:
        self.inputs, self.method, self.schedule = inputs, method, schedule
        self.classes = classes if method.uses_labels else None
        rate = schedule.learning_rate
        self.learning_rate = method.learning_rate if rate is None else rate
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
        groups = [
            {"params": list(student.upper.parameters()), "lr": self.learning_rate},
            {"params": [student.projection], "lr": schedule.projection_rate},
            {"params": list(loss.parameters()), "lr": schedule.loss_rate},
        ]
        groups = [group for group in groups if group["params"]]
        optimizer = torch.optim.AdamW(groups, weight_decay=schedule.weight_decay)
        return State(student, teacher, loss, optimizer, features, features.copy())

    def run(self, context: Context | None = None) -> Embedder:
        """Train the network; return the exponential moving average of the embedder.

        The context's store keeps every finished epoch; its `report` receives progress and may stop
        the run after an epoch.
        """
        context = context or Context()
        state, schedule = self.state, self.schedule
        if saved := context.load("epoch", state.schema()):
            state.restore(*saved)
        context.report(Progress("train", state.epoch, schedule.epochs))
        while state.epoch < schedule.epochs and not self._stalled():
            begun = time.perf_counter()
            scores = self._epoch(self._sampler(), context)
            scores["seconds"] = round(time.perf_counter() - begun, 3)
            state.epoch += 1
            if schedule.patience is not None:
                scores["agreement"] = view_agreement(state.teacher, self.inputs)
            state.history.append(scores)
            logger.info("epoch %d: %s", state.epoch, scores)
            context.save("epoch", *state.snapshot())
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
        return self.method.sampler(FeatureBank(state.label_features, self.classes, seed))

    def _epoch(self, sampler: BatchSampler, context: Context) -> Scores:
        state, schedule = self.state, self.schedule
        # one stream for the batches and one for the loss, so that batches depend on neither the
        # loss nor how far ahead they are loaded
        batches, rng = (np.random.default_rng([schedule.seed, state.epoch, k]) for k in (0, 1))
        steps = max(1, len(self.inputs) // schedule.batch_size)
        state.loss.begin_epoch(sampler)
        losses = []
        drawn = itertools.islice(self._repeat(sampler, batches), steps)
        with ThreadPoolExecutor(1, "rpml-load") as pool:  # loads the next batch
            for step, loaded in enumerate(run_ahead(pool, self._load, drawn, 2)):
                loss, mean_norm = self._step(*loaded.result(), rng)
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

    def _load(self, batch: BatchIndices) -> tuple[BatchIndices, torch.Tensor]:
        return batch, self.inputs.load(batch.rows, batch.views)

    def _step(
        self, indices: BatchIndices, maps: torch.Tensor, rng: np.random.Generator
    ) -> tuple[float, float]:
        """One optimizer step; returns the loss and the norm of the mean of the features."""
        state = self.state
        passes = torch.split(maps.to(self.device), self.schedule.micro_batch or len(maps))
        features = self._features(passes)
        rows = self._tensor(indices.rows)
        batch = Batch(
            features,
            state.student.embed(features),
            self._tensor(indices.labels),
            rows,
            state.student.projection,
            rng,
            _features_of(state.teacher, passes) if self.method.needs_teacher else None,
            None if indices.weights is None else torch.from_numpy(indices.weights).to(features),
        )
        loss = state.loss(batch) + self.distillation.loss(features, rows)
        state.optimizer.zero_grad(set_to_none=True)
        if loss.requires_grad:
            loss.backward()
            self._accumulate(passes, features)
            state.optimizer.step()
        self._update_teacher()
        new = features.detach().cpu().numpy()
        self._update_features(indices.rows, new)
        return float(loss.detach()), float(np.linalg.norm(new.mean(axis=0)))

    def _features(self, passes: Sequence[torch.Tensor]) -> torch.Tensor:
        """Features of the batch; those of several passes are a leaf of the graph."""
        student = self.state.student
        if len(passes) == 1:
            return student.features(passes[0])
        return _features_of(student, passes).requires_grad_()

    def _accumulate(self, passes: Sequence[torch.Tensor], features: torch.Tensor) -> None:
        """Send the gradient of the features through the network again, pass by pass."""
        if len(passes) > 1 and features.grad is not None:
            for maps, grad in zip(passes, torch.split(features.grad, len(passes[0])), strict=True):
                torch.autograd.backward(self.state.student.features(maps), grad)

    def _tensor(self, indices: Indices) -> torch.Tensor:
        return torch.from_numpy(np.asarray(indices, np.int64)).to(self.device)

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
        raise TrainingError(
            f"{self.method.title}: {problem} in epoch {self.state.epoch + 1}, batch {step + 1}: "
            f"lower the learning_rate ({self.learning_rate:g} now) or raise "
            f"feature_distillation ({self.schedule.feature_distillation:g} now)"
        )

    def _stalled(self) -> bool:
        """Whether the label-free score has not risen for `patience` epochs."""
        patience = self.schedule.patience
        if patience is None or len(self.state.history) <= patience:
            return False
        scores = [past["agreement"] for past in self.state.history]
        return max(scores[-patience:]) <= max(scores[:-patience])


def _features_of(embedder: Embedder, passes: Sequence[torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([embedder.features(maps) for maps in passes])
