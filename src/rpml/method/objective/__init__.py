"""Weight functions and the triplet loss."""

from rpml.method.objective.triplet_loss import loss_and_gradients

__all__ = ["loss_and_gradients"]
