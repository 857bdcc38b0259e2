"""The triplet objective in torch, differentiable in the features."""

import torch
from torch.nn.functional import softplus

from rpml.method.objective.triplet_loss import angular_factor
from rpml.method.objective.weights import WeightRidge


def rpml_loss(
    X: torch.Tensor,
    triplets: torch.Tensor,
    L: torch.Tensor,
    theta: torch.Tensor | None,
    alpha: float = 45.0,
    weight_ridge: WeightRidge | None = None,
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
        penalty = 0.5 * weight_ridge.ridge * len(triplets) * theta.square().sum()
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
