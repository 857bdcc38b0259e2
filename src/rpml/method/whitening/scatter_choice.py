"""How a fit whitens, and the evidence for it: `RPML.whitening_`, in the model file as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from rpml.runtime.intervals import Interval
from rpml.runtime.wording import counted


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
            return f"principal axes rescaled, ridge 1/{1 / self.ridge:.0f}"
        return "none (PCA)"

    def refined_by(self, source: str) -> ScatterChoice:
        """The same with one more source of what was given."""
        alone = self.source in ("neighbors", "none")
        source = source if alone else f"{self.source} and {source}"
        return replace(self, source=source, ridge=np.inf, gain=None)

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
    return f"{gain.value:.3f}, 95% interval {gain.low:.3f} to {gain.high:.3f}"
