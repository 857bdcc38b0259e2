"""The estimator, its fitted attributes, its model file, and fits that can resume."""

from rpml.estimator.embedding import Embedding
from rpml.estimator.features import FitOutcome, ResumableFit, embed_file
from rpml.estimator.rpml import RPML

__all__ = ["RPML", "Embedding", "FitOutcome", "ResumableFit", "embed_file"]
