"""The baselines of RPML, one per file; `rpml.evaluation.registry` names them.

All scale rows to unit norm, apply one learned affine map and scale the result to unit norm again,
so that the methods only differ in the map.
"""
