"""RPML beside its alternatives: same rows, same split, equal dimension, several seeds."""

from rpml.evaluation.comparison.methods import DEFAULT_METHODS, METHODS, Method
from rpml.evaluation.comparison.run import compare
from rpml.evaluation.comparison.table import Comparison

__all__ = ["DEFAULT_METHODS", "METHODS", "Comparison", "Method", "compare"]
