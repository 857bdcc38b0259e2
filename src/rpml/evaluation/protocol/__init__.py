"""The paper's protocol: descriptors, whitening, a fit without labels, scores on new classes."""

from rpml.evaluation.protocol.descriptors import from_file

__all__ = ["from_file"]
