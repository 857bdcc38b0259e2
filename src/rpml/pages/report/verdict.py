"""The verdict of the report: whether it helped, compared with what, and how certain."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.advice import RAW_PRICE, Recommendation
from rpml.evaluation.metrics.label_free import NEAREST
from rpml.evaluation.registry import REFERENCE
from rpml.method.calibration import expected_gain
from rpml.pages.report.measurements import Measurements
from rpml.runtime.errors import counted
from rpml.runtime.intervals import FEW, RESAMPLES, Interval

FEWEST_LABELS = 30  # resamples of fewer items say little about other items
_ALTERNATIVES = {"raw": "the raw features", "pca": "PCA of the same size"}


@dataclass(frozen=True)
class Verdict:
    """A short answer, the sentence that explains it, and the facts behind it.

    `tone` is "good", "mixed", "bad" or "open"; `facts` are titles and sentences.
    """

    tone: str
    answer: str
    sentence: str
    facts: dict[str, str]


def judge(measurements: Measurements) -> Verdict:
    """Judge by the differences in Recall@1 if there are labels, else by the recommendation."""
    verdict = _judge_first(measurements)
    shared, names = measurements.shared, measurements.source.models
    if shared is None:
        return verdict
    fact = (
        f"{' and '.join(names)} have {shared.value:.1%} of the {NEAREST} nearest neighbors in "
        f"common (95% interval {shared.low:.1%} to {shared.high:.1%}). What follows about the "
        f"training, the clusters and the settings is about {names[0]}."
    )
    return replace(verdict, facts={**verdict.facts, "The two models": fact})


def _judge_first(measurements: Measurements) -> Verdict:
    rows, labels = rows_phrase(measurements), measurements.labels
    if measurements.advice is not None:
        is_pca = measurements.model.outcome_ == "PCA"
        return without_labels(measurements.advice, rows, is_pca)
    assert labels is not None
    if reason := _too_few(labels[labels != ""]):
        return Verdict("open", "Not enough data to say", reason, {})
    small, large = measurements.embedding.n_dims, measurements.spaces[0].n_dims
    sizes = f"{counted(small, 'dimension')} instead of {large:,}"
    gains = {key: by_k[1] for key, by_k in measurements.gains.items()}
    recall = {key: share.value for key, share in measurements.label_scores[0].figures.items()}
    return with_labels(gains, recall, sizes, rows, measurements.source.models)


def _too_few(labels: NDArray[np.str_]) -> str:
    """Say why these labels cannot tell whether it helped, or nothing if they can."""
    n_classes = len(np.unique(labels))
    if n_classes == 1:
        return f"All labeled items have the label {labels[0]}, so that every neighbor is right."
    if n_classes == len(labels):
        return "No label is given to two items, so that no neighbor can be right."
    if len(labels) < FEWEST_LABELS:
        return f"{len(labels)} labeled items are too few: label {FEWEST_LABELS} or more."
    return ""


def rows_phrase(measurements: Measurements) -> str:
    measured, total = len(measurements.rows), measurements.n_rows
    rows = f"{measured:,} of {total:,} items" if measured < total else counted(total, "item")
    labels = measurements.labels
    if labels is not None and (labels == "").any():
        rows = f"the {(labels != '').sum():,} labeled items among {rows}"
    which = "the model was" if measurements.trained else "the model was not"
    return f"{rows}, on which {which} trained"


def with_labels(
    gains: dict[str, Interval],
    recall: dict[str, float],
    sizes: str,
    rows: str,
    models: Sequence[str] = ("RPML",),
) -> Verdict:
    """Judge by the Recall@1 of the (first) embedding and its paired differences."""
    names = {**_ALTERNATIVES, "second": models[-1]}
    tone, answer = _outcome(gains["raw"].clear, gains["pca"].clear if "pca" in gains else None)
    alike: dict[str, list[str]] = {}
    for key, gain in gains.items():
        alike.setdefault(_how_often(gain), []).append(names[key])
    compared = ", and ".join(f"{how} {' or '.join(found)}" for how, found in alike.items())
    listed = ", ".join(
        f"{names[key]} {recall[key]:.1%} (difference {points(gain)})" for key, gain in gains.items()
    )
    facts = {
        "Share of items whose nearest neighbor has the right label (Recall@1)": (
            f"{models[0]} {recall['rpml']:.1%}, {listed}."
        ),
        "How certain": (
            f"Measured on {rows}. Each 95% interval comes from {RESAMPLES:,} resamples of the "
            "items; a difference whose interval includes 0 may be chance. Where fewer than "
            f"{FEW} items differ, an exact sign test decides whether it does."
        ),
    }
    return Verdict(
        tone, answer, f"With {sizes}, the nearest neighbor has the right label {compared}.", facts
    )


def _outcome(raw: int, pca: int | None) -> tuple[str, str]:
    if raw > 0:
        return ("mixed", "Partly") if pca == -1 else ("good", "Yes")
    if raw == 0:
        return {1: ("good", "Yes"), -1: ("bad", "No")}.get(pca or 0, ("open", "Not clear"))
    return ("mixed", "Partly") if pca == 1 else ("bad", "No")


def _how_often(gain: Interval) -> str:
    if gain.low == gain.high == 0:
        return "exactly as often as with"
    words = {1: "more often than with", -1: "less often than with"}
    return words.get(gain.clear, "neither clearly more nor clearly less often than with")


def points(gain: Interval) -> str:
    return f"{signed(100 * gain.value)} points, 95% interval {bounds(gain)}"


def bounds(gain: Interval) -> str:
    """Format an interval in percentage points; no bound is rounded to the other side of zero."""
    return f"{signed(100 * gain.low)} to {signed(100 * gain.high)}"


_ANSWERS = {("rpml", "clear"): ("good", "Probably"), ("rpml", "close"): ("open", "Perhaps")}


def without_labels(advice: Recommendation, rows: str, is_pca: bool = False) -> Verdict:
    """Judge without labels in three short lines; another section has the evidence."""
    if is_pca:
        own, tone, answer = 0.0, "mixed", "No more than PCA"
        expected = "The nearest neighbors are those of PCA of the same size."
        if advice.choice != REFERENCE:
            expected += f" {advice.reasons[0]}"
    elif not advice.evidence:
        return Verdict("open", "Not enough data to say", " ".join(advice.reasons), {})
    else:
        own = advice.evidence["rpml"].value
        gain = expected_gain(own)
        certainty = advice.certainty if gain.low > 0 else "close"
        tone, answer = _ANSWERS.get((advice.choice, certainty), ("mixed", "Probably not"))
        expected = (
            f"On the data sets measured with such evidence, RPML changed the share of right "
            f"nearest neighbors by {bounds(gain)} points against PCA (median "
            f"{signed(100 * gain.value)})."
        )
    raw = advice.evidence.get("raw")
    if raw is not None and raw.value - own > RAW_PRICE:
        expected += " The raw features, all dimensions, probably do better."
    leads = {
        "No more than PCA": "The rows support nothing better than PCA, so the model is PCA.",
        "Probably": "The nearest neighbors are probably better than with PCA of the same size.",
        "Perhaps": "The nearest neighbors may be better than with simpler methods; it is close.",
        "Probably not": f"A simpler method is probably enough. {advice.reasons[0]}",
    }
    certain = f"An estimate without labels, from {rows}. Labels for a few hundred items would "
    facts = {"What to expect": expected, "How certain": f"{certain}settle it."}
    return Verdict(tone, answer, leads[answer], facts)


def signed(value: float, digits: int = 1) -> str:
    """Format with a sign and enough digits not to round to zero."""
    if abs(value) < 1e-9:
        return f"{0:.{digits}f}"
    digits = next(d for d in range(digits, 12) if float(f"{value:.{d}f}"))
    return f"{value:+.{digits}f}".replace("-", "\u2212")
