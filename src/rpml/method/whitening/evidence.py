"""How to whiten, chosen without labels.

Ours, not the paper's. The scatter within cross-fitted neighborhoods can *rescale* the leading
principal axes, or *turn* the embedding to other axes as well. Turning gains most where a nuisance
dominates the strongest axes and loses most elsewhere: wording that neighbors share looks like a
class. So the axes are turned only where the evidence is strong, rescaled where there is some, and
left to PCA otherwise.

The evidence is the *rank gain*, on rows that did not make the scatter: take the 3 nearest rows as
one half of the axes sees them; how much nearer to the top does the other half, whitened and reduced
to the requested size, rank them than PCA does? Agreement on the single nearest neighbor would
reward near-duplicates and shared wording instead.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from rpml.method.graph.heaps import nearest_others
from rpml.method.whitening import constants as const
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    Estimate,
    columns,
    cross_fitted_correlation,
    mean_log_ranks,
    random_halves,
    rescaling_map,
    scatter_of,
    taught_correlation,
)
from rpml.runtime.errors import counted
from rpml.runtime.intervals import Interval, mean_interval
from rpml.runtime.rows import Array, Indices, Mask
from rpml.runtime.threads import single_blas_thread, times


@dataclass(frozen=True)
class PairEvidence:
    """What was made of the pairs that came with the rows."""

    rate: float
    """Estimated share of correct pairs."""
    used: bool
    reason: str
    """Why, in words."""


@dataclass(frozen=True)
class NuisanceEvidence:
    """What was made of a nuisance, or of queries."""

    source: str
    """"nuisance", "queries" or both."""
    used: bool
    reason: str
    """Why, in words."""
    n_removed: int
    """Directions along which rows lose more than half of their length."""
    shared: float
    """How often a row's nearest row has its value, before"""
    chance: float
    """by chance,"""
    shared_after: float
    """and in the embedding."""

    @property
    def summary(self) -> str:
        """What was found and done, in one sentence."""
        what = "share the nuisance"
        if self.source == "queries":
            what = "of queries are queries"
        shares = f"{self.shared:.0%} of nearest neighbors {what} ({self.chance:.0%} by chance)"
        if not self.used:
            return f"{shares}; not used, because {self.reason}"
        removed = counted(self.n_removed, "direction")
        return f"{shares}; after: {self.shared_after:.0%}; {removed} removed, because {self.reason}"


@dataclass(frozen=True)
class ScatterChoice:
    """Which scatter whitens, how strongly it is smoothed, and the label-free evidence for it."""

    source: str
    """"neighbors" or "none" (plain PCA), or what was given: "groups", "pairs", "labels", or
    several of them joined by "and"."""
    shrinkage: float
    """Of axes that the scatter turns: added variance, as a multiple of trace / n_components;
    infinite: the axes are the principal ones."""
    evidence: dict[float, float]
    """Per shrinkage (or ridge) tried: the rank gain over PCA; with groups, how often halves of the
    axes agree on the nearest neighbor; with labels, the rank gain of held-out labeled rows."""
    reason: str = ""
    """Why, in words."""
    trains: bool = True
    """Whether the evidence supports training on triplets."""
    pairs: PairEvidence | None = None
    """What the pairs were worth, if there were any."""
    ridge: float = np.inf
    """Of principal axes that the scatter rescales: added variance, as a part of its trace;
    infinite: they are not rescaled."""
    nuisance: NuisanceEvidence | None = None
    """What a nuisance or queries were worth, if there were any."""
    groups_ignored: str = ""
    """Why groups that came with the rows were ignored, in words; empty if there were none."""
    labels_ignored: str = ""
    """Why labels that came with the rows were ignored, in words; empty if they were not."""
    gain: Interval | None = None
    """The rank gain over PCA of what was chosen by the rows alone, 0 if that is PCA."""

    @property
    def whitens(self) -> bool:
        """False: plain PCA."""
        return bool(np.isfinite(min(self.shrinkage, self.ridge)))

    @property
    def strength(self) -> str:
        """How strongly it whitens, in words."""
        if np.isfinite(self.shrinkage):
            return f"shrinkage {self.shrinkage:.3g}"
        if np.isfinite(self.ridge):
            return f"principal axes rescaled (ridge 1/{1 / self.ridge:.0f})"
        return "none (PCA)"

    def refined_by(self, source: str) -> ScatterChoice:
        """The same with one more source of what was given."""
        alone = self.source in ("neighbors", "none")
        source = source if alone else f"{self.source} and {source}"
        trains = self.trains and self.source != "nuisance"  # which was judged without this source
        return replace(self, source=source, ridge=np.inf, gain=None, trains=trains)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "evidence": [list(item) for item in self.evidence.items()]}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> ScatterChoice:
        """Return what `to_json` wrote; older files have fewer fields, newer ones more."""
        read = {field.name: stored[field.name] for field in fields(cls) if field.name in stored}
        read["evidence"] = {float(k): float(v) for k, v in stored["evidence"]}
        parts = {"pairs": PairEvidence, "gain": Interval, "nuisance": NuisanceEvidence}
        read |= {name: part(**read[name]) for name, part in parts.items() if read.get(name)}
        return cls(**read)


def gain_text(gain: Interval) -> str:
    """Return a rank gain and its interval in words."""
    return f"{gain.value:z.3f}, 95% interval {gain.low:z.3f} to {gain.high:z.3f}"


NO_GAIN = Interval(0.0, 0.0, 0.0)  # PCA over PCA


@single_blas_thread()
def neighbor_scatter(
    data: Coordinates, rng: np.random.Generator, prior_rows: int = const.PRIOR_ROWS
) -> Estimate:
    """The scatter within cross-fitted neighborhoods, and how it is used.

    Where PCA is chosen, labels, pairs or a nuisance may still use the scatter, which `prior_rows`
    rows then make; if 0, it is that of the rows that judged it.
    """
    n, q = data.W.shape
    if (reason := _too_little(data)) != "":
        return np.eye(q), ScatterChoice("none", np.inf, {}, reason, trains=False, gain=NO_GAIN)
    gains = RankGains(data, rng)
    choice, correlation = choose(gains, data.n_components), gains.correlation
    if choice.whitens or prior_rows:
        rows = rng.permutation(n)[: const.FINAL_ROWS if choice.whitens else prior_rows]
        sample, repeats = data.subset(rows), const.FINAL_REPEATS
        correlation = taught_correlation(sample, correlation, repeats, rng)
    return scatter_of(correlation, data.deviations), choice


def _too_little(data: Coordinates) -> str:
    """Why nothing can be estimated; empty if it can."""
    n, q = data.W.shape
    if q < const.MIN_AXES:
        return f"only {counted(q, 'axis', 'axes')}, too few to be halved"
    return f"only {counted(n, 'row')}, too few to tell" if n < const.MIN_ROWS else ""


def choose(gains: RankGains, n_components: int) -> ScatterChoice:
    """PCA unless a mild rescaling has support; then turned axes, or the better rescaling.

    The strongest whitening whose gain is near the best turns the axes. A few strong directions can
    hide what near rows share. Where many directions share the variance there is nothing of the
    kind to discount, and near rows mostly share detail: so more of them need more support.
    """
    support = max(const.SUPPORT * gains.directions, const.LEAST_SUPPORT)
    turn, mild = turn_needed(n_components), float(gains.mild.mean())
    reason = f"rescaled axes have a rank gain of {gain_text(mean_interval(gains.mild))}"
    if mild < support:
        reason += f"; {support:.3f} is required"
        evidence = {const.MILD: mild}
        return ScatterChoice("neighbors", np.inf, evidence, reason, trains=False, gain=NO_GAIN)
    turned = gains.turned.mean(axis=1)
    if turned.max() > turn:
        best = gain_text(mean_interval(gains.turned[turned.argmax()]))
        measured = "discounting the directions in which near rows differ has a rank gain of"
        reason = f"{measured} {best}; {turn:.2f} is required"
        i = int((turned >= const.NEAR_BEST * turned.max()).argmax())
        evidence = dict(zip(const.SHRINKAGES, turned.tolist(), strict=True))
        gain = mean_interval(gains.turned[i])
        return ScatterChoice("neighbors", const.SHRINKAGES[i], evidence, reason, gain=gain)
    evidence = {const.RIDGE: float(gains.rescaled.mean()), const.MILD: mild}
    ridge = max(evidence, key=evidence.__getitem__)
    gain = mean_interval(gains.rescaled if ridge == const.RIDGE else gains.mild)
    reason += f"; {support:.3f} is required"
    return ScatterChoice(
        "neighbors", np.inf, evidence, reason, trains=False, ridge=ridge, gain=gain
    )


def turn_needed(n_components: int) -> float:
    """The rank gain from which on axes are turned: with fewer dimensions all gains are smaller."""
    return float(const.TURN * (np.clip(n_components, *const.TURN_SIZES) / 64) ** 0.5)


def n_directions(deviations: Array) -> float:
    """Over how many directions the variance is spread: the participation ratio."""
    variances = np.square(deviations)
    return float(variances.sum() ** 2 / np.square(variances).sum())


class RankGains:
    """What one half of (a sample of) the rows says about a scatter that the other half made.

    Per query, the decrease of log(1 + rank) of its nearest rows by the other half of the axes,
    compared with PCA. Each gain is computed when it is first asked for.
    """

    def __init__(self, data: Coordinates, rng: np.random.Generator) -> None:
        self.directions = n_directions(data.deviations)
        rows = rng.permutation(len(data.W))[: const.JUDGED_ROWS]
        made, self._tested = (data.subset(part) for part in np.array_split(rows, 2))
        self.correlation = cross_fitted_correlation(made, const.JUDGED_REPEATS, rng)
        self._scatter = scatter_of(self.correlation, data.deviations)
        self._trace = float(np.trace(self._scatter))
        self._queries = np.arange(min(const.JUDGED_QUERIES, len(self._tested.W)))
        halves = [random_halves(data.W.shape[1], rng) for _ in range(const.JUDGED_REPEATS)]
        self._seen = [seen for half in halves for seen in (half, ~half)]
        fewest = min(int(seen.sum()) for seen in self._seen)
        self._size = max(1, min(data.n_components, fewest // 2))
        self._plain = [self._principal(seen)[:, : self._size] for seen in self._seen]

    @cached_property
    def mild(self) -> Array:
        """(n_queries,), axes rescaled by the ridge `MILD`; neighbors by the axes as they are."""
        return self._rescaled(const.MILD)

    @cached_property
    def rescaled(self) -> Array:
        """(n_queries,), the same by the ridge `RIDGE`."""
        return self._rescaled(const.RIDGE)

    @cached_property
    def turned(self) -> Array:
        """(n_shrinkages, n_queries), axes turned.

        The neighbors are those by the other half, whitened: where a nuisance dominates, the
        nearest by the axes as they are share the nuisance.
        """
        data, added = self._tested, self._trace / self._tested.n_components
        neighbors = [
            self._nearest(data.whitened(self._scatter, ~seen, const.NEIGHBOR_SHRINKAGE * added))
            for seen in self._seen
        ]
        before = self._log_ranks(self._plain, neighbors)
        turned = (
            [self._turned(seen, shrinkage) for seen in self._seen] for shrinkage in const.SHRINKAGES
        )
        return np.stack([before - self._log_ranks(rows, neighbors) for rows in turned])

    def _turned(self, seen: Mask, shrinkage: float) -> Array:
        """The rows by one half of the axes, whitened, with the shrinkage that all axes have."""
        share = self._trace / float(np.trace(self._scatter[np.ix_(seen, seen)]))
        return self._tested.embed(self._scatter, seen, shrinkage * share, self._size)

    def _rescaled(self, ridge: float) -> Array:
        rows = []
        for seen, plain in zip(self._seen, self._plain, strict=True):
            scatter = self._scatter[np.ix_(seen, seen)][: self._size, : self._size]
            inner = rescaling_map(scatter, ridge * self._trace)
            rows.append(times(plain, inner.astype(plain.dtype)))
        return self._plain_ranks - self._log_ranks(rows, self._neighbors)

    @cached_property
    def _neighbors(self) -> list[Indices]:
        return [self._nearest(self._principal(~seen)) for seen in self._seen]

    @cached_property
    def _plain_ranks(self) -> Array:
        return self._log_ranks(self._plain, self._neighbors)

    def _principal(self, half: Mask) -> Array:
        """The rows as one half of the axes sees them."""
        data = self._tested
        return np.asarray(columns(data.W, half) * data.deviations[half].astype(data.W.dtype))

    def _nearest(self, rows: Array) -> Indices:
        return nearest_others(rows, self._queries, const.JUDGED_NEIGHBORS)

    def _log_ranks(self, rows: list[Array], neighbors: list[Indices]) -> Array:
        """(n_queries,), the mean over the halves of the axes."""
        views = zip(rows, neighbors, strict=True)
        return np.asarray(np.mean([mean_log_ranks(Z, self._queries, N) for Z, N in views], axis=0))
