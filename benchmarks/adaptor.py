"""The unsupervised Matryoshka-Adaptor: a skip network whose prefixes preserve similarities.

torch is imported when an adaptor is fitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rpml.evaluation.registry import checked_size
from rpml.runtime.errors import require
from rpml.runtime.rows import RandomState, check_rows, unit_rows

if TYPE_CHECKING:
    import torch

SMALLEST_PREFIX = 8
BATCH_SIZE, N_NEIGHBORS = 256, 10


class MatryoshkaAdaptor(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The first columns of x + f(x), where f is trained without labels.

    J. Yoon, R. Sinha, S. O. Arik, T. Pfister, "Matryoshka-Adaptor: unsupervised and supervised
    tuning for smaller embedding dimensions" (EMNLP 2024). `hidden` is the width of f's hidden
    layer, by default the number of features; 0 means a linear f.
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        hidden: int | None = None,
        n_epochs: int = 30,
        learning_rate: float = 1e-3,
        random_state: RandomState = None,
    ) -> None:
        self.n_components, self.hidden, self.n_epochs = n_components, hidden, n_epochs
        self.learning_rate, self.random_state = learning_rate, random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Train f on the rows of X scaled to unit norm; y is ignored."""
        require("torch", "deep", "the Matryoshka-Adaptor")
        import torch

        X = check_rows(self, X, reset=True)
        checked_size(self.n_components, X.shape[1], "the adaptor", "the number of features")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows = torch.from_numpy(unit_rows(np.asarray(X, np.float32)))
        generator = torch.Generator().manual_seed(seed)
        self.network_ = _skip_layers(rows.shape[1], self.hidden, generator)
        optimizer = torch.optim.Adam(self.network_.parameters(), self.learning_rate)
        for _ in range(self.n_epochs):
            shuffled = rows[torch.randperm(len(rows), generator=generator)]
            for first in range(0, len(rows) - 1, BATCH_SIZE):
                optimizer.zero_grad()
                loss = self._loss(shuffled[first : first + BATCH_SIZE])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        return self

    def _loss(self, rows: torch.Tensor) -> torch.Tensor:
        adapted: torch.Tensor = rows + self.network_(rows)
        local, everywhere = similarity_losses(
            rows, adapted, prefix_sizes(self.n_components), N_NEIGHBORS
        )
        return local + everywhere + (rows - adapted).abs().mean()

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Embed rows; each has unit norm."""
        check_is_fitted(self)
        import torch

        rows = torch.from_numpy(unit_rows(np.asarray(check_rows(self, X, reset=False), np.float32)))
        with torch.no_grad():
            adapted = rows + self.network_(rows)
        return unit_rows(adapted[:, : self.n_components].numpy())

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components)


def prefix_sizes(n_components: int) -> list[int]:
    """Return the prefixes that the losses use: all columns, and halves down to 8 columns."""
    sizes = [n_components]
    while sizes[-1] >= 2 * SMALLEST_PREFIX:
        sizes.append(sizes[-1] // 2)
    return sizes


def similarity_losses(
    rows: torch.Tensor, adapted: torch.Tensor, sizes: list[int], n_neighbors: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean change of the cosine similarity to the nearest rows, and between all pairs.

    Both are summed over the prefixes of the adapted rows.
    """
    import torch
    from torch.nn.functional import normalize

    others = ~torch.eye(len(rows), dtype=torch.bool)
    similarity = normalize(rows) @ normalize(rows).T
    k = min(n_neighbors, len(rows) - 1)
    nearest = similarity.masked_fill(~others, -torch.inf).topk(k).indices
    local, everywhere = torch.zeros(()), torch.zeros(())
    for size in sizes:
        prefix = normalize(adapted[:, :size])
        change = (similarity - prefix @ prefix.T).abs()
        local = local + change.gather(1, nearest).mean()
        everywhere = everywhere + change[others].mean()
    return local, everywhere


def _skip_layers(d: int, hidden: int | None, generator: torch.Generator) -> torch.nn.Module:
    """Return f: one linear map, or two with a ReLU between; the last is initialized to zero."""
    from torch import nn

    width = d if hidden is None else hidden
    last = nn.Linear(width or d, d)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    if width == 0:
        return last
    first = nn.Linear(d, width)
    nn.init.normal_(first.weight, std=d**-0.5, generator=generator)
    nn.init.zeros_(first.bias)
    return nn.Sequential(first, nn.ReLU(), last)
