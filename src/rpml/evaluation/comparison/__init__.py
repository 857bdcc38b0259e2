"""Comparison of RPML with its alternatives: same rows, split and dimension, several seeds."""

from rpml.evaluation.comparison.run import DEFAULT_METHODS, compare
from rpml.evaluation.comparison.table import Comparison

__all__ = ["DEFAULT_METHODS", "Comparison", "compare"]
