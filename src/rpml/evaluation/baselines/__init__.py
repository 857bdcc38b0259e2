"""The baselines of RPML, one per file; `rpml.evaluation.registry` names them.

All scale rows to unit norm, apply one learned affine map and scale the result to unit norm again,
so that the methods only differ in the map.
"""

from rpml.evaluation.baselines.all_but_the_top import AllButTheTop
from rpml.evaluation.baselines.lda import LDA, PseudoLabelLDA
from rpml.evaluation.baselines.linear import LinearBaseline
from rpml.evaluation.baselines.lpp import LPP
from rpml.evaluation.baselines.nca import NCA
from rpml.evaluation.baselines.pca import PCA, WhitenedDescriptors
from rpml.evaluation.baselines.random_projection import RandomProjection
from rpml.evaluation.baselines.raw import Raw
from rpml.evaluation.baselines.shrunk_whitening import ShrunkWhitening
from rpml.evaluation.baselines.truncation import Truncation

__all__ = [
    "LDA",
    "LPP",
    "NCA",
    "PCA",
    "AllButTheTop",
    "LinearBaseline",
    "PseudoLabelLDA",
    "RandomProjection",
    "Raw",
    "ShrunkWhitening",
    "Truncation",
    "WhitenedDescriptors",
]
