"""The recommendation: label-free, reproducible, and right where the answer is known."""

import numpy as np
import pytest

import rpml
from rpml.evaluation import recommendation as verdict
from rpml.evaluation.recommendation import SMALLER, choose_smaller, decide, recommend
from tests.problems import blobs


def rows_in_noise(seed=0, n=400, signal=6, noise=40, scale=1.0):
    """Few directions with classes, many with noise of the same size."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((20, signal))
    y = rng.integers(0, 20, n)
    X = np.hstack(
        [
            centres[y] + 0.2 * rng.standard_normal((n, signal)),
            scale * rng.standard_normal((n, noise)),
        ]
    )
    return X @ np.linalg.qr(rng.standard_normal((signal + noise, signal + noise)))[0], y


def hits(**shares):
    """Row-wise agreements with the given shares, as `decide` takes them."""
    return {name: np.arange(1000) < 1000 * share for name, share in shares.items()}


def test_rpml_is_kept_unless_another_one_is_clearly_better():
    base = {"pca": 0.2, "half-whitened": 0.2, "pca-whitened": 0.2}
    assert choose_smaller(hits(**base, rpml=0.3)) == "rpml"
    assert choose_smaller(hits(**{**base, "pca": 0.305}, rpml=0.3)) == "rpml"  # within 5 %
    assert choose_smaller(hits(**{**base, "pca": 0.4}, rpml=0.3)) == "pca"
    assert choose_smaller(hits(**{**base, "pca-whitened": 0.4}, rpml=0.3)) == "pca-whitened"


def test_a_gain_within_chance_does_not_displace_rpml():
    rng = np.random.default_rng(0)
    found = {name: rng.random(100) < 0.2 for name in SMALLER}
    found["pca"] = found["rpml"] ^ (rng.random(100) < 0.1)  # differs in a few rows
    found["pca"][np.flatnonzero(~found["pca"])[:3]] = True
    gain = found["pca"].mean() - found["rpml"].mean()
    assert abs(gain) < 0.15
    if gain < 2 * np.std(found["pca"] * 1.0 - found["rpml"]) / 10:
        assert choose_smaller(found) == "rpml"


def test_raw_is_recommended_only_when_it_agrees_much_more():
    small = hits(**{"pca": 0.1, "half-whitened": 0.1, "pca-whitened": 0.1, "rpml": 0.2})
    near = decide(small, hits(rpml=0.3, raw=0.33), 32, 1024)
    far = decide(small, hits(rpml=0.3, raw=0.45), 32, 1024)
    assert (near.choice, near.smaller) == ("rpml", "rpml")
    assert (far.choice, far.smaller) == ("raw", "rpml")
    assert "32 times the space" in str(far)
    assert far.raw_ratio == pytest.approx(1.5)


def test_certainty_and_reasons_name_the_runner_up():
    clear = decide(
        hits(**{"pca": 0.1, "half-whitened": 0.3, "pca-whitened": 0.1, "rpml": 0.5}),
        hits(rpml=0.5, raw=0.4),
        8,
        64,
    )
    assert clear.certainty == "clear"
    assert "half-whitened PCA" in clear.reasons[1]
    close = decide(
        hits(**{"pca": 0.1, "half-whitened": 0.3, "pca-whitened": 0.1, "rpml": 0.3}),
        hits(rpml=0.5, raw=0.4),
        8,
        64,
    )
    assert close.certainty == "close"
    assert "close" in close.reasons[-1]


def test_end_to_end_on_clusters():
    X, _ = blobs(classes=10, per_class=15, d=24)
    found = recommend(X, 8, random_state=0)
    assert found.choice in (*SMALLER, "raw")
    assert set(found.agreement) == set(SMALLER)
    for share in found.agreement.values():
        assert 0 <= share.low <= share.share <= share.high <= 1
    assert recommend(X, 8, random_state=0) == found
    Z = found.estimator(0).fit_transform(X)
    assert Z.shape == (len(X), 8 if found.choice != "raw" else 24)


def test_agreement_is_higher_with_structure_than_without():
    clustered, _ = rows_in_noise(scale=0.1)
    noise = np.random.default_rng(0).standard_normal(clustered.shape)
    shares = [recommend(X, 6).agreement["pca"].share for X in (clustered, noise)]
    assert shares[0] > shares[1]


def test_labels_are_never_seen():
    assert "y" not in recommend.__code__.co_varnames


def test_too_little_data_is_said():
    found = recommend(np.random.default_rng(0).standard_normal((20, 8)), 4)
    assert (found.choice, found.certainty) == ("pca", "unknown")
    assert "20 rows" in str(found)
    assert recommend(np.random.default_rng(0).standard_normal((6, 8)), 7).choice == "raw"


def test_wrong_arguments():
    with pytest.raises(ValueError, match="n_components=9"):
        recommend(np.ones((100, 8)) * np.arange(8), 9)
    with pytest.raises(ValueError, match="finite"):
        recommend(np.full((100, 8), np.nan), 2)


def test_public_names():
    assert rpml.recommend is verdict.recommend
