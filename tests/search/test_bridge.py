"""Bridges: an old index answers the queries of a new encoder."""

import numpy as np
import pytest

from rpml import RPML
from rpml.search import Index, learn_bridge
from tests.search.test_index import GROUPS


@pytest.fixture(scope="module")
def spaces():
    """The same items by two encoders: the second sees them turned, wider and a little noisy."""
    rng = np.random.default_rng(0)
    old = np.repeat(rng.normal(size=(GROUPS, 12)), 5, axis=0) + 0.5 * rng.normal(size=(600, 12))
    turn = np.linalg.qr(rng.normal(size=(20, 20)))[0][:12]
    return old.astype(np.float32), (3 * old @ turn + 0.05 * rng.normal(size=(600, 20)))


@pytest.mark.parametrize("swap", [False, True])
def test_the_map_keeps_the_neighbors(spaces, swap):
    old, new = spaces[::-1] if swap else spaces
    bridge = learn_bridge(old, new)
    mapped = bridge.model.transform(new)
    assert mapped.shape == old.shape
    np.testing.assert_allclose(np.linalg.norm(mapped, axis=1), 1, atol=1e-5)
    unit = old / np.linalg.norm(old, axis=1, keepdims=True)
    assert (mapped * unit).sum(axis=1).min() > 0.98
    share = bridge.neighbors_kept
    assert 0.8 < share.low < share.value < share.high < 1
    assert f"{share.low:.1%} to {share.high:.1%}" in bridge.model.message_
    assert (bridge.n_pairs, bridge.n_held_out) == (600, 60)


def test_few_pairs_choose_the_orthogonal_map_and_skewed_spaces_the_ridge(spaces):
    old, new = spaces
    assert learn_bridge(old[:24], new[:24] * 7).method == "orthogonal"
    skewed = learn_bridge(old, new @ np.diag(np.geomspace(1, 20, 20)))
    assert skewed.method == "ridge"
    assert skewed.neighbors_kept.low > skewed.encoder_overlap.high + 0.2


def test_the_figure_is_of_pairs_not_learned_from(spaces):
    rng = np.random.default_rng(1)
    noise = learn_bridge(spaces[0], rng.normal(size=(600, 300)))
    assert noise.neighbors_kept.high < 0.1


def test_an_old_index_answers_new_queries(spaces, tmp_path):
    old, new = spaces
    index = Index(RPML(8, n_neighbors=10, random_state=0).fit(old)).add(old)
    model = learn_bridge(old[:500], new[:500]).model
    model.save(tmp_path / "bridge.rpml")
    mapped = RPML.load(tmp_path / "bridge.rpml").transform(new[500:])
    np.testing.assert_allclose(mapped, model.transform(new[500:]), atol=1e-6)
    found, expected = (index.search(queries, k=5).ids for queries in (mapped, old[500:]))
    assert np.mean(found[:, :1] == expected[:, :1]) > 0.85
    assert model.transform(new[:1], output="int8").shape == (1, 12)
    with pytest.raises(ValueError, match="exemplars"):
        model.predict(new[:1])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (np.ones((30, 3)), np.ones((29, 3)), "30 old and 29 new rows"),
        (np.ones((9, 3)), np.ones((9, 3)), "at least 20"),
        (np.ones((30, 3)), np.full((30, 3), np.nan), "NaN"),
        (np.zeros((30, 3)), np.random.default_rng(0).normal(size=(30, 3)), "All old vectors point"),
        (np.random.default_rng(0).normal(size=(30, 3)), np.zeros((30, 3)), "All new vectors point"),
        (np.arange(1.0, 31)[:, None] * [1.0, 2, 3], np.eye(30), "All old vectors point"),
    ],
)
def test_bad_pairs(old, new, message):
    with pytest.raises(ValueError, match=message):
        learn_bridge(old, new)
