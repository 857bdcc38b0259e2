"""What training must not forget: where each image lay before it, averaged over its views.

Naive training loses what the network knew of classes that are not in the training images. The mean
over an image's views is a better descriptor than any one view, so staying near it is not only a
guard but a teacher: the network learns to say from one view what it used to say from all of them.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import log_softmax, normalize

TEMPERATURE = 0.05
MAX_REFERENCES = 20_000  # images that a neighbourhood is told by; all of them if there are fewer


class Keeper:
    """The terms of the loss that every method shares.

    Parameters
    ----------
    features : (n, p) array
        Features of every image before training, averaged over its views, unit rows.
    projection : (p, l) tensor
        The embedding before training.
    anchor : float
        Weight of 1 - cosine between an image's features and those before training.
    neighbours : float
        Weight of the cross-entropy between its neighbourhoods in the embedding: the softmax of
        the likeness to all images, before training and now.
    """

    def __init__(
        self,
        features: NDArray[np.floating],
        projection: torch.Tensor,
        anchor: float,
        neighbours: float,
    ) -> None:
        self.anchor, self.neighbours = anchor, neighbours
        self._features = torch.from_numpy(features.copy()).to(projection.device)
        self._projection = projection.detach().clone()
        self._embedding = self._embed(self._features)
        step = -(-len(features) // MAX_REFERENCES)
        self._references = self._embedding[::step]

    def loss(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The penalty of a batch: its new features, and the numbers of its images."""
        total = features.new_zeros(())
        if self.anchor:
            cosine = (features * self._features[rows]).sum(1)
            total = total + self.anchor * (1 - cosine).mean()
        if self.neighbours:
            total = total + self.neighbours * self._neighbourhood(features, rows)
        return total

    def _neighbourhood(self, features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        before, now = self._embedding[rows], self._embed(features)
        references = self._references
        if len(references) < len(self._embedding):  # the images themselves are always among them
            references = torch.cat([references, before])
        target = torch.softmax(before @ references.T / TEMPERATURE, 1)
        return -(target * log_softmax(now @ references.T / TEMPERATURE, 1)).sum(1).mean()

    def _embed(self, features: torch.Tensor) -> torch.Tensor:
        return normalize(features @ self._projection)
