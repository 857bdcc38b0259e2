"""Which whitening a fit uses: none, a power of the principal axes, or a scatter with shrinkage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rpml.method.whitening.classes import count_pairs, label_scatter, label_spread, with_labeled
from rpml.method.whitening.constants import (
    MIN_GROUPS,
    SCATTER_ROWS,
)
from rpml.method.whitening.evidence import STEPS, neighbor_scatter
from rpml.method.whitening.groups import (
    Groups,
    drop_singles,
    group_scatter,
    groups_help,
    representatives,
    sample_rows,
)
from rpml.method.whitening.linear_map import (
    Preprocessing,
    Spectrum,
    identity,
    principal_axes,
    whitening,
)
from rpml.method.whitening.neighborhoods import (
    ScatterChoice,
    coordinates,
    whiten_by,
)
from rpml.method.whitening.pairs import pair_scatter, pairs_within, with_paired
from rpml.runtime.context import Context, Steps, silent
from rpml.runtime.rows import Array, Labels, count_blocks
from rpml.runtime.wording import counted

Pairs = NDArray[np.intp]
DEFAULT_COMPONENTS = 128
SOURCES = (
    "neighbors",
    "none",
    "groups",
    "pairs",
    "labels",
    "groups and pairs",
    "groups and labels",
    "pairs and labels",
    "groups and pairs and labels",
)


@dataclass(frozen=True)
class WhiteningSettings:
    """The settings of `RPML` that decide the whitening."""

    n_components: int | None
    whiten: float | str | None
    n_axes: int | None
    normalize_input: bool


@dataclass(frozen=True)
class Whitening:
    """What is applied to the rows before the projection, and how it was chosen."""

    preprocessing: Preprocessing
    choice: ScatterChoice | None
    """The evidence of whiten="auto"."""

    @property
    def uses_groups(self) -> bool:
        """False if groups were judged to say less than the neighbors."""
        return self.choice is None or "groups" in self.choice.source

    @property
    def supports_training(self) -> bool:
        """Whether the rows show structure beyond their principal axes that triplets can teach.

        A whitening that the user set needs no evidence.
        """
        return self.choice is None or self.choice.trains

    @property
    def ranks_axes(self) -> bool:
        """The axes come in the order of how well they tell rows apart."""
        return self.choice is not None

    @property
    def needs_labels_or_pairs(self) -> bool:
        """It cannot be learned anew from rows alone."""
        return self.choice is not None and not {"labels", "pairs"}.isdisjoint(
            self.choice.source.split(" and ")
        )

    def dependencies(self) -> tuple[object, ...]:
        """What it is, as the key of the stages that depend on it."""
        return self.preprocessing.mean, self.preprocessing.matrix, self.choice


def choose_whitening(
    X: Array,
    groups: Groups,
    pairs: Pairs | None,
    classes: Labels | None,
    settings: WhiteningSettings,
    context: Context,
) -> Whitening:
    """Center and whiten on the leading axes; with whiten=None leave the rows as they are.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    groups : ndarray of shape (n_samples,)
        Rows with the same number >= 0 show the same instance.
    pairs : ndarray of shape (n_pairs, 2) or None
        Rows that probably belong together.
    classes : ndarray of shape (n_samples,) or None
        Known classes, -1 where unknown.
    settings : WhiteningSettings
    context : Context
        Its random stream of the whitening, and who listens to the progress.
    """
    if settings.whiten is None:
        return Whitening(identity(X.shape[1], settings.normalize_input), None)
    rng = context.rng("whiten")
    total = 2 * count_blocks(X) + STEPS + 1  # mean, moments, scatter, the whitening itself
    step = Steps("whiten", total, context.report)
    spectrum = principal_axes(X, settings.normalize_input, center=True, step=step)
    size = size_within(spectrum, X.shape, settings)
    if not isinstance(settings.whiten, str):
        return Whitening(whiten_by_exponent(spectrum, size, settings), None)
    rows = scatter_rows(groups, classes, rng)
    sampled_pairs = None
    if pairs is not None:
        rows = with_paired(rows, pairs, len(X), rng)
        sampled_pairs = pairs_within(pairs, rows, len(X))
    sampled_classes = None if classes is None else classes[rows]
    sample = Sample(X, rows, groups[rows], sampled_classes, sampled_pairs)
    return whiten_by_scatter(sample, spectrum, settings.normalize_input, size, rng, step)


def size_within(spectrum: Spectrum, shape: tuple[int, int], settings: WhiteningSettings) -> int:
    """The size of the embedding; an error if the rows vary in fewer directions."""
    available = len(spectrum.variances)
    if available == 0:
        what = "differ by no more than rounding errors: center them in float64 first."
        if settings.normalize_input:
            what = "are all the same after scaling to unit norm: set normalize_input=False."
        raise ValueError(f"The rows of X (n_features={shape[1]}) {what}")
    size = settings.n_components or min(DEFAULT_COMPONENTS, available)
    if available < size:
        raise ValueError(
            f"n_components={size} is more than the {counted(available, 'direction')} in which "
            f"the {counted(shape[0], 'row')} of X vary: ask for {available} or fewer."
        )
    return size


def whiten_by_exponent(spectrum: Spectrum, size: int, settings: WhiteningSettings) -> Preprocessing:
    """The preprocessing of a numeric `whiten`."""
    n_axes = min(settings.n_axes or max(256, 2 * size), len(spectrum.variances))
    unit = settings.normalize_input
    return whitening(spectrum, float(settings.whiten or 0.0), max(n_axes, size), unit, unit)


@dataclass(frozen=True)
class Sample:
    """Rows of X that a whitening is chosen on, and what is known of them."""

    X: Array
    rows: NDArray[np.intp]
    groups: Groups
    """Of each of the rows."""
    classes: Labels | None
    """Of each of the rows, if there are any."""
    pairs: Pairs | None = None
    """By positions among the rows."""


def scatter_rows(groups: Groups, classes: Labels | None, rng: np.random.Generator) -> Labels:
    """Which rows to choose a whitening on; the known ones first."""
    rows = sample_rows(groups, SCATTER_ROWS, rng)
    return rows if classes is None else with_labeled(rows, classes, rng)


def whiten_by_scatter(
    sample: Sample,
    spectrum: Spectrum,
    unit: bool,
    n_components: int,
    rng: np.random.Generator,
    step: Callable[[], None] = silent,
) -> Whitening:
    """Whiten by the scatter within groups where they help, within neighborhoods otherwise.

    Pairs that help refine either, and so does what is known of the rows. Many labels tell
    something of more axes, and which of them to keep.
    """
    subset = (sample.X, sample.rows, spectrum, unit, n_components)
    sampled = drop_singles(sample.groups)
    data = coordinates(*subset)
    seed = int(rng.integers(2**31))  # the same splits for both, so that they compare
    estimate, ignored = None, ""
    if sampled.max() + 1 >= MIN_GROUPS:
        by_groups = group_scatter(data, sampled, np.random.default_rng(seed))
        instances = data.subset(representatives(sampled)[0])
        ignored = "they say less than the neighbors"
        if groups_help(by_groups[1], instances, np.random.default_rng(seed)):
            estimate, ignored = by_groups, ""
    elif sampled.max() >= 0:
        ignored = f"{counted(sampled.max() + 1, 'group is', 'groups are')} too few to tell"
    if estimate is None:  # as without groups
        is_prior = sample.pairs is not None or sample.classes is not None
        estimate = neighbor_scatter(data, np.random.default_rng(seed), step, is_prior)
    if sample.pairs is not None:
        estimate = pair_scatter(data, sample.pairs, estimate, np.random.default_rng(seed))
    retained, spread = data.W.shape[1], None
    if sample.classes is not None:
        leading = coordinates(*subset, least=2 * count_pairs(sample.classes))
        estimate = label_scatter(leading, sample.classes, estimate, np.random.default_rng(seed))
        if "labels" in estimate[1].source:
            spread = label_spread(leading, sample.classes, estimate[0])
    scatter, choice = estimate[0], replace(estimate[1], groups_ignored=ignored)
    whole = whiten_by(spectrum, scatter, choice, n_components, unit, spread)
    return Whitening(replace(whole, matrix=whole.matrix[:, :retained]), choice)
