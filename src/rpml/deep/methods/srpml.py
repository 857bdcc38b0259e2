"""sRPML end to end: triplets of AAS clusters, Riemannian CG on (theta, L), then the network."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method
from rpml.deep.methods.labels import aas_sampler
from rpml.deep.objective import rpml_loss
from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import WeightRidge, weight_function
from rpml.method.solver.conjugate_gradient import OptimizeResult, Stopping, conjugate_gradient
from rpml.method.solver.manifolds import orthonormalize
from rpml.method.solver.stochastic import EpochState
from rpml.method.triplets.batches import mine_batch_triplets
from rpml.runtime.threads import single_blas_thread


@dataclass(frozen=True)
class Settings:
    """Settings of sRPML; those of `rpml.RPML` have the same names.

    Parameters
    ----------
    weight : {"concat", "bilinear", "constant"}, default="concat"
    alpha : float, default=25
        Angle in degrees. An anchor, a positive and a negative at equal distances make 30 degrees:
        above it, almost no triplet of unit rows is violated.
    weight_ridge : WeightRidge, default=WeightRidge()
        Normalized weights and a ridge on theta.
    mining : {"semi-hard", "hard", "all"}, default="semi-hard"
    margin : float, default=0.5
    cg_steps : int, default=5
        Conjugate-gradient steps per batch.
    update_rate : float, default=0.002
        Rate of the running mean of (theta, L) over the solutions of the batches.
    max_triplets : int, default=1000
        Triplets per batch.
    scale : float, default=4
        Factor on the embedding in the network's loss. The larger, the more the loss concentrates
        on violated triplets, and the more it weighs beside the distillation.
    """

    weight: str = "concat"
    alpha: float = 25.0
    weight_ridge: WeightRidge = field(default_factory=WeightRidge)
    mining: str = "semi-hard"
    margin: float = 0.5
    cg_steps: int = 5
    update_rate: float = 0.002
    max_triplets: int = 1000
    scale: float = 4.0


class SRPML(Loss):
    """The triplet loss of RPML: Riemannian CG updates (theta, L), its gradient the network."""

    learns_projection = True
    theta: torch.Tensor | None

    def __init__(self, spec: LossSpec, settings: Settings | None = None) -> None:
        super().__init__()
        self.settings = settings or Settings()
        rng = np.random.default_rng(spec.seed)
        weight = weight_function(self.settings.weight)
        theta = weight.initial(spec.n_features, spec.n_components, rng)
        self.register_buffer("theta", None if theta is None else torch.from_numpy(theta))

    def forward(self, batch: Batch) -> torch.Tensor:
        x, settings = batch.features, self.settings
        with single_blas_thread():  # BLAS threads beside those of torch: 20 times slower
            triplets = self._update_projection(x.detach().cpu().numpy(), batch)
        if len(triplets) == 0:
            return x.sum() * 0.0
        loss = rpml_loss(
            x,
            torch.from_numpy(triplets).to(x.device),
            settings.scale * batch.projection.detach(),
            None if self.theta is None else self.theta.to(x),
            settings.alpha,
            settings.weight_ridge,
        )
        return loss / (settings.scale * len(triplets))

    def _update_projection(self, rows: NDArray[np.float32], batch: Batch) -> NDArray[np.intp]:
        """Mine the triplets of the batch and take a few CG steps on (theta, L)."""
        state, settings = self._state(batch.projection), self.settings
        triplets = mine_batch_triplets(
            rows @ state.L.astype(rows.dtype),
            batch.labels.cpu().numpy(),
            batch.rng,
            margin=settings.margin,
            mining=settings.mining,
            limit=settings.max_triplets,
        )
        if len(triplets) and settings.cg_steps:
            problem = TripletObjective(
                rows, triplets, settings.weight, settings.alpha, settings.weight_ridge
            )
            solution = conjugate_gradient(
                problem, state.L, state.theta, Stopping(settings.cg_steps)
            )
            self._assign(running_mean(state, solution, settings.update_rate), batch.projection)
        return triplets

    def _state(self, projection: nn.Parameter) -> EpochState:
        theta = None if self.theta is None else self.theta.cpu().numpy().copy()
        L = np.linalg.qr(projection.detach().cpu().numpy().astype(np.float64))[0]
        return EpochState(L, theta)

    def _assign(self, state: EpochState, projection: nn.Parameter) -> None:
        with torch.no_grad():
            projection.copy_(torch.from_numpy(state.L))
            if self.theta is not None and state.theta is not None:
                self.theta.copy_(torch.from_numpy(state.theta))


def running_mean(state: EpochState, solution: OptimizeResult, rate: float) -> EpochState:
    """Running mean of (theta, L) over the solutions of the batches.

    The solution of a batch fits its 120 rows only. L is mixed with its projection on the subspace
    of the solution, then made orthonormal.
    """
    mixed = (1 - rate) * state.L + rate * solution.L @ (solution.L.T @ state.L)
    theta = None
    if state.theta is not None and solution.theta is not None:
        theta = (1 - rate) * state.theta + rate * solution.theta
    return EpochState(orthonormalize(mixed), theta)


METHOD = Method(aas_sampler, SRPML)
