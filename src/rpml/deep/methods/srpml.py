"""sRPML end to end: triplets of AAS clusters, Riemannian CG on (theta, L), then the network."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import softplus

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method
from rpml.deep.methods.batches import aas_sampler
from rpml.method.objective.triplet_loss import TripletObjective, angular_factor
from rpml.method.objective.weights import weight_function
from rpml.method.solver.conjugate_gradient import OptimizeResult, SolverState, Stopping, descend
from rpml.method.solver.manifolds import orthonormalize
from rpml.method.triplets.batches import mine_batch_triplets
from rpml.runtime.blas import single_blas_thread
from rpml.runtime.rows import Array

WEIGHT = "concat"
ALPHA = 25.0  # degrees: rows at equal distances make 30, above which few unit rows violate anything
RIDGE = 0.01
MINING, MARGIN = "semi-hard", 0.5
CG_STEPS = 5  # per batch
UPDATE_RATE = 0.002  # of the running mean of (theta, L) over the solutions of the batches
MAX_TRIPLETS = 1000  # per batch
SCALE = 4.0
"""Factor on the embedding in the network's loss. The larger, the more the loss concentrates on
violated triplets, and the more it weighs against the distillation."""


class SRPML(Loss):
    """The triplet loss of RPML: Riemannian CG updates (theta, L), its gradient the network."""

    learns_projection = True
    theta: torch.Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        rng = np.random.default_rng(spec.seed)
        theta = weight_function(WEIGHT).initial(spec.n_features, spec.n_components, rng)
        self.register_buffer("theta", torch.as_tensor(theta))

    def forward(self, batch: Batch) -> torch.Tensor:
        x = batch.features
        with single_blas_thread():  # BLAS threads on top of torch's are 20 times slower
            triplets = self._update_projection(x.detach().cpu().numpy(), batch)
        if len(triplets) == 0:
            return x.sum() * 0.0
        indices, L = torch.from_numpy(triplets).to(x.device), SCALE * batch.projection.detach()
        loss = rpml_loss(x, indices, L, self.theta.to(x), ALPHA, RIDGE)
        return loss / (SCALE * len(triplets))

    def _update_projection(self, rows: NDArray[np.float32], batch: Batch) -> NDArray[np.intp]:
        """Mine the triplets of the batch and take a few CG steps on (theta, L)."""
        L = np.linalg.qr(batch.projection.detach().cpu().numpy().astype(np.float64))[0]
        theta = self.theta.cpu().numpy().copy()
        triplets = mine_batch_triplets(
            rows @ L.astype(rows.dtype),
            batch.labels.cpu().numpy(),
            batch.rng,
            margin=MARGIN,
            mining=MINING,
            limit=MAX_TRIPLETS,
        )
        if len(triplets):
            problem = TripletObjective(rows, triplets, WEIGHT, ALPHA, RIDGE)
            solution = descend(problem, SolverState(L, theta), Stopping(CG_STEPS))
            L, theta = running_mean(L, theta, solution)
            with torch.no_grad():
                batch.projection.copy_(torch.from_numpy(L))
                self.theta.copy_(torch.from_numpy(theta))
        return triplets


def running_mean(L: Array, theta: Array, solution: OptimizeResult) -> tuple[Array, Array]:
    """Running mean of L and theta over the solutions of the batches.

    The solution of a batch fits its 120 rows only. L is mixed with its projection on the subspace
    of the solution, then made orthonormal.
    """
    assert solution.theta is not None  # "concat" has parameters
    mixed = (1 - UPDATE_RATE) * L + UPDATE_RATE * solution.L @ (solution.L.T @ L)
    return orthonormalize(mixed), (1 - UPDATE_RATE) * theta + UPDATE_RATE * solution.theta


def rpml_loss(
    X: torch.Tensor,
    triplets: torch.Tensor,
    L: torch.Tensor,
    theta: torch.Tensor | None,
    alpha: float = 45.0,
    weight_ridge: float | None = None,
) -> torch.Tensor:
    """Return the sum over triplets of log(1 + exp(w m)), as in `rpml.method.objective`.

    theta has the shape (2 n_features,) for the weights of RPML and (n_features, q) for those of
    RPMLv1; None means w = 1. `alpha` is in degrees. `weight_ridge` normalizes the weights and adds
    a ridge on theta; None is the printed objective.
    """
    Y = X @ L
    a, p, n = triplets.T
    near = (Y[a] - Y[p]).square().sum(1)
    far = (Y[n] - (Y[a] + Y[p]) / 2).square().sum(1)
    m = softplus(near - angular_factor(alpha) * far)
    w = triplet_weights(X, triplets, theta)
    penalty = Y.new_zeros(())
    if weight_ridge is not None and theta is not None:
        w = w / w.mean()
        penalty = 0.5 * weight_ridge * len(triplets) * theta.square().sum()
    return softplus(w * m).sum() + penalty


def triplet_weights(
    X: torch.Tensor, triplets: torch.Tensor, theta: torch.Tensor | None
) -> torch.Tensor:
    """Return w of each triplet: eq. (wt) for a vector theta, (wt1) to (w_-) for a matrix, or 1."""
    a, p, n = triplets.T
    if theta is None:
        return torch.ones(len(triplets), dtype=X.dtype, device=X.device)
    if theta.ndim == 1:
        left, right = theta.reshape(2, -1)
        from_left, from_right = X @ left, X @ right
        return torch.sigmoid((from_left[a] + from_left[p]) / 2 + from_right[n])
    P = X @ theta
    near = (P[a] * P[p]).sum(1)
    far = ((P[a] + P[p]) / 2 * P[n]).sum(1)
    return (torch.sigmoid(near) + torch.sigmoid(-far)) / 2


SRPML_METHOD = Method(aas_sampler, SRPML)
