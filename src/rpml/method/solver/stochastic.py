"""sRPML: mini-batches, triplets mined within each, a few warm-started conjugate-gradient steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import PinnedWeights, WeightRidge, weight_function
from rpml.method.solver.conjugate_gradient import OptimizeResult, Stopping, conjugate_gradient
from rpml.method.triplets.batches import batch_sampler, mine_batch_triplets
from rpml.runtime.rows import Array

TRIPLETS_PER_ROW = 8  # per row of a batch
CURVES = ("loss", "gradient_norm", "mean_weight", "n_triplets")


@dataclass(frozen=True)
class BatchSettings:
    """The settings of sRPML."""

    weight: str = "concat"
    alpha: float = 45.0
    weight_ridge: WeightRidge | None = None
    batch_size: int = 960
    steps: int = 3
    """Conjugate-gradient steps per batch."""
    mining: str = "all"
    """"all" samples from every triplet of the batch; the authors use "semi-hard"."""
    margin: float = 0.5
    max_triplets: int = TRIPLETS_PER_ROW * 960
    """Triplets per batch, sampled at random."""
    average: bool = True
    """End each epoch at the mean of its iterates; False: at the last one, as in the paper."""
    labeled: NDArray[np.bool_] | None = None
    """(n,) rows of given class: triplets of such rows keep their weight."""
    given: NDArray[np.intp] | None = None
    """(k, 3) triplets from constraints, divided among the batches of each epoch; weight 1."""


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
    settings: BatchSettings,
    rng: np.random.Generator,
) -> None:
    """Run one pass over the rows; changes the state."""
    loss = norm = weight = 0.0
    count = 0
    mean = IterateMean(state)
    for rows, given in _batches(labels, settings, rng):
        batch = np.ascontiguousarray(X[np.concatenate([rows, given.ravel()])])
        mined = mine_batch_triplets(
            batch[: len(rows)] @ state.L.astype(batch.dtype),
            labels[rows],
            rng,
            margin=settings.margin,
            mining=settings.mining,
            limit=settings.max_triplets,
        )
        triplets = np.vstack([mined, len(rows) + np.arange(given.size).reshape(-1, 3)])
        if len(triplets) == 0:
            continue
        function = weight_function(settings.weight)
        if function.learnable and (settings.labeled is not None or len(given)):
            pinned = np.ones(len(triplets), bool)
            labeled = settings.labeled
            pinned[: len(mined)] = labeled is not None and np.all(labeled[rows][mined], axis=1)
            function = PinnedWeights(function, pinned)
        problem = TripletObjective(batch, triplets, function, settings.alpha, settings.weight_ridge)
        result = conjugate_gradient(problem, state.L, state.theta, Stopping(settings.steps))
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
    labels: NDArray[np.integer], settings: BatchSettings, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield the rows of each batch and its share of the given triplets."""
    batches = list(batch_sampler(labels, rng, batch_size=settings.batch_size))
    given = np.empty((0, 3), np.intp)
    if settings.given is not None and len(settings.given):
        batches = batches or [np.empty(0, np.intp)]
        given = rng.permutation(settings.given)
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
