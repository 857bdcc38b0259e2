"""sRPML end to end: triplets of AAS clusters, a few Riemannian steps, then the network's step."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rpml.deep.methods.base import Batch, Loss, Method, Setup
from rpml.deep.methods.sources import aas_clusters
from rpml.deep.objective import rpml_loss
from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import WeightRidge, weight_function
from rpml.method.solver.conjugate_gradient import OptimizeResult, Stopping, conjugate_gradient
from rpml.method.solver.manifolds import orthonormalize
from rpml.method.solver.stochastic import EpochState
from rpml.method.triplets.sampling import mine_batch_triplets
from rpml.runtime.threads import single_blas_thread


@dataclass(frozen=True)
class Settings:
    """How a batch is used; the names are those of `rpml.RPML`."""

    weight: str = "concat"
    alpha: float = 25.0
    """In degrees. Three rows equally far apart make 30: above that, the loss of unit rows has
    hardly a triplet left to learn from."""
    weight_ridge: WeightRidge = field(default_factory=WeightRidge)
    mining: str = "semi-hard"
    margin: float = 0.5
    steps: int = 5
    share: float = 0.002
    """How far (theta, L) go towards what the steps on one batch have found; 1: all the way."""
    max_triplets: int = 1000
    scale: float = 4.0
    """The network's loss sees the embedding times this: the larger, the more it is about triplets
    that are violated, and the more it weighs beside the anchor."""


class SRPML(Loss):
    """theta and L are moved by the core's optimiser, the features by the gradient of the loss."""

    learns_projection = True
    theta: torch.Tensor | None

    def __init__(self, setup: Setup, settings: Settings | None = None) -> None:
        super().__init__()
        self.settings = settings or Settings()
        rng = np.random.default_rng(setup.seed)
        weight = weight_function(self.settings.weight)
        theta = weight.initial(setup.features, setup.dim, rng)
        self.register_buffer("theta", None if theta is None else torch.from_numpy(theta))

    def forward(self, batch: Batch) -> torch.Tensor:
        x, chosen = batch.features, self.settings
        # small products: threads of BLAS beside those of torch cost twenty times what they save
        with single_blas_thread():
            triplets = self._move(x.detach().cpu().numpy(), batch)
        if len(triplets) == 0:
            return x.sum() * 0.0
        loss = rpml_loss(
            x,
            torch.from_numpy(triplets).to(x.device),
            chosen.scale * batch.projection.detach(),
            None if self.theta is None else self.theta.to(x),
            chosen.alpha,
            chosen.weight_ridge,
        )
        return loss / (chosen.scale * len(triplets))

    def _move(self, rows: NDArray[np.float32], batch: Batch) -> NDArray[np.intp]:
        """A few steps of (theta, L) on the triplets of the batch, which are returned."""
        state, chosen = self._state(batch.projection), self.settings
        triplets = mine_batch_triplets(
            rows @ state.L.astype(rows.dtype),
            batch.labels.cpu().numpy(),
            batch.rng,
            margin=chosen.margin,
            mining=chosen.mining,
            limit=chosen.max_triplets,
        )
        if len(triplets) and chosen.steps:
            problem = TripletObjective(
                rows, triplets, chosen.weight, chosen.alpha, chosen.weight_ridge
            )
            found = conjugate_gradient(problem, state.L, state.theta, Stopping(chosen.steps))
            self._keep(towards(state, found, chosen.share), batch.projection)
        return triplets

    def _state(self, projection: nn.Parameter) -> EpochState:
        theta = None if self.theta is None else self.theta.cpu().numpy().copy()
        L = np.linalg.qr(projection.detach().cpu().numpy().astype(np.float64))[0]
        return EpochState(L, theta)

    def _keep(self, state: EpochState, projection: nn.Parameter) -> None:
        with torch.no_grad():
            projection.copy_(torch.from_numpy(state.L))
            if self.theta is not None and state.theta is not None:
                self.theta.copy_(torch.from_numpy(state.theta))


def towards(state: EpochState, found: OptimizeResult, share: float) -> EpochState:
    """A running mean of the solutions of the batches.

    Each batch pulls L towards its own 120 rows, and many pulls in a row lead away from what holds
    for all images. The projection of L on the found subspace is mixed in, then made orthonormal.
    """
    mixed = (1 - share) * state.L + share * found.L @ (found.L.T @ state.L)
    theta = None
    if state.theta is not None and found.theta is not None:
        theta = (1 - share) * state.theta + share * found.theta
    return EpochState(orthonormalize(mixed), theta)


METHOD = Method("srpml", "sRPML", aas_clusters, SRPML)
