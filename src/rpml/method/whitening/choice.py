"""Which whitening a fit uses: none, a power of the principal axes, or a scatter with shrinkage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rpml.method.whitening.classes import count_pairs, label_scatter, label_spread, with_labeled
from rpml.method.whitening.constants import (
    LEADING_AXES,
    MAX_CROSS_ROWS,
    MIN_GROUPS,
    SCATTER_ROWS,
)
from rpml.method.whitening.discount import (
    Discount,
    Knowledge,
    Place,
    discount,
    known_rows,
    shared_after,
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
    Coordinates,
    NuisanceEvidence,
    ScatterChoice,
    coordinates,
    whiten_by,
)
from rpml.method.whitening.nuisance import Nuisance
from rpml.method.whitening.pairs import pair_scatter, pairs_within, with_paired
from rpml.runtime.context import Context, Steps, silent
from rpml.runtime.rows import Array, Labels, count_blocks
from rpml.runtime.wording import counted

Pairs = NDArray[np.intp]
DEFAULT_COMPONENTS = 128


@dataclass(frozen=True)
class Known:
    """What a user knows of the rows."""

    groups: Groups
    """(n,) rows with the same number >= 0 show the same instance."""
    pairs: Pairs | None = None
    """(m, 2) rows that probably belong together."""
    classes: Labels | None = None
    """(n,) known classes, -1 where unknown."""
    nuisance: Nuisance | None = None
    """What does not matter."""
    queries: Array | None = None
    """(m, d) unlabeled queries, for which X are the documents."""


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
    def uses_labels(self) -> bool:
        """False if held-out labeled rows were nearer to their class without labels."""
        return self.choice is None or not self.choice.labels_ignored

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
    X: Array, known: Known, settings: WhiteningSettings, context: Context
) -> Whitening:
    """Center and whiten on the leading axes; with whiten=None leave the rows as they are.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
    known : Known
        What the user knows of the rows.
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
    sample = sample_known(X, known, rng)
    return whiten_by_scatter(sample, spectrum, settings.normalize_input, size, rng, step)


def sample_known(X: Array, known: Known, rng: np.random.Generator) -> Sample:
    """Sample rows to choose a whitening on, with what is known of them."""
    rows = scatter_rows(known.groups, known.classes, rng)
    pairs, nuisance, queries = known.pairs, known.nuisance, known.queries
    if pairs is not None:
        rows = with_paired(rows, pairs, len(X), rng)
        pairs = pairs_within(pairs, rows, len(X))
    if queries is not None and len(queries) > MAX_CROSS_ROWS // 2:
        queries = queries[np.sort(rng.permutation(len(queries))[: MAX_CROSS_ROWS // 2])]
    classes = None if known.classes is None else known.classes[rows]
    nuisance = None if nuisance is None else nuisance.subset(rows)
    return Sample(X, rows, Known(known.groups[rows], pairs, classes, nuisance, queries))


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
    known: Known
    """Of the rows, pairs by positions among them."""


def scatter_rows(groups: Groups, classes: Labels | None, rng: np.random.Generator) -> Labels:
    """Which rows to choose a whitening on; the known ones first."""
    rows = sample_rows(groups, SCATTER_ROWS, rng)
    # a sample of all rows draws nothing, so that labels that are ignored change nothing
    if classes is None or len(rows) == len(groups):
        return rows
    return with_labeled(rows, classes, rng)


def whiten_by_scatter(
    sample: Sample,
    spectrum: Spectrum,
    unit: bool,
    n_components: int,
    rng: np.random.Generator,
    step: Callable[[], None] = silent,
) -> Whitening:
    """Whiten by what is known of the rows where it helps, and within neighborhoods otherwise.

    A nuisance that is discounted changes the rows. Then groups come before the nuisance, and the
    nuisance before neighbors. Pairs that help refine any of them, and so does what is known of the
    rows. Many labels tell something of more axes, and which of them to keep.
    """
    known = sample.known
    seed = int(rng.integers(2**31))  # the same splits for all, so that they compare
    knowledge = Knowledge(known.nuisance, known.queries)
    subset = (sample.X, sample.rows, spectrum, unit, n_components)
    data, least, spread, discounted = coordinates(*subset), 0, None, None
    estimate, ignored = group_estimate(data, known.groups, seed)
    if estimate is None or knowledge.source:  # as without groups
        is_prior = known.pairs is not None or known.classes is not None or bool(knowledge.source)
        usual = neighbor_scatter(data, np.random.default_rng(seed), step, is_prior)
        estimate = estimate or usual
    if knowledge.source:
        judged = Judged(knowledge, sample, Place(spectrum, unit), usual, n_components)
        discounted, evidence = judged.discount(seed)
    if discounted is not None:
        spectrum, spread = discounted.spectrum, discounted.ranking
        n_components, least = min(n_components, len(spectrum.variances)), len(spectrum.variances)
        subset = (sample.X, sample.rows, spectrum, unit, n_components)
        data = coordinates(*subset, least)
        estimate, ignored = group_estimate(data, known.groups, seed)
        estimate = estimate or (discounted.scatter, discounted.choice)
    if known.pairs is not None:
        estimate = pair_scatter(data, known.pairs, estimate, np.random.default_rng(seed))
    retained = data.W.shape[1]
    if discounted is None or estimate[1].source != discounted.choice.source:
        spread = None
    if known.classes is not None:
        leading = coordinates(*subset, least=max(least, 2 * count_pairs(known.classes)))
        estimate = label_scatter(leading, known.classes, estimate, np.random.default_rng(seed))
        if "labels" in estimate[1].source:
            spread = label_spread(leading, known.classes, estimate[0])
    choice = replace(estimate[1], groups_ignored=ignored)
    whole = whiten_by(spectrum, estimate[0], choice, n_components, unit, spread)
    applied = replace(whole, matrix=whole.matrix[:, :retained])
    if knowledge.source:
        evidence = replace(evidence, shared_after=judged.shared_after(applied, seed))
        choice = replace(choice, nuisance=evidence)
    return Whitening(applied, choice)


@dataclass(frozen=True)
class Judged:
    """A nuisance or queries, and the fit without them that they are judged by."""

    known: Knowledge
    sample: Sample
    where: Place
    usual: tuple[Array, ScatterChoice]
    n_components: int

    def discount(self, seed: int) -> tuple[Discount | None, NuisanceEvidence]:
        rng = np.random.default_rng(seed)
        return discount(self.known, self._data(), self.usual, self.where, rng)

    def shared_after(self, applied: Preprocessing, seed: int) -> float:
        """Return how often the nearest row in the embedding shares the nuisance."""
        rows = known_rows(self.known, self._data(), self.usual, self.where)
        return shared_after(rows, self.where, applied, np.random.default_rng(seed))

    def _data(self) -> Coordinates:
        """Return the sampled rows along more axes than neighbors alone can tell apart."""
        least = min(LEADING_AXES, len(self.sample.rows))
        place = (self.where.spectrum, self.where.unit, self.n_components)
        return coordinates(self.sample.X, self.sample.rows, *place, least)


def group_estimate(
    data: Coordinates, groups: Groups, seed: int
) -> tuple[tuple[Array, ScatterChoice] | None, str]:
    """Return the scatter within groups, None if they help less than neighbors, and why."""
    sampled = drop_singles(groups)
    if sampled.max() + 1 >= MIN_GROUPS:
        by_groups = group_scatter(data, sampled, np.random.default_rng(seed))
        instances = data.subset(representatives(sampled)[0])
        if groups_help(by_groups[1], instances, np.random.default_rng(seed)):
            return by_groups, ""
        return None, "they say less than the neighbors"
    if sampled.max() >= 0:
        return None, f"{counted(sampled.max() + 1, 'group is', 'groups are')} too few to tell"
    return None, ""
