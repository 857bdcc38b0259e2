"""Did it help, compared with what, how certain: the first thing a reader sees."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rpml.evaluation.comparison.bootstrap import RESAMPLES, Interval
from rpml.evaluation.recommendation import CLEARLY, TITLES, Agreement, Recommendation
from rpml.pages.report.measurements import Measurements

_ALTERNATIVES = {"raw": "the raw features", "pca": "PCA with as many dimensions"}


@dataclass(frozen=True)
class Verdict:
    """An answer in a word, the sentence that explains it, and the facts behind it.

    `tone` is "good", "mixed", "bad" or "open"; `facts` are titles and sentences.
    """

    tone: str
    answer: str
    sentence: str
    facts: dict[str, str]


def judge(measurements: Measurements) -> Verdict:
    """From the differences in Recall@1 if there are labels, else from the recommendation."""
    small, large = measurements.embedding.n_dims, measurements.spaces[0].n_dims
    sizes = f"{small} dimensions instead of {large:,}"
    if measurements.advice is not None:
        return without_labels(measurements.advice, rows_phrase(measurements))
    comparison = measurements.comparison
    gains = {key: by_k[1] for key, by_k in comparison.differences.items()}
    values = comparison.scores[0].values
    return with_labels(gains, values, sizes, rows_phrase(measurements))


def rows_phrase(measurements: Measurements) -> str:
    """Which rows were measured."""
    measured, total = len(measurements.rows), measurements.n_rows
    rows = f"{measured:,} of {total:,} rows" if measured < total else f"{total:,} rows"
    if measurements.labels is not None and len(measurements.labels) < measured:
        rows = f"the {len(measurements.labels):,} labeled rows among {rows}"
    kind = "the training rows" if measurements.trained else "not the training rows"
    return f"{rows}, {kind}"


def with_labels(
    gains: dict[str, Interval], recall: dict[str, float], sizes: str, rows: str
) -> Verdict:
    """The verdict from Recall@1 of the embedding and its paired differences."""
    tone, answer = _outcome(gains["raw"].clear, gains["pca"].clear if "pca" in gains else None)
    parts = [f"{_change(gain)} {_ALTERNATIVES[key]}" for key, gain in gains.items()]
    return Verdict(
        tone,
        answer,
        spaced(f"With {sizes}, the nearest neighbor has the right label {' and '.join(parts)}."),
        {
            "Share of items whose nearest neighbor has the right label (Recall@1)": spaced(
                f"RPML {recall['rpml']:.1%}, "
                + ", ".join(
                    f"{_ALTERNATIVES[key]} {recall[key]:.1%} (difference {points(gain)})"
                    for key, gain in gains.items()
                )
                + "."
            ),
            "How certain": spaced(
                f"Measured on {rows}. Each 95% interval comes from {RESAMPLES:,} resamples of the "
                "items; a difference whose interval includes 0 may be chance."
            ),
        },
    )


def _outcome(raw: int, pca: int | None) -> tuple[str, str]:
    """From the signs of the differences that are beyond chance to (tone, answer)."""
    if raw > 0:
        return ("mixed", "Partly") if pca == -1 else ("good", "Yes")
    if raw == 0:
        return {1: ("good", "Yes"), -1: ("bad", "No")}.get(pca or 0, ("open", "Not clear"))
    return ("mixed", "Partly") if pca == 1 else ("bad", "No")


def _change(gain: Interval) -> str:
    if gain.clear:
        return f"{'more' if gain.clear > 0 else 'less'} often than with"
    return "neither clearly more nor clearly less often than with"


def spaced(text: str) -> str:
    """Percent signs after a no-break space, however they were written."""
    return re.sub(r"\s*%", "\u00a0%", text)


def points(gain: Interval) -> str:
    """A difference of shares in percentage points, with its interval."""
    bounds = f"{_signed(100 * gain.low)} to {_signed(100 * gain.high)}"
    return f"{_signed(100 * gain.value)} points, 95% interval {bounds}"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


_ANSWERS = {
    ("rpml", "clear"): ("good", "Probably"),
    ("rpml", "close"): ("open", "Perhaps"),
}


def without_labels(advice: Recommendation, rows: str) -> Verdict:
    """Three lines from the split-half agreement of the candidates."""
    if not advice.agreement:
        tone, answer, sentence = "open", "Cannot be told", " ".join(advice.reasons)
        return Verdict(tone, answer, spaced(sentence), {})
    tone, answer = _ANSWERS.get((advice.choice, advice.certainty), ("mixed", "Probably not"))
    ranked = sorted(advice.agreement.items(), key=lambda pair: -pair[1].share)
    shares = ", ".join(f"{TITLES[name]} {_share(found)}" for name, found in ranked)
    return Verdict(
        tone,
        answer,
        spaced(advice.reasons[0]),
        {
            "How this was judged": (
                "Without labels: the features were split into two halves, and each method was "
                "fitted to both. A method that captures what the items share finds the same "
                "nearest neighbor in both halves."
            ),
            "Same nearest neighbor in both halves": spaced(f"{shares}."),
            "How certain": spaced(
                f"Measured on {rows}. RPML is preferred unless another method has the same "
                f"neighbor at least {CLEARLY - 1:.0%} more often, beyond chance. Labels for a few "
                "hundred items would settle it."
            ),
        },
    )


def _share(found: Agreement) -> str:
    return f"{found.share:.1%} ({100 * found.low:.1f} to {100 * found.high:.1f})"
