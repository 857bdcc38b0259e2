"""The table and the verdict."""

from __future__ import annotations

import numpy as np
import pytest

from rpml import RPML
from rpml.evaluation.advice import Recommendation
from rpml.evaluation.metrics import clustering_scores, recall_at_k
from rpml.evaluation.metrics.retrieval import KS
from rpml.method.calibration import CALIBRATION
from rpml.pages.items import make_items
from rpml.pages.report.measurements import (
    Measurements,
    Source,
    Space,
    label_free_scores,
    label_scores,
    make_spaces,
)
from rpml.pages.report.section import score_table
from rpml.pages.report.verdict import judge, points, with_labels, without_labels
from rpml.runtime.intervals import Interval, share_interval
from tests.drawings import Sample


@pytest.fixture(scope="module")
def spaces(sample: Sample) -> list[Space]:
    return make_spaces({"RPML": sample.model}, sample.X)


def test_spaces_are_raw_pca_and_embedding(sample: Sample, spaces: list[Space]) -> None:
    assert [s.key for s in spaces] == ["raw", "pca", "rpml"]
    assert [s.n_dims for s in spaces] == [sample.X.shape[1], 16, 16]
    assert np.array_equal(spaces[2].vectors, sample.model.transform(sample.X))
    own = np.arange(len(sample.X))[:, None]
    assert all((s.neighbors != own).all() for s in spaces)


def test_table_agrees_with_the_metrics(sample: Sample, spaces: list[Space]) -> None:
    labels = np.array(sample.labels)
    scores, differences = label_scores(spaces, labels, np.random.default_rng(0))
    scores += label_free_scores(spaces, np.random.default_rng(0))
    by_name = {score.name: score.figures for score in scores}
    for space in spaces:
        recall = recall_at_k(space.vectors, labels, ks=KS)
        for k in KS:
            share = by_name[f"Recall@{k}"][space.key]
            assert share.value == pytest.approx(recall[k])
            assert share.low <= recall[k] <= share.high
    gain, recalls = differences["raw"][1], by_name["Recall@1"]
    assert gain.value == pytest.approx(recalls["rpml"].value - recalls["raw"].value)
    nmi = by_name["NMI"]["raw"].value
    assert nmi == pytest.approx(clustering_scores(spaces[0].vectors, labels)["nmi"])
    assert by_name["Neighbors retained"]["raw"].value == 1


def test_all_right_or_none_is_not_certain(spaces: list[Space]) -> None:
    for labels, share in ((["a"] * 300, 1.0), ([f"c{i}" for i in range(300)], 0.0)):
        scores, _ = label_scores(spaces, np.array(labels), np.random.default_rng(0))
        assert scores[0].figures["rpml"] == share_interval(share, 300)


def test_every_estimate_without_labels_has_an_interval(spaces: list[Space]) -> None:
    scores = label_free_scores(spaces, np.random.default_rng(0))
    lines = score_table("", spaces, scores).lines
    assert not any(cell.small for cell in lines[0][2])  # dimensions are exact
    for score, (_, _, cells) in zip(scores[1:], lines[1:], strict=True):
        for figure, cell in zip(score.figures.values(), cells, strict=True):
            assert bool(cell.small) == (figure.value not in (0, 1))
            assert figure.low <= figure.value <= figure.high


def test_a_small_rank_leaves_pca_out(sample: Sample) -> None:
    assert [s.key for s in make_spaces({"RPML": sample.model}, sample.X[:10])] == ["raw", "rpml"]


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
        (NONE, NONE, "open", "Not clear"),
        (NONE, DOWN, "bad", "No"),
        (DOWN, UP, "mixed", "Partly"),
        (DOWN, NONE, "bad", "No"),
        (DOWN, DOWN, "bad", "No"),
        (DOWN, None, "bad", "No"),
        (NONE, None, "open", "Not clear"),
    ],
)
def test_the_verdict_follows_the_intervals(
    raw: Interval, pca: Interval | None, tone: str, answer: str
) -> None:
    gains = {"raw": raw} | ({"pca": pca} if pca else {})
    recall = {"raw": 0.5, "pca": 0.4, "rpml": 0.6}
    verdict = with_labels(gains, recall, "16 dimensions instead of 64", "300 rows")
    assert (verdict.tone, verdict.answer) == (tone, answer)
    assert "300 rows" in verdict.facts["How certain"]
    said = {1: "more often", 0: "neither clearly more nor clearly less", -1: "less often"}
    assert said[raw.clear] in verdict.sentence
    assert verdict.sentence.count("often") == (1 if pca is None or pca == raw else 2)
    assert any("Recall@1" in title for title in verdict.facts)


def test_a_loss_within_chance_is_not_called_as_good() -> None:
    gains = {"raw": Interval(-0.024, -0.054, 0.003)}
    verdict = with_labels(gains, {"raw": 0.5, "rpml": 0.476}, "16 dimensions", "300 rows")
    text = " ".join([verdict.sentence, *verdict.facts.values()])
    assert "as well" not in text
    assert "as good" not in text
    assert "−2.4 points, 95% interval −5.4 to +0.3" in text


def advice(choice: str, certainty: str) -> Recommendation:
    gains = {"rpml": 0.154, "pca": 0.0, "half-whitened": -0.02}
    evidence = {name: Interval(gain, gain - 0.01, gain + 0.01) for name, gain in gains.items()}
    return Recommendation(
        choice,
        16,
        certainty,
        evidence={} if certainty == "unknown" else evidence,
        reasons=("Use it with 16 dimensions.", "Expected gain over PCA: 80% interval."),
    )


@pytest.mark.parametrize(
    ("choice", "certainty", "tone", "answer"),
    [
        ("rpml", "clear", "good", "Probably"),
        ("rpml", "close", "open", "Perhaps"),
        ("pca", "clear", "mixed", "Probably not"),
        ("raw", "close", "mixed", "Probably not"),
        ("pca", "unknown", "open", "Not enough data to say"),
    ],
)
def test_without_labels_the_verdict_is_the_advice(
    choice: str, certainty: str, tone: str, answer: str
) -> None:
    verdict = without_labels(advice(choice, certainty), "300 rows")
    assert (verdict.tone, verdict.answer) == (tone, answer)
    if choice != "rpml":
        assert "Use it with 16 dimensions." in verdict.sentence
    if certainty != "unknown":
        lines = [verdict.sentence, *verdict.facts.values()]
        assert len(lines) == 3
        assert max(len(line.split()) for line in lines) < 30
        assert "the data sets measured" in verdict.facts["What to expect"]
        assert "An estimate" in verdict.facts["How certain"]
        assert not any(word in " ".join(lines) for word in ("rank gain", "logarithm", "Recall"))


def test_a_gain_that_may_be_a_loss_is_not_called_probable() -> None:
    weak = 0.04
    assert CALIBRATION[0.0][0] < 0
    evidence = {"rpml": Interval(weak, weak, weak), "pca": Interval(0.0, 0.0, 0.0)}
    said = without_labels(
        Recommendation("rpml", 16, "clear", evidence=evidence, reasons=("Use RPML.",)), "300 items"
    )
    assert said.answer == "Perhaps"
    assert " to +" in said.facts["What to expect"]


def test_a_model_that_is_pca_is_called_that() -> None:
    X = np.random.default_rng(0).standard_normal((300, 20))
    model = RPML(8, random_state=0).fit(X)
    assert model.outcome_ == "PCA"
    said = judge(Measurements([model], X, make_items(len(X)), Source("m", "x")))
    assert (said.tone, said.answer) == ("mixed", "No more than PCA")
    assert "the model is PCA" in said.sentence
    assert said.facts["What to expect"].startswith("The nearest neighbors are those of PCA")


@pytest.mark.parametrize(("choice", "told"), [("pca", False), ("half-whitened", True)])
def test_another_method_than_pca_is_named(choice: str, told: bool) -> None:
    said = without_labels(advice(choice, "clear"), "300 rows", is_pca=True)
    assert ("Use it with 16 dimensions." in said.facts["What to expect"]) == told


def test_it_is_said_that_the_raw_features_do_better() -> None:
    gains = {"rpml": UP, "pca": NONE, "raw": Interval(0.3, 0.2, 0.4)}
    said = without_labels(
        Recommendation("rpml", 16, "clear", evidence=gains, reasons=("Use RPML.",)), "300 items"
    )
    assert said.facts["What to expect"].endswith(
        "The raw features, all dimensions, probably do better."
    )


def test_equal_neighbors_are_called_equal() -> None:
    gains = {"raw": NONE, "pca": Interval(0.0, 0.0, 0.0)}
    verdict = with_labels(gains, {"raw": 0.5, "pca": 0.5, "rpml": 0.5}, "8 dimensions", "9 items")
    assert "exactly as often as with PCA of the same size" in verdict.sentence
    assert "(difference 0.0 points, 95% interval 0.0 to 0.0)" in " ".join(verdict.facts.values())


def test_points_are_printed_with_their_interval() -> None:
    assert points(DOWN) == "−5.0 points, 95% interval −8.0 to −2.0"
    assert points(Interval(-0.008, -0.016, -0.0003)).endswith("−1.6 to −0.03")


def test_only_labeled_rows_are_judged(sample: Sample, spaces: list[Space]) -> None:
    positions = np.arange(0, len(sample.X), 3)
    labels = np.where(np.arange(300) % 3, "", sample.labels)
    scores, _ = label_scores(spaces, labels, np.random.default_rng(0))
    recall = recall_at_k(spaces[2].vectors[positions], labels[positions], ks=(1,))[1]
    assert scores[0].figures["rpml"].value == pytest.approx(recall)


def test_bold_only_beyond_chance(spaces: list[Space]) -> None:
    rows = np.arange(len(spaces[0].vectors))
    random = np.random.default_rng(0).integers(5, size=len(rows)).astype(str)
    scores, _ = label_scores(spaces, random, np.random.default_rng(0))
    assert not any(score.best for score in scores)
