"""Search in codes and bridges between encoders."""

from rpml.search.bridge import Bridge, learn_bridge
from rpml.search.index import Hits, Index

__all__ = ["Bridge", "Hits", "Index", "learn_bridge"]
