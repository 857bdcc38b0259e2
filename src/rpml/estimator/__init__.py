"""The estimator, its fitted attributes, its model file, and fits that can resume."""

from rpml.estimator.description import describe_model
from rpml.estimator.embedding import Embedding
from rpml.estimator.features import check_features, embed_batches, embed_file, load_embedded
from rpml.estimator.fit_inputs import read_constraints, read_pairs
from rpml.estimator.fitted import describe_settings, load_model, save_model
from rpml.estimator.resumable import FitOutcome, ResumableFit
from rpml.estimator.rpml import RPML

__all__ = [
    "RPML",
    "Embedding",
    "FitOutcome",
    "ResumableFit",
    "check_features",
    "describe_model",
    "describe_settings",
    "embed_batches",
    "embed_file",
    "load_embedded",
    "load_model",
    "read_constraints",
    "read_pairs",
    "save_model",
]
