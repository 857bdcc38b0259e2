"""Distillation from the network before training, shared by all methods.

Training on a few classes makes a network forget the others. Two terms keep the features of an
image close to those before training, averaged over its views. Since that mean is a better
descriptor than any single view, the terms also teach the network to predict from one view what it
used to predict from all of them.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import log_softmax, normalize

TEMPERATURE = 0.05
MAX_REFERENCES = 20_000


class FeatureDistillation:
    """Cosine and neighborhood distillation from the features before training.

    `features` (n_images, n_features) and `projection` are those before training, the features as
    unit rows averaged over the views. `feature_weight` is that of 1 - cosine between the features
    of an image now and then, `neighbor_weight` that of the cross-entropy between the softmax of its
    similarities to at most `MAX_REFERENCES` reference images, then and now.
    """

    def __init__(
        self,
        features: NDArray[np.floating],
        projection: torch.Tensor,
        feature_weight: float,
        neighbor_weight: float,
    ) -> None:
        self.feature_weight, self.neighbor_weight = feature_weight, neighbor_weight
        self._features = torch.from_numpy(features.copy()).to(projection.device)
        self._projection = projection.detach().clone()
        self._embedding = self._embed(self._features)
        step = -(-len(features) // MAX_REFERENCES)
        self._references = self._embedding[::step]

    def loss(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the distillation loss of a batch of features of the images `rows`."""
        total = features.new_zeros(())
        if self.feature_weight:
            cosine = (features * self._features[rows]).sum(1)
            total = total + self.feature_weight * (1 - cosine).mean()
        if self.neighbor_weight:
            total = total + self.neighbor_weight * self._neighborhood(features, rows)
        return total

    def _neighborhood(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        before, now = self._embedding[rows], self._embed(features)
        references = self._references
        if len(references) < len(self._embedding):  # sampled: add the images of the batch
            references = torch.cat([references, before])
        target = torch.softmax(before @ references.T / TEMPERATURE, 1)
        return -(target * log_softmax(now @ references.T / TEMPERATURE, 1)).sum(1).mean()

    def _embed(self, features: torch.Tensor) -> torch.Tensor:
        return normalize(features @ self._projection)
