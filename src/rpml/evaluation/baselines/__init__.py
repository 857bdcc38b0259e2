"""What RPML is compared with, one method a file.

All take rows of any length, scale them to unit norm, apply one learned affine map and scale the
result to unit norm again, so that the methods differ in the map alone.
"""

from __future__ import annotations

from collections.abc import Callable

from rpml.evaluation.baselines.lda import LDA
from rpml.evaluation.baselines.linear import LinearBaseline
from rpml.evaluation.baselines.lpp import LPP
from rpml.evaluation.baselines.nca import NCA
from rpml.evaluation.baselines.pca import PCA
from rpml.evaluation.baselines.random_projection import RandomProjection
from rpml.evaluation.baselines.raw import Raw

Constructor = Callable[[int, int], LinearBaseline]

# name -> constructor of (n_components, seed)
registry: dict[str, Constructor] = {
    "raw": lambda n_components, seed: Raw(),
    "random": lambda n_components, seed: RandomProjection(n_components, random_state=seed),
    "pca": lambda n_components, seed: PCA(n_components),
    "pca-whitened": lambda n_components, seed: PCA(n_components, exponent=1.0),
    "half-whitened": lambda n_components, seed: PCA(n_components, exponent=0.5),
    "lpp": lambda n_components, seed: LPP(n_components),
    "lda": lambda n_components, seed: LDA(n_components),
    "nca": lambda n_components, seed: NCA(n_components, random_state=seed),
}

__all__ = [
    "LDA",
    "LPP",
    "NCA",
    "PCA",
    "LinearBaseline",
    "RandomProjection",
    "Raw",
    "registry",
]
