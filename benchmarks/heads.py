"""The deep methods as a linear map on fixed vectors, for comparisons; no images needed."""

from __future__ import annotations

import numpy as np
import torch
from deep_baselines import ALL as METHODS
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from rpml.deep.embedder import Embedder, MultiViewDataset, frozen_descriptors, linear_start
from rpml.deep.trainer import Schedule, Trainer
from rpml.evaluation.registry import LinearBaseline, Method
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.rows import Array, RandomState, unit_rows

VIEWS = 3
DROPPED = 0.2  # share of missing coordinates in a view
_MASKS = 64


def vector_views(X: NDArray[np.floating], seed: int) -> MultiViewDataset:
    """Vectors as training inputs; a fifth of the coordinates is missing in each view."""
    rows = unit_rows(np.asarray(X, np.float32))
    rng = np.random.default_rng(seed)
    masks = rng.random((VIEWS, _MASKS, X.shape[1])) >= DROPPED
    masks[0] = True  # the first view is the vector itself

    def load(wanted: NDArray[np.intp], views: NDArray[np.intp]) -> torch.Tensor:
        return torch.from_numpy(rows[wanted] * masks[views, wanted % _MASKS].astype(np.float32))

    return MultiViewDataset(len(rows), VIEWS, load)


class DeepHead(LinearBaseline):
    """A `method` of `deep_baselines.ALL` that only learns a linear map."""

    def __init__(
        self,
        n_components: int = 2,
        *,
        method: str = "srpml",
        n_epochs: int = 5,
        random_state: RandomState = None,
    ) -> None:
        self.n_components, self.method = n_components, method
        self.n_epochs, self.random_state = n_epochs, random_state

    @property
    def uses_labels(self) -> bool:  # type: ignore[override]
        """Whether the method sees the classes of the training rows."""
        return METHODS[self.method].uses_labels

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        start = linear_start(X[:, None], self.n_components, seed)
        inputs = vector_views(X, seed)
        upper = torch.nn.Identity()
        embedder = Embedder(upper, "mac", start.preprocessing_, start.components_.T)
        schedule = Schedule(
            self.n_epochs,
            projection_rate=1e-3,
            feature_distillation=0.0,
            neighbor_distillation=0.0,
            seed=seed,
        )
        frozen = frozen_descriptors(embedder, inputs)
        trained = Trainer(embedder, inputs, METHODS[self.method], schedule, frozen, y).run()
        matrix = (trained.matrix @ trained.projection).detach().cpu().numpy()
        # the scaling between the two products does not matter, since the result has unit norm
        return Preprocessing(True, start.preprocessing_.mean, matrix, True)


def head(name: str) -> Method:
    """Return a deep method as a linear map on fixed features."""
    deep = METHODS[name]
    note = "head, uses labels" if deep.uses_labels else "head"

    def build(n_components: int, seed: RandomState) -> DeepHead:
        return DeepHead(n_components, method=name, random_state=seed)

    return Method(f"head-{name}", f"{deep.title} ({note})", build, deep.uses_labels)
