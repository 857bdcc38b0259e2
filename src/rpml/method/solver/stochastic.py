"""sRPML: mini-batches, triplets mined within each, a few warm-started conjugate-gradient steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import PinnedWeights, weight_function
from rpml.method.solver.conjugate_gradient import (
    Callback,
    OptimizeResult,
    SolverState,
    Stopping,
    descend,
    iterate,
)
from rpml.method.triplets.batches import batch_sampler, mine_batch_triplets
from rpml.runtime.rows import Array, Labels

if TYPE_CHECKING:
    from rpml.method.settings import FitSettings

TRIPLETS_PER_ROW = 8  # per row of a batch, sampled at random


@dataclass(frozen=True)
class Batches:
    """What the epochs of sRPML learn from."""

    X: Array
    labels: Labels
    labeled: NDArray[np.bool_]
    """(n,) rows of given class: triplets of such rows keep their weight."""
    given: NDArray[np.intp]
    """(k, 3) triplets from constraints, divided among the batches of each epoch; weight 1."""
    settings: FitSettings

    def run_epoch(self, state: SolverState, rng: np.random.Generator) -> None:
        """Run one pass over the rows; changes the state.

        Each batch pulls L towards its own rows, so the last iterate is noisy. With `average` the
        epoch ends at the mean of its iterates, otherwise at the last one, as in the paper.
        """
        sums = np.zeros(4)  # of loss, gradient norm, weight and triplets
        projections, n_batches = np.zeros((len(state.L), len(state.L))), 0
        thetas: Array | float = 0.0
        for rows, given in self._batches(rng):
            problem = self._problem(state, rows, given, rng)
            if problem.n_triplets == 0:
                continue
            start = SolverState(state.L, state.theta)
            result = descend(problem, start, Stopping(self.settings.batch_steps))
            state.L, state.theta = result.L, result.theta
            projections += state.L @ state.L.T
            thetas = thetas if state.theta is None else thetas + state.theta
            n_batches += 1
            weight = result.history["mean_weight"][-1] * problem.n_triplets
            norm = result.history["gradient_norm"][-1]
            sums += (result.loss, norm, weight, problem.n_triplets)
        if self.settings.average and n_batches:
            state.L = _mean_subspace(projections, state.L.shape[1])
            state.theta = None if state.theta is None else np.asarray(thetas / n_batches)
        state.loss, norm, weight = sums[:3] / max(1, sums[3])
        state.record(loss=state.loss, gradient_norm=norm, mean_weight=weight, n_triplets=sums[3])
        state.iteration += 1

    def _batches(
        self, rng: np.random.Generator
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Yield the rows of each batch and its share of the given triplets."""
        batches = list(batch_sampler(self.labels, rng, batch_size=self.settings.batch_size))
        given = self.given
        if len(given):
            batches = batches or [np.empty(0, np.intp)]
            given = rng.permutation(given)
        return zip(batches, np.array_split(given, max(1, len(batches))), strict=False)

    def _problem(
        self,
        state: SolverState,
        rows: NDArray[np.intp],
        given: NDArray[np.intp],
        rng: np.random.Generator,
    ) -> TripletObjective:
        """Return the objective of one batch."""
        settings = self.settings
        batch = np.ascontiguousarray(self.X[np.concatenate([rows, given.ravel()])])
        mined = mine_batch_triplets(
            batch[: len(rows)] @ state.L.astype(batch.dtype),
            self.labels[rows],
            rng,
            mining=settings.mining,
            limit=TRIPLETS_PER_ROW * settings.batch_size,
        )
        triplets = np.vstack([mined, len(rows) + np.arange(given.size).reshape(-1, 3)])
        weight = weight_function(settings.weight)
        if self.labeled.any() or len(given):
            pinned = np.ones(len(triplets), bool)
            pinned[: len(mined)] = np.all(self.labeled[rows][mined], axis=1)
            weight = PinnedWeights(weight, pinned)
        return TripletObjective(batch, triplets, weight, settings.alpha, settings.weight_ridge)


def _mean_subspace(projections: Array, l: int) -> Array:
    """Return the extrinsic mean on the Grassmannian: the sum of the L L', reduced to rank l."""
    d = len(projections)
    _, axes = linalg.eigh(projections, subset_by_index=[d - l, d - 1])
    return np.ascontiguousarray(axes[:, ::-1])


def run_epochs(
    batches: Batches,
    state: SolverState,
    n_epochs: int,
    seed: int,
    callback: Callback | None = None,
) -> OptimizeResult:
    """Run the stochastic solver.

    The random stream of an epoch only depends on `seed` and the epoch's number, so a run resumed
    from a saved state ends exactly like an uninterrupted one.
    """

    def epoch(state: SolverState) -> str:
        batches.run_epoch(state, np.random.default_rng([seed, state.iteration]))
        return ""

    def reason_to_stop(state: SolverState) -> str:
        return "all epochs done" if state.iteration >= n_epochs else ""

    return iterate(state, epoch, reason_to_stop, callback)
