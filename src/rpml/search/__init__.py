"""Search among codes: sign bits first, int8 rescoring of the best; bridges between encoders."""

from rpml.search.bridge import Bridge, learn_bridge
from rpml.search.index import Hits, Index

__all__ = ["Bridge", "Hits", "Index", "learn_bridge"]
