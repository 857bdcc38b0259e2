"""The recommendation: label-free, reproducible, and right where the answer is known."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import rpml
from rpml.evaluation import recommendation
from rpml.evaluation.advice import (
    CLEARLY,
    PRICES,
    RAW_PRICE,
    Recommendation,
    decide,
    recommend_from,
)
from rpml.evaluation.comparison import Comparison, compare
from rpml.evaluation.metrics.label_free import neighbors_kept
from rpml.evaluation.recommendation import CANDIDATES, rank_gains, recommend
from rpml.evaluation.registry import METHODS, chosen_methods
from rpml.method.calibration import CALIBRATION, expected_gain
from rpml.runtime.intervals import Interval
from rpml.runtime.rows import sorted_sample

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def gains(**found):
    """Rank gains over PCA, by name."""
    values = {"pca": 0.0, **found}
    return {n.replace("_", "-"): Interval(v, v - 0.01, v + 0.01) for n, v in values.items()}


def nuisance(seed=0, classes=40, per_class=12, signal=60, strong=4):
    """Classes in many weak directions under a few strong ones that say nothing of them."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), per_class)
    centers = rng.standard_normal((classes, signal))
    X = np.hstack(
        [
            0.5 * centers[y] + 0.2 * rng.standard_normal((len(y), signal)),
            2.0 * rng.standard_normal((len(y), strong)),
        ]
    )
    return X @ np.linalg.qr(rng.standard_normal((signal + strong, signal + strong)))[0], y


# --- the rule ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PRICES))
def test_a_method_displaces_pca_by_more_than_its_price(name):
    at, above = (gains(**{name: PRICES[name] + more}) for more in (0.0, 0.001))
    assert decide(at, 16, ("pca", name), False).choice == "pca"
    assert decide(above, 16, ("pca", name), False).choice == name


def test_no_gain_at_all_is_pca():
    found = decide(gains(rpml=0.0, half_whitened=-0.2), 16, (*CANDIDATES[:2], "rpml"), False)
    assert found.choice == "pca"
    assert found.gain is None
    assert str(found).startswith("Use PCA with 16 dimensions.")


def test_what_was_not_asked_for_is_not_recommended():
    found = gains(rpml=0.5, half_whitened=0.2)
    assert decide(found, 16, ("pca", "half-whitened"), False).choice == "half-whitened"
    assert decide(found, 16, ("half-whitened",), False).choice == "half-whitened"
    rich = gains(rpml=0.1, raw=0.1 + 2 * RAW_PRICE)
    asked = decide(rich, 16, ("raw", "pca", "rpml"), any_size=False)
    assert asked.choice == "rpml"
    assert "raw vectors" in str(asked)
    free = decide(rich, 16, ("raw", "pca", "rpml"), any_size=True)
    assert free.choice == "raw"
    assert "Otherwise: Use RPML" in str(free)
    near = gains(rpml=0.1, raw=0.1 + RAW_PRICE / 2)
    assert decide(near, 16, ("raw", "pca", "rpml"), any_size=True).choice == "rpml"


def test_certainty_is_the_lead_over_the_runner_up():
    clear = decide(gains(rpml=CLEARLY + 0.01), 16, ("pca", "rpml"), False)
    assert (clear.choice, clear.certainty) == ("rpml", "clear")
    close = decide(gains(rpml=CLEARLY - 0.01), 16, ("pca", "rpml"), False)
    assert (close.choice, close.certainty) == ("rpml", "close")
    assert "It is close: PCA may do as well." in close.reasons


def test_the_expected_gain_follows_the_calibration():
    assert expected_gain(0.0) == Interval(0, 0, 0)
    for begin, (low, middle, high) in CALIBRATION.items():
        found = expected_gain(begin + 1e-6)
        assert (found.low, found.value, found.high) == pytest.approx((low, middle, high))
    values = [expected_gain(g).value for g in np.linspace(0, 0.4, 30)]
    assert np.all(np.diff(values) >= 0)
    said = decide(gains(rpml=0.15), 16, ("pca", "rpml"), False)
    assert said.gain == expected_gain(said.evidence["rpml"].value)
    assert "is +0.15 (95% interval +0.14 to +0.16)" in str(said)
    assert f"{100 * said.gain.value:+.1f} points of Recall@1" in str(said)


def test_the_calibration_is_what_was_measured(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    calibration = importlib.import_module("calibration")
    points = calibration.all_points()
    assert calibration.table(points) == CALIBRATION
    assert calibration.coverage(points) > 0.8  # of sets that the ranges do not know
    for *_, rank_gain, gain in points:  # no range promises a gain where a single fit lost
        expected = expected_gain(rank_gain)
        assert expected.low - calibration.ROUNDING <= gain <= expected.high + calibration.ROUNDING


# --- the evidence --------------------------------------------------------------------------


def test_rank_gain_is_large_where_nuisance_hides_the_classes():
    X, _ = nuisance()
    W = X - X.mean(axis=0)
    W = (W @ np.linalg.svd(W, full_matrices=False)[2].T).astype(np.float32)
    found = rank_gains(W, ("pca-whitened",), 8, np.random.default_rng(0))
    assert found["pca"] == Interval(0, 0, 0)
    whitened = found["pca-whitened"]
    assert 0.1 < whitened.low < whitened.value < whitened.high


def test_rank_gains_are_surer_with_more_rows():
    widths = []
    for per_class in (6, 24):
        X, _ = nuisance(per_class=per_class)
        W = X - X.mean(axis=0)
        W = (W @ np.linalg.svd(W, full_matrices=False)[2].T).astype(np.float32)
        found = rank_gains(W, ("pca-whitened",), 8, np.random.default_rng(0))["pca-whitened"]
        own = recommend(X, 12, methods=("rpml",)).evidence["rpml"]
        assert own.low < own.value < own.high
        widths.append([(gain.high - gain.low) / gain.value for gain in (found, own)])
    assert np.all(np.array(widths[1]) < 0.8 * np.array(widths[0]))


def test_whitening_is_recommended_against_nuisance_and_not_for_plain_noise():
    X, _ = nuisance()
    found = recommend(X, 12, methods=("pca", "half-whitened", "pca-whitened"))
    assert found.choice == "pca-whitened"
    assert found.gain.low > 0
    assert recommend(X, 12, methods=("pca", "half-whitened", "pca-whitened")) == found
    assert found.estimator(0).fit_transform(X).shape == (len(X), 12)
    noise = np.random.default_rng(0).standard_normal((400, 40)) * np.linspace(3, 0.1, 40)
    for plain in (nuisance(strong=0)[0], noise):
        assert recommend(plain, 12, methods=("pca", "pca-whitened")).choice == "pca"


def test_rpml_is_judged_by_the_evidence_of_its_own_fit():
    X, _ = nuisance()
    found = recommend(X, 12)
    assert set(found.evidence) == {"raw", *CANDIDATES}
    chosen = rpml.RPML(12, random_state=0).fit(X).whitening_
    assert np.isfinite(chosen.shrinkage)
    own = found.evidence["rpml"].value
    assert own == pytest.approx(chosen.evidence[chosen.shrinkage], abs=1e-4)
    plain, _ = nuisance(strong=0)
    assert np.isinf(rpml.RPML(12, random_state=0).fit(plain).whitening_.shrinkage)
    back = recommend(plain, 12)
    assert back.choice == "pca"
    assert back.evidence["rpml"] == Interval(0, 0, 0)
    assert "RPML itself is PCA here." in str(back)
    assert "RPML may do as well" not in str(back)


def test_neighbors_kept_grow_with_the_size():
    X, _ = nuisance(strong=0)
    W = X - X.mean(axis=0)
    W = W @ np.linalg.svd(W, full_matrices=False)[2].T
    kept = neighbors_kept(W, W, 8)
    assert list(kept) == [8, 16, 32]
    assert 0 < kept[8].high < kept[16].low < kept[16].high < kept[32].low < 1
    assert all(share.low <= share.value <= share.high for share in kept.values())
    assert neighbors_kept(W, W, W.shape[1])[W.shape[1]] == Interval(1, 1, 1)
    fewer = neighbors_kept(W[::4], W[::4], 8)[8]
    assert fewer.high - fewer.low > 1.5 * (kept[8].high - kept[8].low)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_with_the_same_seed_has_the_same_evidence(dtype):
    X = nuisance(classes=100, per_class=30)[0].astype(dtype)
    evidence = set()
    for seed in range(3):
        chosen = rpml.RPML(12, random_state=seed).fit(X).whitening_
        own = recommend(X, 12, methods=("rpml",), random_state=seed).evidence["rpml"].value
        assert own == pytest.approx(chosen.evidence[chosen.shrinkage], abs=1e-4)
        evidence.add(round(own, 5))
    assert len(evidence) == 3


def test_of_many_rows_the_evidence_is_that_of_a_fit_to_the_sample(monkeypatch):
    monkeypatch.setattr(recommendation, "ADVISED_ROWS", 700)
    X, _ = nuisance(classes=100)
    sample = sorted_sample(len(X), 700, np.random.default_rng(0))
    chosen = rpml.RPML(12, random_state=4).fit(X[sample]).whitening_
    own = recommend(X, 12, methods=("rpml",), random_state=4).evidence["rpml"]
    assert own.value == pytest.approx(chosen.gain.value, abs=1e-4)


# --- labels --------------------------------------------------------------------------------


def test_labels_decide_where_they_are_given():
    X, y = nuisance()
    found = recommend(X, 12, y=y, methods=("pca", "half-whitened", "pca-whitened"))
    assert found.uses_labels
    recall = {name: share.value for name, share in found.evidence.items()}
    assert found.choice == max(recall, key=lambda n: (n != "raw", recall[n]))
    assert found.gain.value == pytest.approx(recall[found.choice] - recall["pca"])
    assert f"{recall[found.choice]:.1%}" in str(found)
    assert all(share.low <= share.value <= share.high for share in found.evidence.values())
    assert f"{100 * found.neighbors_kept[12].low:.1f} to " in str(found)


def hits_table(**hits):
    """A comparison at 12 dimensions whose methods are right on so many first of 200 queries."""
    cells = [
        {
            "method": name,
            "asked": 12,
            "dim": 12,
            "seed": 0,
            "ranks": np.repeat([0, 8], [right, 200 - right]),
            "recall@1": right / 200,
        }
        for name, right in hits.items()
    ]
    return Comparison(cells, [(METHODS[name], 12) for name in hits])


@pytest.mark.parametrize(
    ("hits", "choice", "said"),
    [
        ({"pca": 150, "random": 151}, "pca", "and no other method is clearly better"),
        ({"pca": 150, "random": 155, "rpml": 154}, "pca", "RPML|random projection may do as well"),
        ({"pca": 150, "rpml": 156}, "rpml", r"a gain of \+3.0 points"),
        ({"pca": 150, "raw": 199, "rpml": 150}, "pca", "the highest of 2 methods"),
        ({"random": 150, "rpml": 151}, "rpml", "the highest of 2 methods"),
    ],
)
def test_pca_is_recommended_unless_another_is_clearly_better(hits, choice, said):
    found = recommend_from(hits_table(**hits))
    assert found.choice == choice
    assert re.search(said, str(found))


def test_a_rank_gain_that_may_be_chance_is_no_reason_against_pca():
    found = {**gains(), "random": Interval(0.01, -0.01, 0.03)}
    chosen = decide(found, 16, ("pca", "random"), False)
    assert (chosen.choice, chosen.certainty) == ("pca", "close")
    assert decide({"random": found["random"]}, 16, ("random",), False).choice == "random"


def test_the_verdict_of_a_table_is_its_best_label_free_row():
    X, y = nuisance()
    table = compare(X, y, 12, methods=("raw", "pca", "pca-whitened", "lda"), seeds=(0,))
    recall = {row["method"]: row["recall@1"] for row in table.rows}
    assert recall["pca"] < recall["pca-whitened"] < min(recall["raw"], recall["lda"])
    assert recommend_from(table).choice == "pca-whitened"
    assert "keep them if you can afford" in str(recommend_from(table))
    assert recommend_from(table, any_size=True).choice == "raw"
    only = compare(X, y, 12, methods=("pca", "lda"), seeds=(0,))
    assert recommend_from(only).choice == "pca"


# --- little data, wrong arguments ----------------------------------------------------------


def test_too_little_data_is_said():
    rng = np.random.default_rng(0)
    found = recommend(rng.standard_normal((20, 8)), 4)
    assert (found.choice, found.certainty) == ("pca", "unknown")
    assert "20 rows" in str(found)
    assert recommend(rng.standard_normal((6, 8)), 7).choice == "raw"


@pytest.mark.parametrize("X", [np.ones((60, 4)), np.arange(1.0, 61.0)[:, None]])
def test_rows_of_one_direction_are_too_little(X):
    assert "0 directions of variation" in str(recommend(X))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="n_components=9"):
        recommend(np.ones((100, 8)) * np.arange(8), 9)
    with pytest.raises(ValueError, match="n_components=0"):
        recommend(np.ones((100, 8)), 0)
    with pytest.raises(ValueError, match="row 0, column 0"):
        recommend(np.full((100, 8), np.nan), 2)
    with pytest.raises(ValueError, match="there is no method 'umap'"):
        recommend(np.ones((100, 8)), 2, methods="umap")
    for y in (np.arange(99) % 5, np.arange(200) % 5):
        with pytest.raises(ValueError, match=f"got {len(y)} labels for 100 rows"):
            recommend(np.random.default_rng(0).standard_normal((100, 8)), 2, y=y)


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**1000])
def test_the_unit_of_the_rows_does_not_matter(scale):
    X = np.random.default_rng(0).standard_normal((200, 16))
    assert recommend(scale * X, 4) == recommend(X, 4)


def test_public_names():
    assert rpml.recommend is recommendation.recommend


def test_the_advice_ends_with_the_line_that_follows_it():
    for choice, step in (
        ("rpml", "rpml.RPML(8).fit(X)"),
        ("pca", "rpml.RPML(8).fit(X)"),
        ("half-whitened", "rpml.recommend(X, 8).estimator().fit(X)"),
        ("raw", "keep the vectors as they are"),
    ):
        advice = Recommendation(choice, 8, "clear", reasons=("Use it.",))
        assert str(advice) == f"Use it. Next: {step}"


def test_an_unknown_method_gets_a_short_list():
    with pytest.raises(ValueError, match="no method 'rpmll', but rpml, ") as error:
        chosen_methods("rpmll")
    assert len(str(error.value)) < 160
    with pytest.raises(ValueError, match="but pca, half-whitened, pca-whitened, rpml and others"):
        chosen_methods("umap")
