"""Which whitening a fit uses: none, a power of the principal axes, or a scatter with shrinkage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rpml.method.whitening import constants as const
from rpml.method.whitening.classes import count_pairs, label_scatter, label_spread, with_labeled
from rpml.method.whitening.evidence import ScatterChoice, neighbor_scatter
from rpml.method.whitening.groups import (
    Groups,
    drop_singles,
    group_scatter,
    groups_help,
    pair_scatter,
    pairs_within,
    representatives,
    sample_rows,
    with_paired,
)
from rpml.method.whitening.linear_map import (
    Preprocessing,
    Spectrum,
    identity,
    principal_axes,
    whitening,
)
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    Estimate,
    coordinates,
    n_leading_axes,
    projected,
    whiten_by,
)
from rpml.method.whitening.nuisance import comparable_rows
from rpml.method.whitening.nuisance_evidence import Discounted, discount, known_rows, shared_after
from rpml.runtime.context import Context
from rpml.runtime.errors import counted
from rpml.runtime.rows import Array, Indices, count_blocks

if TYPE_CHECKING:
    from rpml.method.settings import FitInputs, FitSettings


@dataclass(frozen=True)
class Whitening:
    """What is applied to the rows before the projection, and how it was chosen."""

    preprocessing: Preprocessing
    choice: ScatterChoice | None
    """The evidence of whiten="auto"."""
    discounted: Discounted | None = None
    """By which training across the values of a nuisance is judged, where nothing else is known."""

    @property
    def uses_groups(self) -> bool:
        """False if groups were judged to say less than the neighbors."""
        return self.choice is None or "groups" in self.choice.source

    @property
    def uses_labels(self) -> bool:
        """False if held-out labeled rows were not clearly nearer to their class with labels."""
        return self.choice is None or not self.choice.labels_ignored

    @property
    def needs_knowledge(self) -> bool:
        """It cannot be learned anew from rows alone."""
        return self.choice is not None and self.choice.source not in ("neighbors", "none")


def choose_whitening(
    X: Array,
    inputs: FitInputs,
    settings: FitSettings,
    context: Context,
    spectrum: Spectrum | None = None,
) -> Whitening:
    """Center and whiten on the leading axes; with whiten=None leave the rows as they are.

    Of rows on a cluster only the sample is here, and the spectrum of all of them is given.
    """
    unit = settings.normalize_input
    if settings.whiten is None:
        return Whitening(identity(X.shape[1], unit), None)
    if spectrum is None:
        step = context.steps("whiten", 2 * count_blocks(X) + 1)  # mean, moments, the rest
        spectrum = principal_axes(X, unit, step=step)
    size = size_within(spectrum, X.shape, settings)
    if isinstance(settings.whiten, str):
        found = whiten_by_scatter(X, inputs, spectrum, unit, size, context.rng("whiten"))
    else:
        n_axes = min(max(256, 2 * size), len(spectrum.variances))
        exponent = float(settings.whiten)
        found = Whitening(whitening(spectrum, exponent, n_axes, unit, unit), None)
    if settings.whiten != 0 and (found.choice is None or found.choice.whitens):
        return found
    applied = found.preprocessing
    return replace(found, preprocessing=replace(applied, mean=settings.center * applied.mean))


def size_within(spectrum: Spectrum, shape: tuple[int, int], settings: FitSettings) -> int:
    """The size of the embedding; an error if the rows vary in fewer directions."""
    available = len(spectrum.variances)
    if available == 0:
        what = "differ by no more than rounding errors: center them in float64 first."
        if settings.normalize_input:
            what = "are all the same after scaling to unit norm: set normalize_input=False."
        raise ValueError(f"The rows of X (n_features={shape[1]}) {what}")
    size = settings.n_components or min(const.DEFAULT_COMPONENTS, available)
    if available < size:
        raise ValueError(
            f"n_components={size} is more than the {counted(available, 'direction')} in which "
            f"the {counted(shape[0], 'row')} of X vary: ask for {available} or fewer."
        )
    return size


def scatter_rows(inputs: FitInputs, rng: np.random.Generator) -> Indices:
    """Which rows to choose a whitening on, those in classes and pairs first."""
    n = len(inputs.groups)
    rows = sample_rows(inputs.groups, const.SCATTER_ROWS, rng)
    # a sample of all rows draws nothing, so that labels that are ignored change nothing
    if inputs.classes is not None and len(rows) < n:
        rows = with_labeled(rows, inputs.classes, rng)
    if inputs.nuisance is not None and len(rows) < n:  # enough rows of each value that is compared
        rows = np.union1d(rows, comparable_rows(inputs.nuisance.values, rng))
    return rows if inputs.pairs is None else with_paired(rows, inputs.pairs, n, rng)


def whiten_by_scatter(
    X: Array, inputs: FitInputs, spectrum: Spectrum, unit: bool, size: int, rng: np.random.Generator
) -> Whitening:
    """Whiten by what the user knows about the rows where it helps, otherwise by neighborhoods.

    A nuisance that is discounted changes the rows. Then groups come before the nuisance, and the
    nuisance before neighbors. Pairs that help refine any of them, and so do labels. Many labels say
    something about more axes, and rank them.
    """
    rows, unwanted, classes = scatter_rows(inputs, rng), inputs.unwanted, inputs.classes
    queries = inputs.queries
    if queries is not None and len(queries) > const.MAX_CROSS_ROWS // 2:
        queries = queries[np.sort(rng.permutation(len(queries))[: const.MAX_CROSS_ROWS // 2])]
    seed = int(rng.integers(2**31))  # the same splits for all, so that they compare

    def along(spectrum: Spectrum, least: int = 0) -> Coordinates:
        return coordinates(X, rows, spectrum, unit, size, least)

    # a nuisance is judged along more axes than neighbors alone can tell apart
    more = along(spectrum, min(const.LEADING_AXES, len(rows)) if unwanted else 0)
    data = more.leading(n_leading_axes(len(rows), more.W.shape[1], size))
    ranking, made, width = None, None, data.W.shape[1]
    estimate, ignored = group_estimate(data, inputs.groups[rows], seed)
    if estimate is None or unwanted:  # as without groups
        is_prior = queries is not None or inputs.pairs is not None or classes is not None
        n_prior = const.PRIOR_ROWS if is_prior else const.CROSS_PRIOR_ROWS if unwanted else 0
        usual = neighbor_scatter(data, np.random.default_rng(seed), n_prior)
        estimate = estimate or usual
    if unwanted:
        nuisance = None if inputs.nuisance is None else inputs.nuisance.subset(rows)
        if queries is not None:
            every = np.arange(len(queries))
            queries = projected(queries, every, spectrum, unit, more.W.shape[1])
        judged, whole = known_rows(more, usual, nuisance, queries), spectrum
        made, evidence = discount(judged, unwanted, spectrum, np.random.default_rng(seed))
    if made is not None:
        spectrum, discounted, ranking = made.spectrum, made.estimate, made.ranking
        width = len(spectrum.variances)
        size = min(size, width)
        if inputs.groups.max() >= 0 or inputs.pairs is not None:
            data = along(spectrum, width)
        estimate, ignored = group_estimate(data, inputs.groups[rows], seed)
        estimate = estimate or discounted
    if inputs.pairs is not None:
        pairs = pairs_within(inputs.pairs, rows, len(X))
        estimate = pair_scatter(data, pairs, estimate, np.random.default_rng(seed))
    if estimate[1].source != unwanted:
        ranking = None
    if classes is not None:
        known = classes[rows]
        leading = along(spectrum, max(width, 2 * count_pairs(known)))
        estimate = label_scatter(leading, known, estimate, np.random.default_rng(seed))
        if "labels" in estimate[1].source:
            ranking = label_spread(leading, known, estimate[0])
    choice = replace(estimate[1], groups_ignored=ignored)
    if inputs.supervision is not None and inputs.supervision.n_classes == 0:
        choice = replace(choice, labels_ignored="")  # nobody gave any
    applied = whiten_by(spectrum, estimate[0], choice, size, unit, ranking)
    applied = replace(applied, matrix=applied.matrix[:, :width])
    if unwanted:
        after = shared_after(judged, whole, applied, np.random.default_rng(seed))
        choice = replace(choice, nuisance=replace(evidence, shared_after=after))
    return Whitening(applied, choice, made if choice.source == "nuisance" else None)


def group_estimate(data: Coordinates, groups: Groups, seed: int) -> tuple[Estimate | None, str]:
    """Return the scatter within groups, None if they help less than neighbors, and why."""
    sampled = drop_singles(groups)
    if sampled.max() + 1 >= const.MIN_GROUPS:
        by_groups = group_scatter(data, sampled, np.random.default_rng(seed))
        instances = data.subset(representatives(sampled)[0])
        if groups_help(by_groups[1], instances, np.random.default_rng(seed)):
            return by_groups, ""
        return None, "they say less than the neighbors"
    if sampled.max() >= 0:
        return None, f"{counted(sampled.max() + 1, 'group is', 'groups are')} too few to tell"
    return None, ""
