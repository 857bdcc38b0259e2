"""The table and the verdict."""

from __future__ import annotations

import numpy as np
import pytest

from rpml.evaluation.comparison.bootstrap import Interval
from rpml.evaluation.metrics import clustering_scores, recall_at_k
from rpml.evaluation.recommendation import Recommendation
from rpml.pages.report.comparison import KS, Comparison, Space, compare, make_spaces
from rpml.pages.report.verdict import judge, points, spaced
from tests.drawings import Sample


@pytest.fixture(scope="module")
def spaces(sample: Sample) -> list[Space]:
    return make_spaces(sample.model, sample.X)


def test_spaces_are_raw_pca_and_embedding(sample: Sample, spaces: list[Space]) -> None:
    assert [s.key for s in spaces] == ["raw", "pca", "rpml"]
    assert [s.size for s in spaces] == [sample.X.shape[1], 16, 16]
    assert np.array_equal(spaces[2].vectors, sample.model.transform(sample.X))
    own = np.arange(len(sample.X))[:, None]
    assert all((s.neighbors != own).all() for s in spaces)


def test_table_agrees_with_the_metrics(sample: Sample, spaces: list[Space]) -> None:
    labels = np.array(sample.labels)
    found = compare(spaces, labels, np.random.default_rng(0))
    by_name = {score.name: score for score in found.scores}
    for space in spaces:
        recall = recall_at_k(space.vectors, labels, ks=KS)
        for k in KS:
            score = by_name[f"Recall@{k}"]
            assert score.values[space.key] == pytest.approx(recall[k])
            interval = score.intervals[space.key]
            assert interval.low <= recall[k] <= interval.high
    gain = found.differences["raw"][1]
    recalls = by_name["Recall@1"].values
    assert gain.value == pytest.approx(recalls["rpml"] - recalls["raw"])
    nmi = by_name["NMI"].values["raw"]
    assert nmi == pytest.approx(clustering_scores(spaces[0].vectors, labels, 1)["nmi"], abs=0.1)
    assert by_name["Neighbours kept"].values["raw"] == 1


def test_without_labels_nothing_needs_them(spaces: list[Space]) -> None:
    found = compare(spaces, None, np.random.default_rng(0))
    assert found.differences == {}
    assert not any(score.by_labels for score in found.scores)


def test_a_small_rank_leaves_pca_out(sample: Sample) -> None:
    assert [s.key for s in make_spaces(sample.model, sample.X[:10])] == ["raw", "rpml"]


UP, NONE, DOWN = (
    Interval(0.05, 0.02, 0.08),
    Interval(0.0, -0.02, 0.02),
    Interval(-0.05, -0.08, -0.02),
)


@pytest.mark.parametrize(
    ("raw", "pca", "tone", "answer"),
    [
        (UP, UP, "good", "Yes"),
        (UP, NONE, "good", "Yes"),
        (UP, DOWN, "mixed", "Partly"),
        (NONE, UP, "good", "Yes"),
        (NONE, NONE, "open", "No clear difference"),
        (NONE, DOWN, "bad", "No"),
        (DOWN, UP, "mixed", "Partly"),
        (DOWN, NONE, "bad", "No"),
        (DOWN, DOWN, "bad", "No"),
        (DOWN, None, "bad", "No"),
    ],
)
def test_the_verdict_follows_the_intervals(
    spaces: list[Space], raw: Interval, pca: Interval | None, tone: str, answer: str
) -> None:
    scores = compare(spaces, np.arange(len(spaces[0].vectors)) % 7, np.random.default_rng(0)).scores
    gains = {"raw": {1: raw}} | ({"pca": {1: pca}} if pca else {})
    verdict = judge(Comparison(scores, gains, {}), spaces, "300 rows")
    assert (verdict.tone, verdict.answer) == (tone, answer)
    assert "300 rows" in verdict.certainty
    assert "Recall@1" in verdict.compared


def advice(choice: str, certainty: str) -> Recommendation:
    reasons = ("Use it with 16 dimensions.", "Halves agree for 40.0 % of the rows.")
    return Recommendation(choice, "pca", 16, reasons, certainty, {}, 1.0)


@pytest.mark.parametrize(
    ("choice", "certainty", "tone", "answer"),
    [
        ("rpml", "clear", "good", "Probably yes"),
        ("rpml", "close", "open", "It may have"),
        ("pca", "clear", "mixed", "Perhaps not"),
        ("raw", "close", "mixed", "Perhaps not"),
        ("pca", "unknown", "open", "Cannot be told"),
    ],
)
def test_without_labels_the_verdict_is_the_advice(
    spaces: list[Space], choice: str, certainty: str, tone: str, answer: str
) -> None:
    found = compare(spaces, None, np.random.default_rng(0))
    verdict = judge(found, spaces, "300 rows", advice(choice, certainty))
    assert (verdict.tone, verdict.answer) == (tone, answer)
    assert "Use it with 16 dimensions." in verdict.sentence
    assert "without labels" in verdict.certainty
    assert "It keeps" in verdict.compared


def test_points_are_printed_with_their_interval() -> None:
    assert points(DOWN) == "−5.0 points (95% interval −8.0 to −2.0)"
    assert spaced("5% of 10 % ") == "5\u00a0% of 10\u00a0% "
