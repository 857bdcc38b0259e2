"""Models: what a fit leaves, its file, and fits that survive an interruption."""

from __future__ import annotations

from rpml.model.description import describe_model
from rpml.model.embedding import Embedding
from rpml.model.features import check_features, embed_batches, embed_file, load_embedded
from rpml.model.fit_inputs import read_constraints
from rpml.model.fitted import describe_settings, load_model, save_model
from rpml.model.resumable import FitOutcome, ResumableFit

__all__ = [
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
    "save_model",
]
