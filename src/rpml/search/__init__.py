"""Search among codes: sign bits first, int8 rescoring of the best."""

from rpml.search.index import Hits, Index

__all__ = ["Hits", "Index"]
