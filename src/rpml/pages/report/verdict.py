"""Did it help, compared with what, how certain: the first thing a reader sees."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rpml.evaluation.comparison.bootstrap import RESAMPLES, Interval
from rpml.evaluation.recommendation import Recommendation
from rpml.evaluation.registry import METHODS
from rpml.pages.report.comparison import N_NEIGHBORS
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
    verdict = _judge_first(measurements)
    shared, names = measurements.comparison.shared, measurements.source.models
    if shared is None:
        return verdict
    fact = (
        f"{' and '.join(names)} have {shared.value:.1%} of the {N_NEIGHBORS} nearest neighbors in "
        f"common (95% interval {shared.low:.1%} to {shared.high:.1%}). What is said below of the "
        f"training, the clusters and the settings is about {names[0]}."
    )
    return replace(verdict, facts={**verdict.facts, "The two models": spaced(fact)})


def _judge_first(measurements: Measurements) -> Verdict:
    small, large = measurements.embedding.n_dims, measurements.spaces[0].n_dims
    sizes = f"{small} dimensions instead of {large:,}"
    if measurements.advice is not None:
        return without_labels(measurements.advice, rows_phrase(measurements))
    comparison = measurements.comparison
    gains = {key: by_k[1] for key, by_k in comparison.differences.items()}
    values = comparison.scores[0].values
    return with_labels(gains, values, sizes, rows_phrase(measurements), measurements.source.models)


def rows_phrase(measurements: Measurements) -> str:
    """Which rows were measured."""
    measured, total = len(measurements.rows), measurements.n_rows
    rows = f"{measured:,} of {total:,} rows" if measured < total else f"{total:,} rows"
    if measurements.labels is not None and len(measurements.labels) < measured:
        rows = f"the {len(measurements.labels):,} labeled rows among {rows}"
    kind = "the training rows" if measurements.trained else "not the training rows"
    return f"{rows}, {kind}"


def with_labels(
    gains: dict[str, Interval],
    recall: dict[str, float],
    sizes: str,
    rows: str,
    models: Sequence[str] = ("RPML",),
) -> Verdict:
    """The verdict from Recall@1 of the (first) embedding and its paired differences."""
    names = {**_ALTERNATIVES, "second": models[-1]}
    tone, answer = _outcome(gains["raw"].clear, gains["pca"].clear if "pca" in gains else None)
    parts = [f"{_change(gain)} {names[key]}" for key, gain in gains.items()]
    return Verdict(
        tone,
        answer,
        spaced(f"With {sizes}, the nearest neighbor has the right label {' and '.join(parts)}."),
        {
            "Share of items whose nearest neighbor has the right label (Recall@1)": spaced(
                f"{models[0]} {recall['rpml']:.1%}, "
                + ", ".join(
                    f"{names[key]} {recall[key]:.1%} (difference {points(gain)})"
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


_ANSWERS = {("rpml", "clear"): ("good", "Probably"), ("rpml", "close"): ("open", "Perhaps")}


def without_labels(advice: Recommendation, rows: str) -> Verdict:
    """Three lines from the rank gains of the methods."""
    if not advice.evidence:
        return Verdict("open", "Cannot be told", spaced(" ".join(advice.reasons)), {})
    tone, answer = _ANSWERS.get((advice.choice, advice.certainty), ("mixed", "Probably not"))
    ranked = sorted(advice.evidence.items(), key=lambda pair: -pair[1])
    gains = ", ".join(f"{METHODS[name].title} {_signed(gain, 2)}" for name, gain in ranked)
    return Verdict(
        tone,
        answer,
        spaced(advice.reasons[0]),
        {
            "How this was judged": (
                "Without labels: the features were split into two halves. A method that captures "
                "what the items share ranks those high that the other half finds near. The rank "
                "gain is how much the logarithm of that rank falls, compared with PCA."
            ),
            "Rank gain over PCA": f"{gains}.",
            "How certain": spaced(
                f"Measured on {rows}. {' '.join(advice.reasons[1:])} Labels for a few hundred "
                "items would settle it."
            ),
        },
    )


def _signed(value: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f}".replace("-", "\u2212")
