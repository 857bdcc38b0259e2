"""Discount a nuisance, or what sets queries apart, where the evidence supports it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rpml.method.whitening.classes import padded
from rpml.method.whitening.linear_map import Preprocessing, Spectrum
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    NuisanceEvidence,
    ScatterChoice,
    projected,
)
from rpml.method.whitening.nuisance import (
    Nuisance,
    comparable_rows,
    cross_pairs,
    cross_scatter,
    no_nuisance,
    removal,
    shrinkage_of,
)
from rpml.method.whitening.nuisance_evidence import KnownRows, Verdict, judge, shared
from rpml.runtime.blas import single_blas_thread, times
from rpml.runtime.rows import Array


@dataclass(frozen=True)
class Discount:
    """The rows without what does not matter, and the scatter that whitens them."""

    spectrum: Spectrum
    """Their principal axes."""
    scatter: Array
    choice: ScatterChoice
    ranking: Array
    """By what axes are ranked."""


@dataclass(frozen=True)
class Place:
    """The axes of coordinates."""

    spectrum: Spectrum
    """Of all rows."""
    unit: bool
    """Whether rows are scaled to unit norm."""


@dataclass(frozen=True)
class Knowledge:
    """What is known of sampled rows and does not matter, and queries."""

    nuisance: Nuisance | None
    queries: Array | None

    @property
    def source(self) -> str:
        names = {"nuisance": self.nuisance, "queries": self.queries}
        return " and ".join(name for name, given in names.items() if given is not None)


Estimate = tuple[Array, ScatterChoice]
"""A scatter, and how it is used."""


@single_blas_thread()
def discount(
    known: Knowledge, data: Coordinates, usual: Estimate, where: Place, rng: np.random.Generator
) -> tuple[Discount | None, NuisanceEvidence]:
    """Return the discount, None where the evidence does not support it, and that evidence.

    Parameters
    ----------
    known : Knowledge
    data : Coordinates
        The sampled rows.
    usual : (scatter, choice)
        Of the fit without the knowledge.
    where : Place
        The axes of the coordinates.
    rng : numpy Generator
    """
    rows = known_rows(known, data, usual, where)
    found, chance = shared(rows.Y, rows.nuisance.values, rows.asks, rng)
    before = NuisanceEvidence(known.source, False, "", 0, found, chance, found)
    comparable = rows.subset(comparable_rows(rows.nuisance.values, rng))
    if len(np.unique(comparable.nuisance.values)) < 2:
        return None, replace(before, reason="fewer than two of its values have enough rows")
    K, n_removed = removal(rows.Y, rows.nuisance.columns)
    shortened = times(comparable.Y, K.astype(rows.Y.dtype))
    n_pairs = len(cross_pairs(shortened, comparable.nuisance.values))
    verdict = judge(comparable, n_pairs, rng)
    if verdict.share is None:
        return None, replace(before, reason=verdict.reason)
    made = _discounted(comparable, K, where.spectrum, verdict, known.source)
    return made, replace(before, used=True, reason=verdict.reason, n_removed=n_removed)


def known_rows(known: Knowledge, data: Coordinates, usual: Estimate, where: Place) -> KnownRows:
    """Return the sampled rows, then the queries, in principal coordinates."""
    deviations = data.deviations.astype(data.W.dtype)
    Y, n, q = data.W * deviations, len(data.W), data.W.shape[1]
    nuisance = known.nuisance or no_nuisance(n)
    asks = np.ones(n, bool)
    if known.queries is not None:
        every = np.arange(len(known.queries))
        W = projected(known.queries, every, where.spectrum, where.unit, q)
        Y = np.concatenate([Y, W * deviations])
        nuisance = nuisance.with_queries(len(W))
        # without a nuisance documents look for nothing
        asks = np.append(np.full(n, known.nuisance is not None), np.ones(len(W), bool))
    spread = np.diag(data.deviations**2)
    prior = padded(data, *usual)
    return KnownRows(Y, nuisance, asks, spread, prior, usual[1], data.n_components)


def _discounted(
    rows: KnownRows, K: Array, spectrum: Spectrum, verdict: Verdict, source: str
) -> Discount:
    """Return the scatter across values in the principal axes of the shortened rows."""
    q, share = len(K), float(verdict.share or 0.0)
    variances, turn = np.linalg.eigh(K @ rows.spread @ K)
    significant = np.flatnonzero(variances > variances[-1] * 1e-9)[::-1]
    variances, turn = variances[significant], K @ turn[:, significant]
    shortened = Spectrum(spectrum.mean, spectrum.axes[:, :q] @ turn, variances)
    prior = turn.T @ rows.prior @ turn
    Y = times(rows.Y, turn.astype(rows.Y.dtype))
    size = min(rows.n_components, len(variances))
    made = cross_scatter(Y, rows.nuisance.values, np.diag(variances), prior, size)
    strength = {share: shrinkage_of(share, made, size) for share in verdict.gains}
    choice = ScatterChoice(
        source=source,
        shrinkage=strength[share],
        evidence={strength[share]: gain for share, gain in verdict.gains.items()},
        reason=verdict.reason,
        trains=False,
    )
    return Discount(shortened, made.scatter, choice, made.ranking(share))


def shared_after(
    rows: KnownRows, where: Place, applied: Preprocessing, rng: np.random.Generator
) -> float:
    """Return how often a row's nearest row shares its value in the embedding."""
    axes, matrix = where.spectrum.axes[:, : rows.Y.shape[1]], applied.matrix[:, : rows.n_components]
    Y = times(rows.Y, (axes.T @ matrix).astype(rows.Y.dtype))
    return shared(Y, rows.nuisance.values, rows.asks, rng)[0]
