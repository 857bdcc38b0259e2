"""sRPML: mini-batches, triplets mined within each, a few warm-started conjugate-gradient steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import PinnedWeights, weight_function
from rpml.method.solver.conjugate_gradient import OptimizeResult, Stopping, conjugate_gradient
from rpml.method.triplets.batches import batch_sampler, mine_batch_triplets
from rpml.runtime.rows import Array

if TYPE_CHECKING:
    from rpml.method.settings import FitSettings

TRIPLETS_PER_ROW = 8  # of a batch, sampled at random
MARGIN = 0.5  # of mined triplets
CURVES = ("loss", "gradient_norm", "mean_weight", "n_triplets")


@dataclass
class EpochState:
    """Everything the next epoch depends on; independent of the number of triplets."""

    L: Array
    theta: Array | None
    epoch: int = 0
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVES})


Callback = Callable[[EpochState], object]
Epoch = Callable[[EpochState, np.random.Generator], None]


def run_epochs(
    epoch: Epoch, start: EpochState, n_epochs: int, seed: int, callback: Callback | None = None
) -> OptimizeResult:
    """Call `epoch`, which changes the state, until `n_epochs` are done.

    The random stream of an epoch only depends on `seed` and the epoch's number, so a run resumed
    from a saved `EpochState` ends exactly like an uninterrupted one.
    """
    state = start
    message = "max_iter reached: all epochs done"
    while state.epoch < n_epochs:
        epoch(state, np.random.default_rng([seed, state.epoch]))
        state.epoch += 1
        if callback is not None and callback(state):
            message = "stopped early on request"
            break
    losses = state.history["loss"]
    return OptimizeResult(
        L=state.L,
        theta=state.theta,
        loss=losses[-1] if losses else float("nan"),
        history=state.history,
        n_iter=state.epoch,
        converged=state.epoch >= n_epochs,
        message=message,
    )


def run_epoch(
    X: Array,
    labels: NDArray[np.integer],
    state: EpochState,
    settings: FitSettings,
    rng: np.random.Generator,
    certain: tuple[NDArray[np.bool_], NDArray[np.intp]] | None = None,
) -> None:
    """Run one pass over the rows; changes the state.

    `certain` are the rows of a given class and the triplets from constraints: their weight is 1,
    and the latter are divided among the batches.
    """
    loss = norm = weight = 0.0
    count = 0
    mean = IterateMean(state)
    for rows, given in _batches(labels, settings.batch_size, rng, certain and certain[1]):
        batch = np.ascontiguousarray(X[np.concatenate([rows, given.ravel()])])
        mined = mine_batch_triplets(
            batch[: len(rows)] @ state.L.astype(batch.dtype),
            labels[rows],
            rng,
            margin=MARGIN,
            mining=settings.mining,
            limit=TRIPLETS_PER_ROW * settings.batch_size,
        )
        triplets = np.vstack([mined, len(rows) + np.arange(given.size).reshape(-1, 3)])
        if len(triplets) == 0:
            continue
        function = weight_function(settings.weight)
        if function.learnable and certain is not None:
            pinned = np.ones(len(triplets), bool)
            pinned[: len(mined)] = np.all(certain[0][rows][mined], axis=1)
            function = PinnedWeights(function, pinned)
        problem = TripletObjective(batch, triplets, function, settings.alpha, settings.ridge)
        result = conjugate_gradient(problem, state.L, state.theta, Stopping(settings.batch_steps))
        state.L, state.theta = result.L, result.theta
        mean.add(state)
        loss += result.loss
        norm += result.history["gradient_norm"][-1]
        weight += result.history["mean_weight"][-1] * len(triplets)
        count += len(triplets)
    if settings.average and mean.count:
        state.L, state.theta = mean.point()
    state.history["loss"].append(loss / max(1, count))
    state.history["gradient_norm"].append(norm / max(1, count))
    state.history["mean_weight"].append(weight / max(1, count))
    state.history["n_triplets"].append(float(count))


def _batches(
    labels: NDArray[np.integer],
    size: int,
    rng: np.random.Generator,
    triplets: NDArray[np.intp] | None,
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield the rows of each batch and its share of the given triplets."""
    batches = list(batch_sampler(labels, rng, batch_size=size))
    given = np.empty((0, 3), np.intp)
    if triplets is not None and len(triplets):
        batches = batches or [np.empty(0, np.intp)]
        given = rng.permutation(triplets)
    return zip(batches, np.array_split(given, max(1, len(batches))), strict=False)


class IterateMean:
    """The mean of the points of an epoch.

    Each batch pulls L towards its own rows, so the last iterate is noisy. The mean of the
    projections L L', reduced to rank l, is the extrinsic mean on the Grassmannian.
    """

    def __init__(self, like: EpochState) -> None:
        self.count = 0
        self._projections = np.zeros((len(like.L), len(like.L)))
        self._rank = like.L.shape[1]
        self._thetas = None if like.theta is None else np.zeros_like(like.theta)

    def add(self, state: EpochState) -> None:
        self.count += 1
        self._projections += state.L @ state.L.T
        if self._thetas is not None and state.theta is not None:
            self._thetas += state.theta

    def point(self) -> tuple[Array, Array | None]:
        p = len(self._projections)
        _, axes = linalg.eigh(self._projections, subset_by_index=[p - self._rank, p - 1])
        theta = None if self._thetas is None else self._thetas / self.count
        return np.ascontiguousarray(axes[:, ::-1]), theta
