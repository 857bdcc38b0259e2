"""The table and the verdict."""

from __future__ import annotations

import numpy as np
import pytest

from rpml.metrics import clustering_scores, recall_at_k
from rpml.report.comparison import (
    KS,
    Comparison,
    Measured,
    Space,
    compare,
    difference,
    make_spaces,
    proportion,
)
from rpml.report.verdict import judge, points
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
    by_name = {score.name: score.values for score in found.scores}
    for space in spaces:
        recall = recall_at_k(space.vectors, labels, ks=KS)
        for k in KS:
            measured = by_name[f"Recall@{k}"][space.key]
            assert measured.value == pytest.approx(recall[k])
            assert measured.low <= measured.value <= measured.high
    gain = found.differences["raw"][1]
    expected = by_name["Recall@1"]["rpml"].value - by_name["Recall@1"]["raw"].value
    assert gain.value == pytest.approx(expected)
    nmi = by_name["NMI"]["raw"].value
    assert nmi == pytest.approx(clustering_scores(spaces[0].vectors, labels, 1)["nmi"], abs=0.1)
    assert by_name["Neighbours kept"]["raw"].value == 1


def test_without_labels_nothing_needs_them(spaces: list[Space]) -> None:
    found = compare(spaces, None, np.random.default_rng(0))
    assert found.differences == {}
    assert not any(score.by_labels for score in found.scores)


def test_intervals_are_those_of_a_literal_bootstrap() -> None:
    rng = np.random.default_rng(3)
    one, other = rng.random(400) < 0.7, rng.random(400) < 0.6
    draws = rng.integers(400, size=(4000, 400))
    literal = np.quantile(one[draws].mean(axis=1) - other[draws].mean(axis=1), [0.025, 0.975])
    found = difference(one, other, rng)
    assert [found.low, found.high] == pytest.approx(literal.tolist(), abs=0.012)
    single = np.quantile(one[draws].mean(axis=1), [0.025, 0.975])
    share = proportion(one, rng)
    assert [share.low, share.high] == pytest.approx(single.tolist(), abs=0.012)


def test_a_small_rank_leaves_pca_out(sample: Sample) -> None:
    assert [s.key for s in make_spaces(sample.model, sample.X[:10])] == ["raw", "rpml"]


UP, NONE, DOWN = (
    Measured(0.05, 0.02, 0.08),
    Measured(0.0, -0.02, 0.02),
    Measured(-0.05, -0.08, -0.02),
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
    spaces: list[Space], raw: Measured, pca: Measured | None, tone: str, answer: str
) -> None:
    scores = compare(spaces, np.arange(len(spaces[0].vectors)) % 7, np.random.default_rng(0)).scores
    gains = {"raw": {1: raw}} | ({"pca": {1: pca}} if pca else {})
    verdict = judge(Comparison(scores, gains, {}), spaces, "300 rows")
    assert (verdict.tone, verdict.answer) == (tone, answer)
    assert "300 rows" in verdict.certainty
    assert "Recall@1" in verdict.compared


def test_without_labels_the_verdict_promises_nothing(spaces: list[Space]) -> None:
    verdict = judge(compare(spaces, None, np.random.default_rng(0)), spaces, "300 rows")
    assert verdict.tone == "open"
    assert "No labels" in verdict.sentence


def test_points_are_printed_with_their_interval() -> None:
    assert points(DOWN) == "−5.0 points (95\u00a0% interval −8.0 to −2.0)"
