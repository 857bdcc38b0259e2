"""The training loop, the same for every method: labels, batches, forward, loss, step, average."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rpml.deep.batches import BATCH, Draw, Plan
from rpml.deep.cache import Inputs
from rpml.deep.embedder import Descriptors, Embedder, descriptors
from rpml.deep.keep import Keeper
from rpml.deep.methods.base import Batch, Indices, Knowledge, Loss, Method, Setup
from rpml.deep.state import Scores, State, restore, snapshot
from rpml.evaluation.metrics.label_free import neighbour_overlap
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.context import Arrays, Context, Progress
from rpml.runtime.errors import InputError, TrainingError
from rpml.runtime.rows import unit_rows

logger = logging.getLogger(__name__)
_COLLAPSED = 0.999  # length of the mean of unit rows; whitened ones start near 0
_SAMPLE = 500  # images of the label-free score
_LEAST = {"epochs": 1, "batch": 2, "refresh": 1, "patience": 1, "seed": 0}  # whole numbers
_MOST = {"average": 1, "memory": 1}
Evaluate = Callable[[State], Scores]


@dataclass(frozen=True)
class Schedule:
    """How long and how fast; the same for every method.

    Parameters
    ----------
    epochs : int
        Passes over the images.
    batch : int
        Images a step.
    learning_rate, projection_rate, loss_rate : float
        Of the upper blocks, of the projection (where the loss does not move it itself), and of
        parameters that a loss brings along.
    weight_decay : float
        Of AdamW.
    average : float
        The embedder that is kept is the running mean of the trained one, with this share of the
        past at every step (a mean teacher); 0 keeps the trained one itself.
    anchor, neighbours : float
        Weights of staying near the features before training, averaged over the views, and near
        the neighbourhoods they give (`rpml.deep.keep`).
    refresh : int
        Epochs between two computations of the labels.
    memory : float
        Share of the past in the running mean of an image's features, from which labels come.
    patience : int or None
        Stop when the label-free score has not risen for so many epochs; None: never.
    seed : int
        Of batches, views and initial parameters.
    """

    epochs: int = 6
    batch: int = BATCH
    learning_rate: float = 1e-3
    projection_rate: float = 1e-4
    loss_rate: float = 1e-3
    weight_decay: float = 0.0
    average: float = 0.95
    anchor: float = 3.0
    neighbours: float = 1.0
    refresh: int = 1
    memory: float = 0.9
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least, most = _LEAST.get(name, 0), _MOST.get(name, math.inf)
            whole = name in _LEAST
            kinds = (int, np.integer) if whole else (int, float, np.number)
            right = isinstance(value, kinds) and not isinstance(value, bool)
            if not (right and least <= value <= most) and not (
                name == "patience" and value is None
            ):
                what = "a whole number" if whole else "a number"
                upper = f" and at most {most}" if name in _MOST else ""
                raise InputError(f"{name} must be {what} of at least {least}{upper}, got {value!r}")


class Trainer:
    """Trains an embedder by one method.

    Parameters
    ----------
    embedder : Embedder
        Where training starts; it is not changed.
    inputs : Inputs
        The training images' activations.
    method : Method
        Labels and loss.
    schedule : Schedule
        How long and how fast.
    frozen : (n, views, d) array
        The descriptors of every view before training (see `frozen_descriptors`).
    classes : (n,) int array, optional
        True classes, for methods with `uses_labels` only.
    """

    def __init__(
        self,
        embedder: Embedder,
        inputs: Inputs,
        method: Method,
        schedule: Schedule,
        frozen: NDArray[np.floating],
        classes: Indices | None = None,
    ) -> None:
        self.inputs, self.method, self.schedule = inputs, method, schedule
        self.classes = classes if method.uses_labels else None
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.state = self._start(embedder, frozen)
        start = (self.state.bank, self.state.student.projection)
        self.keep = Keeper(*start, schedule.anchor, schedule.neighbours)

    def _start(self, embedder: Embedder, frozen: NDArray[np.floating]) -> State:
        student = copy.deepcopy(embedder).to(self.device)
        p, l = student.projection.shape
        classes = 0 if self.classes is None else int(self.classes.max()) + 1
        setup = Setup(len(self.inputs), p, l, classes, self.schedule.seed)
        loss = self.method.loss(setup).to(self.device)
        student.projection.requires_grad_(not loss.learns_projection)
        teacher = copy.deepcopy(student).requires_grad_(False)
        bank = mean_features(student, frozen)
        optimizer = self._optimizer(student, loss)
        return State(student, teacher, loss, optimizer, bank, bank.copy())

    def _optimizer(self, student: Embedder, loss: Loss) -> torch.optim.Optimizer:
        chosen = self.schedule
        groups = [
            {"params": list(student.upper.parameters()), "lr": chosen.learning_rate},
            {"params": [student.projection], "lr": chosen.projection_rate},
            {"params": list(loss.parameters()), "lr": chosen.loss_rate},
        ]
        groups = [group for group in groups if group["params"]]
        return torch.optim.AdamW(groups, weight_decay=chosen.weight_decay)

    def run(self, context: Context | None = None, evaluate: Evaluate | None = None) -> Embedder:
        """Train; returns the averaged embedder, in evaluation mode.

        Parameters
        ----------
        context : Context, optional
            Its store keeps every finished epoch, its `report` hears of progress and may ask to
            stop after the epoch.
        evaluate : callable, optional
            Scores of the state, recorded after every epoch.
        """
        context = context or Context()
        state, chosen = self.state, self.schedule
        if saved := context.load("epoch"):
            restore(state, *saved)
        while state.epoch < chosen.epochs and not self._stalled():
            begun = time.perf_counter()
            scores = self._epoch(self._plan(), context)
            scores["seconds"] = round(time.perf_counter() - begun, 3)
            state.epoch += 1
            if chosen.patience is not None:
                scores["agreement"] = view_agreement(state.teacher, self.inputs)
            scores |= evaluate(state) if evaluate else {}
            state.history.append(scores)
            logger.info("epoch %d: %s", state.epoch, scores)
            context.save("epoch", *snapshot(state))
            if context.report(Progress("train", state.epoch, chosen.epochs, scores)):
                break
        return state.teacher

    def _plan(self) -> Plan:
        """The epoch's batches; pseudo-labels are computed anew every `refresh` epochs."""
        if self.state.epoch % self.schedule.refresh == 0:
            self.state.seen[:] = self.state.bank
        known = Knowledge(self.state.seen, self.classes, self.schedule.seed)
        plan = self.method.source(known)
        self.state.labels = plan.labels
        return plan

    def _epoch(self, plan: Plan, context: Context) -> Scores:
        state = self.state
        rng = np.random.default_rng([self.schedule.seed, state.epoch])
        steps = max(1, len(self.inputs) // self.schedule.batch)
        state.loss.begin_epoch(plan)
        losses = []
        for number, draw in zip(range(steps), self._endless(plan, rng), strict=False):
            loss, alike = self._step(draw, rng)
            self._check(loss, alike, number)
            losses.append(loss)
            context.report(Progress("batches", number + 1, steps, {"loss": loss}))
        return {"loss": float(np.mean(losses)) if losses else math.nan, "steps": float(len(losses))}

    def _endless(self, plan: Plan, rng: np.random.Generator) -> Iterator[Draw]:
        """The plan's batches, again and again: every method takes equally many steps."""
        while True:
            drawn = False
            for draw in plan.batches(rng, self.inputs.views, self.schedule.batch):
                drawn = True
                yield draw
            if not drawn:
                raise TrainingError(
                    f"{self.method.title}: no batch can be formed, every image is alone in its "
                    "pseudo-label"
                )

    def _step(self, draw: Draw, rng: np.random.Generator) -> tuple[float, float]:
        """Forward, the method's loss, one step of the network, the averages.

        Returns the loss, and how alike the features are (1: all the same).
        """
        state = self.state
        maps = self.inputs.load(draw.rows, draw.views).to(self.device)
        features = state.student.features(maps)
        rows = torch.from_numpy(np.asarray(draw.rows, np.int64)).to(self.device)
        batch = Batch(
            features,
            state.student.embed(features),
            torch.from_numpy(np.asarray(draw.labels, np.int64)).to(self.device),
            rows,
            state.student.projection,
            rng,
            self._teacher(maps),
        )
        loss = state.loss(batch) + self.keep.loss(features, rows)
        state.optimizer.zero_grad(set_to_none=True)
        if loss.requires_grad:
            loss.backward()
            state.optimizer.step()
        self._average()
        found = features.detach().cpu().numpy()
        self._remember(draw.rows, found)
        return float(loss.detach()), float(np.linalg.norm(found.mean(axis=0)))

    def _teacher(self, maps: torch.Tensor) -> torch.Tensor | None:
        if not self.method.teacher:
            return None
        with torch.no_grad():
            return torch.as_tensor(self.state.teacher(maps))

    def _average(self) -> None:
        """Move the teacher towards the student; what no gradient trains is copied."""
        share = 1 - self.schedule.average
        pairs = zip(self.state.teacher.parameters(), self.state.student.parameters(), strict=True)
        with torch.no_grad():
            for mean, value in pairs:
                mean.lerp_(value, share if value.requires_grad else 1.0)

    def _remember(self, rows: Indices, features: NDArray[np.float32]) -> None:
        keep, bank = self.schedule.memory, self.state.bank
        for row, x in zip(rows, features, strict=True):
            mixed = keep * bank[row] + (1 - keep) * x
            bank[row] = mixed / max(float(np.linalg.norm(mixed)), 1e-12)

    def _check(self, loss: float, alike: float, number: int) -> None:
        if math.isfinite(loss) and alike < _COLLAPSED:
            return
        what = "the features of all images have become the same"
        if not math.isfinite(loss):
            what = f"the loss is {loss}"
        raise TrainingError(
            f"{self.method.title}: {what} in epoch {self.state.epoch + 1}, batch {number + 1}: the "
            f"steps are too long, lower the learning rate ({self.schedule.learning_rate:g} now) or "
            f"raise the anchor ({self.schedule.anchor:g} now)"
        )

    def _stalled(self) -> bool:
        """The label-free score has not risen for `patience` epochs."""
        patience = self.schedule.patience
        if patience is None or len(self.state.history) <= patience:
            return False
        scores = [past["agreement"] for past in self.state.history]
        return max(scores[-patience:]) <= max(scores[:-patience])


def frozen_descriptors(
    embedder: Embedder, inputs: Inputs, context: Context | None = None
) -> NDArray[np.float32]:
    """(n, views, d): the pooled descriptors of every view before any training."""

    def compute() -> Arrays:
        found = []
        for view in range(inputs.views):
            (context or Context()).report(Progress("frozen", view, inputs.views))
            found.append(descriptors(Descriptors(embedder), inputs, view))
        return {"frozen": np.stack(found, axis=1)}

    return (context or Context()).stage("frozen", compute)["frozen"]


def mean_features(embedder: Embedder, frozen: NDArray[np.floating]) -> NDArray[np.float32]:
    """Whitened features of each image, averaged over its views, as unit rows."""
    n, views, d = frozen.shape
    with torch.no_grad():
        rows = torch.from_numpy(np.asarray(frozen, np.float32).reshape(n * views, d))
        x = embedder.whiten(rows.to(embedder.mean.device)).cpu().numpy()
    return np.asarray(unit_rows(x.reshape(n, views, -1).mean(1)), np.float32)


def view_agreement(embedder: Embedder, inputs: Inputs) -> float:
    """Share of the ten nearest images that the first two views of an image agree on.

    Needs no labels: it falls when the features forget what images have in common, when they
    collapse, and when every image is pushed away from all others.
    """
    if inputs.views < 2:
        return 0.0
    found = []
    sample = np.linspace(0, len(inputs) - 1, min(_SAMPLE, len(inputs))).astype(np.intp)
    k = min(10, len(sample) - 1)
    for view in (0, 1):
        with torch.inference_mode():
            maps = inputs.load(sample, np.full(len(sample), view))
            Z = embedder(maps.to(embedder.mean.device)).cpu().numpy()
        found.append(nearest_neighbors(Z, k, metric="cosine").indices)
    return float(neighbour_overlap(found[0], found[1], k).mean())
