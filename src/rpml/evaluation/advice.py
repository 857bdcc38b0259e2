"""From what was measured to a recommendation and its sentences."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator

from rpml.estimator.description import separated_question
from rpml.evaluation.comparison import Comparison
from rpml.evaluation.registry import KNOWN, METHODS, REFERENCE
from rpml.method.calibration import expected_gain
from rpml.runtime.errors import counted
from rpml.runtime.intervals import Interval
from rpml.runtime.rows import RandomState

PRICES = {"half-whitened": 0.05, "pca-whitened": 0.15}
"""Rank gain by which a method has to lead. RPML needs none: without evidence it is PCA."""
CLEARLY = 0.05  # lead in rank gain below which the runner-up may be as good
RAW_PRICE = 0.05  # rank gain over the best smaller embedding that justifies the raw vectors


@dataclass(frozen=True)
class Recommendation:
    """The recommended method, its gain over PCA, and the reasons."""

    choice: str
    """Name of a method of `rpml.evaluation.registry`."""
    n_components: int
    """Size of the embedding."""
    certainty: str
    """"clear", "close" if the runner-up may be as good, "unknown" if too little was measured."""
    gain: Interval | None = None
    """Gain in Recall@1 over PCA: with labels measured with a 95% interval, otherwise the
    median, lowest and highest of other sets at such a rank gain. None if unknown."""
    uses_labels: bool = False
    """Whether labels decided."""
    evidence: dict[str, Interval] = field(default_factory=dict)
    """Per method, Recall@1 with labels and the rank gain over PCA without, with 95% intervals."""
    neighbors_kept: dict[int, Interval] = field(default_factory=dict)
    """Per number of dimensions, the share of the raw vectors' 10 nearest neighbors that stay among
    the 10 nearest after PCA, with its 95% interval."""
    reasons: tuple[str, ...] = ()
    """Sentences; the first one is the advice."""
    known: tuple[str, ...] = ()
    """Which arguments of `RPML.fit` go with the choice: "nuisance", "queries"."""
    separated: tuple[tuple[int, int], ...] = ()
    """Three pairs of rows that were nearest neighbors and are not by the recommended method."""

    def estimator(self, random_state: RandomState = None) -> BaseEstimator:
        """Return the recommended method, ready to fit."""
        return METHODS[self.choice].build(self.n_components, random_state)

    @property
    def next_step(self) -> str:
        """The line of Python that follows the advice."""
        if self.choice in ("rpml", KNOWN, REFERENCE):  # without evidence for more, a fit is PCA
            given = "".join(f", {name}={name}" for name in self.known)
            return f"rpml.RPML({self.n_components}).fit(X{given})"
        raw = "keep the vectors as they are"
        asked = f"rpml.recommend(X, {self.n_components}).estimator().fit(X)"
        return raw if self.choice == "raw" else asked

    def with_sizes(self, shares: dict[int, Interval]) -> Self:
        """Add the share of neighbors that each number of dimensions keeps."""
        listed = "; ".join(
            f"{counted(size, 'dimension')} {share.value:.1%} ({100 * share.low:.1f} "
            f"to {100 * share.high:.1f})"
            for size, share in shares.items()
        )
        sentence = f"Of the 10 nearest neighbors, PCA retains (95% intervals): {listed}."
        return replace(self, neighbors_kept=shares, reasons=(*self.reasons, sentence))

    def __str__(self) -> str:
        question = [separated_question(self.separated, True)] if self.separated else []
        return " ".join([*self.reasons, *question, f"Next: {self.next_step}"])


def advised(choice: str, size: int, known: Iterable[str] = ()) -> str:
    if choice == "raw":
        return (
            "Keep the raw vectors if you can afford them: "
            f"{counted(size, 'dimension loses', 'dimensions lose')} neighbors."
        )
    dimensions = counted(size, "dimension")
    if choice == KNOWN:
        return f"Use RPML with {' and '.join(known)}, {dimensions}."
    return f"Use {METHODS[choice].title} with {dimensions}."


def recall_reason(choice: str, recall: Mapping[str, float], gain: Interval | None) -> str:
    fact = f"Recall@1 on held-out rows is {recall[choice]:.1%}"
    if choice == REFERENCE and recall[choice] < max(recall.values()):
        return f"{fact}, and no other method is clearly better."
    if gain is None or choice == REFERENCE:
        return f"{fact}, the highest of {counted(len(recall), 'method')}."
    bounds = f"{100 * gain.low:+z.1f} to {100 * gain.high:+z.1f}"
    return (
        f"{fact} against {recall[REFERENCE]:.1%} with PCA: a gain of {100 * gain.value:+z.1f} "
        f"points (95% interval {bounds})."
    )


def rank_gain_reason(choice: str, evidence: Mapping[str, Interval]) -> str:
    if choice == REFERENCE:
        same = " RPML itself is PCA here."
        own = same if "rpml" in evidence and evidence["rpml"].value <= 0 else ""
        return f"No method has a clearly higher rank gain than PCA.{own}"
    rank_gain = evidence[choice]
    gain = expected_gain(rank_gain.value)
    return (
        f"Expected gain over PCA: {100 * gain.value:+z.1f} points of Recall@1 ("
        f"{100 * gain.low:+z.1f} to {100 * gain.high:+z.1f} on the data sets measured with such a "
        f"rank gain). The rank gain, measured without labels, is {rank_gain.value:+z.2f} (95% "
        f"interval {rank_gain.low:+z.2f} to {rank_gain.high:+z.2f})."
    )


def close_reason(certainty: str, runner_up: str | None) -> tuple[str, ...]:
    if certainty == "clear" or runner_up is None:
        return ()
    return (f"It is close: {METHODS[runner_up].title} may do as well.",)


def too_little(n: int, rank: int, size: int) -> Recommendation:
    choice = REFERENCE if size <= rank else "raw"
    reason = (
        f"{counted(n, 'row')} and {counted(rank, 'direction')} of variation are too few to compare "
        f"embeddings on: the safe choice is {METHODS[choice].title}."
    )
    return Recommendation(choice, size, "unknown", reasons=(reason,))


def recommend_from(
    table: Comparison, any_size: bool = False, known: tuple[str, ...] = ()
) -> Recommendation:
    """Recommend the method with the highest Recall@1 in a comparison, of those that see no labels.

    PCA is the simplest: others must be clearly better than it, by the paired difference. The
    comparison's first number of dimensions counts. `any_size` allows the raw vectors.
    """
    size = table.order[0][1]
    rows = {row["method"]: row for row in table.rows if row["asked"] == size and "recall@1" in row}
    evidence = {
        name: Interval(row["recall@1"], row["recall@1_low"], row["recall@1_high"])
        for name, row in rows.items()
        if not row["uses_labels"]
    }
    recall = {name: score.value for name, score in evidence.items()}
    worth = {name: value for name, value in recall.items() if any_size or name != "raw"} or recall
    if not worth:
        errors = [row["error"] for row in table.rows if "error" in row]
        raise ValueError([*errors, "All methods see the labels: compare one that does not."][0])
    over_pca = {name: table.difference(name, REFERENCE, size) for name in worth}
    choice, runner_up = _best_two(worth, [n for n, gain in over_pca.items() if _leads(gain)])
    apart = table.difference(choice, runner_up, size) if runner_up else None
    gain = over_pca[choice]
    reasons = [advised(choice, size, known), recall_reason(choice, worth, gain)]
    raw = table.difference("raw", choice, size)
    if choice != "raw" and raw is not None and raw.clear > 0:
        reasons.append(
            f"The raw vectors reach {recall['raw']:.1%} with "
            f"{counted(rows['raw']['dim'], 'dimension')}: keep "
            "them if you can afford the size."
        )
    certainty = "clear" if apart is None or apart.clear > 0 else "close"
    why = (*reasons, *close_reason(certainty, runner_up))
    used = known if choice == KNOWN else ()
    return Recommendation(choice, size, certainty, gain, True, evidence, reasons=why, known=used)


def decide(
    evidence: Mapping[str, Interval], size: int, methods: Sequence[str], any_size: bool
) -> Recommendation:
    """Choose the method with the largest rank gain minus its price; `any_size` allows "raw".

    RPML has its own evidence and thresholds; others must be clearly better than PCA.
    """
    gains = {name: measured.value for name, measured in evidence.items()}
    worth = {name: gains[name] - PRICES.get(name, 0.0) for name in methods if name != "raw"}
    worth = worth or {"raw": 0.0}
    if REFERENCE in worth and worth.get("rpml", 1.0) <= 0:
        del worth["rpml"]  # without evidence it is PCA
    ahead = [name for name in worth if name == "rpml" or _leads(evidence.get(name))]
    choice, runner_up = _best_two(worth, ahead)
    reasons = [advised(choice, size), rank_gain_reason(choice, evidence)]
    if "raw" in gains and gains["raw"] - gains[choice] > RAW_PRICE:
        if any_size:
            choice, reasons = "raw", [advised("raw", size), f"Otherwise: {reasons[0]}"]
        else:
            reasons.append("The raw vectors probably do better: keep them if you can afford them.")
    lead = np.inf if runner_up is None or choice == "raw" else worth[choice] - worth[runner_up]
    certainty = "clear" if lead > CLEARLY else "close"
    gain = expected_gain(gains[choice]) if choice not in ("raw", REFERENCE) else None
    why = (*reasons, *close_reason(certainty, runner_up))
    return Recommendation(choice, size, certainty, gain, False, dict(evidence), reasons=why)


def _leads(gain: Interval | None) -> bool:
    """Whether a gain over PCA is clear; without PCA to compare with, nothing speaks against it."""
    return gain is None or gain.clear > 0


def _best_two(worth: Mapping[str, float], ahead: Sequence[str]) -> tuple[str, str | None]:
    """Return the best and the second; PCA is the best unless others are `ahead` of it."""
    ranked = sorted(worth, key=lambda name: (-worth[name], name != REFERENCE))
    best = next((n for n in ranked if n == REFERENCE or n in ahead), ranked[0])
    return best, next((name for name in ranked if name != best), None)
