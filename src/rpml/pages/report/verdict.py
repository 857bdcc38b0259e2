"""Did it help, compared with what, how sure: the first thing a reader sees."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rpml.evaluation.comparison.bootstrap import RESAMPLES, Interval
from rpml.evaluation.recommendation import Recommendation
from rpml.pages.report.comparison import Comparison, Space

TITLES = {"raw": "the raw features", "pca": "PCA of the same size"}


@dataclass(frozen=True)
class Verdict:
    """An answer in a word, the sentence that says it, and the reasons.

    `tone` is "good", "mixed", "bad" or "open".
    """

    tone: str
    answer: str
    sentence: str
    compared: str
    certainty: str


def judge(
    comparison: Comparison,
    spaces: list[Space],
    rows: str,
    advice: Recommendation | None = None,
) -> Verdict:
    """From the differences if there are labels, else from the advice that needs none.

    `rows` says, as a clause, which rows were looked at.
    """
    if comparison.differences:
        return _by_labels(comparison, spaces, rows)
    assert advice is not None
    return _by_advice(comparison, spaces, rows, advice)


def _by_labels(comparison: Comparison, spaces: list[Space], rows: str) -> Verdict:
    gains = {key: byk[1] for key, byk in comparison.differences.items()}
    tone, answer, sentence = _outcome(gains, spaces)
    recall = comparison.scores[0].values
    compared = " ".join(
        f"Recall@1 is {recall['rpml']:.1%} against {recall[key]:.1%} with "
        f"{TITLES[key]}: {points(gain)}."
        for key, gain in gains.items()
    )
    certainty = (
        f"Intervals hold 95% of {RESAMPLES:,} resamples of the queries ({rows}); one that "
        "contains 0 means the difference may be chance."
    )
    return Verdict(tone, answer, sentence, spaced(compared), spaced(certainty))


def spaced(text: str) -> str:
    """Percent signs with a space that does not break, however they were written."""
    return re.sub(r"\s*%", "\u00a0%", text)


def points(gain: Interval) -> str:
    """A difference of shares in percentage points, with its interval."""
    bounds = f"{_signed(100 * gain.low)} to {_signed(100 * gain.high)}"
    return f"{_signed(100 * gain.value)} points (95% interval {bounds})"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _outcome(gains: dict[str, Interval], spaces: list[Space]) -> tuple[str, str, str]:
    raw, pca = gains["raw"].clear, gains["pca"].clear if "pca" in gains else 0
    small, large = spaces[-1].size, spaces[0].size
    size = f"with {small} numbers a vector instead of {large:,}"
    if raw > 0 and pca < 0:
        return (
            "mixed",
            "Partly",
            "It finds more of the right neighbours than the raw features "
            + (f"{size}, but PCA of the same size does better still."),
        )
    if raw > 0:
        more = " and than PCA of the same size" if pca > 0 else ""
        return (
            "good",
            "Yes",
            f"It finds more of the right neighbours than the raw features{more}, " + (f"{size}."),
        )
    if raw == 0 and pca > 0:
        return (
            "good",
            "Yes",
            "It is as good as the raw features, within chance, "
            + (f"{size}, and better than PCA of the same size."),
        )
    if raw == 0 and pca == 0:
        return "open", "No clear difference", f"It does as well as the alternatives, {size}."
    if raw == 0:
        return (
            "bad",
            "No",
            "It is as good as the raw features, within chance, but PCA of the "
            + (f"same size ({small} numbers) does better."),
        )
    if pca > 0:
        return (
            "mixed",
            "Partly",
            f"Going from {large:,} to {small} numbers costs right neighbours, "
            + ("but fewer than with PCA of the same size."),
        )
    return "bad", "No", f"It finds fewer of the right neighbours than the raw features, {size}."


_ANSWERS = {
    ("rpml", "clear"): ("good", "Probably yes"),
    ("rpml", "close"): ("open", "It may have"),
}


def _by_advice(
    comparison: Comparison, spaces: list[Space], rows: str, advice: Recommendation
) -> Verdict:
    """Without labels: what two halves of the features agree on."""
    by_name = {score.name: score.values for score in comparison.scores}
    kept, hubs = by_name["Neighbours kept"], by_name["Hubness"]
    also = f", PCA of the same size {kept['pca']:.0%}" if "pca" in kept else ""
    seen = (
        f" It keeps {kept['rpml']:.0%} of the nearest neighbours of the raw features{also}; "
        f"hubness goes from {hubs['raw']:.1f} to {hubs['rpml']:.1f} (nearer 0 is better)."
    )
    sure = (
        f"Judged without labels, from whether two halves of the features agree ({rows}); labels "
        "for a few hundred items would settle it."
    )
    reasons = " ".join(advice.reasons[1:])
    if advice.certainty == "unknown":
        tone, answer, sentence, reasons = "open", "Cannot be told", advice.reasons[0], ""
    else:
        tone, answer = _ANSWERS.get((advice.choice, advice.certainty), ("mixed", "Perhaps not"))
        small, large = spaces[-1].size, spaces[0].size
        sentence = f"From {large:,} to {small} numbers a vector. {advice.reasons[0]}"
    return Verdict(tone, answer, spaced(sentence), spaced((reasons + seen).strip()), spaced(sure))
