"""sRPML end to end: triplets of AAS clusters, Riemannian CG on (theta, L), then the network."""

import numpy as np
import torch
from torch.nn.functional import softplus

from rpml.deep.methods.base import Batch, Loss, LossSpec
from rpml.method.objective.triplet_loss import TripletObjective, angular_factor
from rpml.method.objective.weights import weight_function
from rpml.method.solver.conjugate_gradient import SolverState, Stopping, descend, orthonormalize
from rpml.method.triplets.sampling import mine_batch_triplets
from rpml.runtime.rows import Floats, Indices
from rpml.runtime.threads import single_blas_thread

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
        return rpml_loss(x, indices, L, self.theta.to(x)) / (SCALE * len(triplets))

    def _update_projection(self, rows: Floats, batch: Batch) -> Indices:
        """Mine the triplets of the batch and move (theta, L) towards a few CG steps on them.

        The solution of a batch fits its 120 rows only, so that (theta, L) are a running mean. L is
        mixed with its projection on the subspace of the solution, then made orthonormal.
        """
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
            mixed = (1 - UPDATE_RATE) * L + UPDATE_RATE * solution.L @ (solution.L.T @ L)
            with torch.no_grad():
                batch.projection.copy_(torch.from_numpy(orthonormalize(mixed)))
                self.theta.lerp_(torch.as_tensor(solution.theta).to(self.theta), UPDATE_RATE)
        return triplets


def rpml_loss(
    X: torch.Tensor, triplets: torch.Tensor, L: torch.Tensor, theta: torch.Tensor
) -> torch.Tensor:
    """Return the sum over triplets of log(1 + exp(w m)), as `TripletObjective` computes it."""
    Y = X @ L
    a, p, n = triplets.T
    near = (Y[a] - Y[p]).square().sum(1)
    far = (Y[n] - (Y[a] + Y[p]) / 2).square().sum(1)
    m = softplus(near - angular_factor(ALPHA) * far)
    left, right = (X @ part for part in theta.reshape(2, -1))
    w = torch.sigmoid((left[a] + left[p]) / 2 + right[n])  # eq. (wt)
    penalty = 0.5 * RIDGE * len(triplets) * theta.square().sum()
    return softplus(w / w.mean() * m).sum() + penalty
