"""The paper's protocol: descriptors, whitening, a fit without labels, scores on new classes."""

from rpml.evaluation.protocol.descriptors import Descriptors, from_file
from rpml.evaluation.protocol.scores import DEFAULT_METHODS, MeasuredRow, run_methods
from rpml.evaluation.protocol.table import as_fields, as_lines, as_markdown

__all__ = [
    "DEFAULT_METHODS",
    "Descriptors",
    "MeasuredRow",
    "as_fields",
    "as_lines",
    "as_markdown",
    "from_file",
    "run_methods",
]
