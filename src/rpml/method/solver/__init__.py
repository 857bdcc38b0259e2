"""Manifolds, line search and the solvers."""

from rpml.method.solver.conjugate_gradient import fit_triplets

__all__ = ["fit_triplets"]
