"""Did it help, compared with what, how sure: the first thing a reader sees."""

from __future__ import annotations

from dataclasses import dataclass

from rpml.report.comparison import Comparison, Measured, Space

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


def judge(comparison: Comparison, spaces: list[Space], rows: str) -> Verdict:
    """From the differences if there are labels, else from what changed.

    `rows` says, as a clause, which rows were looked at.
    """
    if comparison.differences:
        return _by_labels(comparison, spaces, rows)
    return _without_labels(comparison, spaces, rows)


def _by_labels(comparison: Comparison, spaces: list[Space], rows: str) -> Verdict:
    gains = {key: byk[1] for key, byk in comparison.differences.items()}
    tone, answer, sentence = _outcome(gains, spaces)
    recall = comparison.scores[0].values
    compared = " ".join(
        f"Recall@1 is {recall['rpml'].value:.1%} against {recall[key].value:.1%} with "
        f"{TITLES[key]}: {points(gain)}."
        for key, gain in gains.items()
    )
    certainty = (
        f"Intervals hold 95\u00a0% of 2,000 resamples of the queries ({rows}); an interval that "
        "contains 0 means the difference may be chance."
    )
    return Verdict(tone, answer, sentence, compared.replace("%", "\u00a0%"), certainty)


def points(gain: Measured) -> str:
    """A difference of shares in percentage points, with its interval."""
    text = f"{_signed(100 * gain.value)} points"
    if gain.low is None or gain.high is None:
        return text
    return f"{text} (95\u00a0% interval {_signed(100 * gain.low)} to {_signed(100 * gain.high)})"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _outcome(gains: dict[str, Measured], spaces: list[Space]) -> tuple[str, str, str]:
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


def _without_labels(comparison: Comparison, spaces: list[Space], rows: str) -> Verdict:
    by_name = {score.name: score.values for score in comparison.scores}
    kept = by_name["Neighbours kept"]
    hubs = by_name["Hubness"]
    small, large = spaces[-1].size, spaces[0].size
    also = f", PCA of the same size {kept['pca'].value:.0%}" if "pca" in kept else ""
    compared = (
        f"It keeps {kept['rpml'].value:.0%} of the nearest neighbours of the raw features{also}; "
        f"hubness goes from {hubs['raw'].value:.1f} to {hubs['rpml'].value:.1f} (nearer 0 is "
        "better)."
    )
    return Verdict(
        "open",
        "Not measured",
        f"No labels were given, so the report shows what changed from {large:,} to {small} "
        "numbers a vector, not whether it is better.",
        compared.replace("%", "\u00a0%"),
        f"Look at the neighbours below and judge ({rows}). A few hundred labels given with "
        "--labels would settle it.",
    )
