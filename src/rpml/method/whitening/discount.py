"""Discount a nuisance, or what sets queries apart, where the evidence supports it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rpml.method.whitening.classes import padded
from rpml.method.whitening.linear_map import Preprocessing, Spectrum
from rpml.method.whitening.neighborhoods import Coordinates, Estimate
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
from rpml.method.whitening.scatter_choice import NuisanceEvidence, ScatterChoice
from rpml.runtime.blas import single_blas_thread, times
from rpml.runtime.rows import Array


@single_blas_thread()
def discount(
    rows: KnownRows, source: str, spectrum: Spectrum, rng: np.random.Generator
) -> tuple[tuple[Spectrum, Estimate, Array] | None, NuisanceEvidence]:
    """Return what is left of the rows where the evidence supports it, else None, and the evidence.

    That is the principal axes of the rows without what does not matter, the scatter that whitens
    them, and by what axes are then ranked. `spectrum` is that of all rows.
    """
    found, chance = shared(rows.Y, rows.nuisance.values, rows.asks, rng)
    before = NuisanceEvidence(source, False, "", 0, found, chance, found)
    comparable = rows.subset(comparable_rows(rows.nuisance.values, rng))
    if len(np.unique(comparable.nuisance.values)) < 2:
        return None, replace(before, reason="fewer than two of its values have enough rows")
    K, n_removed = removal(rows.Y, rows.nuisance.columns)
    shortened = times(comparable.Y, K.astype(rows.Y.dtype))
    n_pairs = len(cross_pairs(shortened, comparable.nuisance.values))
    verdict = judge(comparable, n_pairs, rng)
    if verdict.share is None:
        return None, replace(before, reason=verdict.reason)
    made = _discounted(comparable, K, spectrum, verdict, source)
    return made, replace(before, used=True, reason=verdict.reason, n_removed=n_removed)


def known_rows(
    data: Coordinates, usual: Estimate, nuisance: Nuisance | None, queries: Array | None
) -> KnownRows:
    """Return the sampled rows, then the queries, in principal coordinates.

    `usual` is the estimate of the fit without the knowledge; queries are in standard deviations.
    """
    deviations = data.deviations.astype(data.W.dtype)
    Y, n = data.W * deviations, len(data.W)
    values, asks = nuisance or no_nuisance(n), np.ones(n, bool)
    if queries is not None:
        Y = np.concatenate([Y, queries * deviations])
        values = values.with_queries(len(queries))
        # without a nuisance documents look for nothing
        asks = np.append(np.full(n, nuisance is not None), np.ones(len(queries), bool))
    spread, prior = np.diag(data.deviations**2), padded(data, *usual)
    return KnownRows(Y, values, asks, spread, prior, usual[1], data.n_components)


def _discounted(
    rows: KnownRows, K: Array, spectrum: Spectrum, verdict: Verdict, source: str
) -> tuple[Spectrum, Estimate, Array]:
    """Return the scatter across values in the principal axes of the shortened rows."""
    q, share = len(K), float(verdict.share or 0.0)
    variances, turn = np.linalg.eigh(K @ rows.spread @ K)
    significant = np.flatnonzero(variances > variances[-1] * 1e-9)[::-1]
    variances, turn = variances[significant], K @ turn[:, significant]
    shortened = Spectrum(spectrum.mean, spectrum.axes[:, :q] @ turn, variances)
    prior = turn.T @ rows.prior @ turn
    Y = times(rows.Y, turn.astype(rows.Y.dtype))
    size = min(rows.n_components, len(variances))
    made = cross_scatter(Y, rows.nuisance.values, np.diag(variances), prior, size, rows.n_mutual)
    strength = {share: shrinkage_of(share, made, size) for share in verdict.gains}
    choice = ScatterChoice(
        source=source,
        shrinkage=strength[share],
        evidence={strength[share]: gain for share, gain in verdict.gains.items()},
        reason=verdict.reason,
        trains=False,
    )
    return shortened, (made.scatter, choice), made.ranking(share)


def shared_after(
    rows: KnownRows, spectrum: Spectrum, applied: Preprocessing, rng: np.random.Generator
) -> float:
    """Return how often a row's nearest row shares its value in the embedding."""
    axes, matrix = spectrum.axes[:, : rows.Y.shape[1]], applied.matrix[:, : rows.n_components]
    Y = times(rows.Y, (axes.T @ matrix).astype(rows.Y.dtype))
    return shared(Y, rows.nuisance.values, rows.asks, rng)[0]
