"""What does not matter: removal of directions, neighbors across values, and the verdict."""

import numpy as np
import pytest

from rpml import RPML
from rpml.method.settings import FitInputs
from rpml.method.whitening import choice
from rpml.method.whitening import constants as const
from rpml.method.whitening.choice import scatter_rows
from rpml.method.whitening.evidence import ScatterChoice, neighbor_scatter
from rpml.method.whitening.groups import no_groups
from rpml.method.whitening.nuisance import (
    Nuisance,
    _explained,
    comparable_rows,
    cross_pairs,
    cross_scatter,
    cross_triplets,
    pair_differences,
    removal,
)
from rpml.method.whitening.nuisance_evidence import KnownRows, View, judge, known_rows, shared
from tests.languages import translations


def test_removal_takes_the_means_of_the_values_together():
    X, _, v = translations()
    K, n_removed = removal(X - X.mean(axis=0), (v,))
    moved = (X - X.mean(axis=0)) @ K
    before, after = (
        np.std([rows[v == i].mean(axis=0) for i in range(4)], axis=0).max() for rows in (X, moved)
    )
    assert n_removed == 3
    assert after < 0.1 * before
    assert np.allclose(K, K.T)


def test_removal_leaves_rows_that_random_values_do_not_explain():
    X, _, v = translations()
    K, n_removed = removal(X - X.mean(axis=0), (np.random.default_rng(0).permutation(v),))
    assert n_removed == 0
    assert np.linalg.eigvalsh(K).min() > 0.8


def test_removal_of_a_number():
    rng = np.random.default_rng(0)
    X, number = rng.standard_normal((500, 10)), rng.standard_normal(500)
    X[:, 3] += 4 * number
    number[::50] = np.nan
    K, n_removed = removal(X - X.mean(axis=0), (number,))
    known = np.isfinite(number)
    assert n_removed == 1
    assert abs(np.corrcoef(X[known, 3], number[known])[0, 1]) > 0.9
    assert np.linalg.norm(((X - X.mean(axis=0)) @ K)[:, 3]) < 0.5 * np.linalg.norm(X[:, 3])


def test_rows_without_a_value_take_no_part():
    X, _, v = translations()
    hidden = v.copy()
    hidden[::3] = -1
    known = hidden >= 0
    for column in (hidden, np.where(known, X[:, 0], np.nan)):
        effect, fitted, noise = _explained(X, column)
        alone = _explained(X[known], column[known])
        np.testing.assert_allclose(effect, alone[0])
        np.testing.assert_allclose(fitted[known], alone[1])
        assert not fitted[~known].any()
        assert noise == alone[2]
    for nothing in (np.full(len(X), -1), np.full(len(X), np.nan)):
        assert not _explained(X, nothing)[0].any()
    chosen = comparable_rows(hidden, np.random.default_rng(0))
    assert (hidden[chosen] >= 0).all()


def test_values_of_few_rows_are_not_compared_and_many_values_are_sampled():
    values = np.append(np.repeat(np.arange(1000), 50), np.arange(1000, 1100))
    chosen = comparable_rows(values, np.random.default_rng(0))
    counts = np.bincount(values[chosen])
    assert len(chosen) <= 4000
    assert np.count_nonzero(counts) <= 64
    assert values[chosen].max() < 1000


def test_a_sample_has_enough_rows_of_the_values_that_are_compared():
    values = np.random.default_rng(0).integers(0, 1000, 60_000)
    inputs = FitInputs(no_groups(len(values)), nuisance=Nuisance((values,), values))
    rows = scatter_rows(inputs, np.random.default_rng(0))
    compared = comparable_rows(values[rows], np.random.default_rng(0))
    assert len(rows) < 25_000
    assert len(compared) > 3500  # a third of that if the sample did not look at the values


def test_pairs_across_values_are_mutual_and_mostly_right():
    X, y, v = translations(shift=0.0)
    pairs = cross_pairs(X, v)
    assert (v[pairs[:, 0]] != v[pairs[:, 1]]).all()
    assert np.mean(y[pairs[:, 0]] == y[pairs[:, 1]]) > 0.9
    assert len(np.unique(pairs, axis=0)) == len(pairs)


def test_more_pairs_per_row_are_mutual_and_include_the_nearest():
    X, _, v = translations(shift=0.0, languages=2)
    nearest = {tuple(pair) for pair in np.sort(cross_pairs(X, v), axis=1).tolist()}
    pairs = np.sort(cross_pairs(X, v, 3), axis=1)
    found = {tuple(pair) for pair in pairs.tolist()}
    assert nearest < found
    assert len(found) == len(pairs)
    assert (v[pairs[:, 0]] != v[pairs[:, 1]]).all()
    assert np.bincount(pairs.ravel()).max() <= 3
    few = cross_pairs(X[:3], np.array([0, 1, 1]), 3)  # fewer rows than asked for
    assert sorted(np.sort(few, axis=1).tolist()) == [[0, 1], [0, 2]]


@pytest.mark.parametrize("k", [1, 3])
def test_pairs_are_those_of_a_literal_computation(k):
    X, _, v = translations(shift=0.5)
    X, v = X[:150], v[:150]
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines, n = units @ units.T, len(X)

    def hub(i, value):  # mean similarity of row i to its five nearest of a value
        return np.sort(cosines[i, v == value])[-5:].mean()

    def nearest(i, value):
        rows = np.flatnonzero(v == value)
        scores = [2 * cosines[i, j] - hub(i, value) - hub(j, v[i]) for j in rows]
        return set(rows[np.argsort(scores)[::-1][:k]].tolist())

    lists = {(i, value): nearest(i, value) for i in range(n) for value in np.unique(v)}
    expected = {
        (i, j)
        for i in range(n)
        for j in range(i)
        if v[i] != v[j] and j in lists[i, v[j]] and i in lists[j, v[i]]
    }
    pairs = np.sort(cross_pairs(X, v, k), axis=1)[:, ::-1]
    assert {(int(i), int(j)) for i, j in pairs} == expected


def test_the_scatter_of_pairs_is_half_their_mean_squared_difference():
    rng = np.random.default_rng(0)
    Y, pairs = rng.standard_normal((50, 6)), rng.permutation(50)[:40].reshape(20, 2)
    rest = Y[pairs[:, 0]] - Y[pairs[:, 1]]
    np.testing.assert_allclose(pair_differences(Y, pairs), rest.T @ rest / 40, atol=1e-12)


def test_triplets_have_a_positive_of_another_value_and_a_near_negative_of_their_own():
    X, y, v = translations(shift=0.0)
    triplets = cross_triplets(X, v, 1000, np.random.default_rng(0))
    anchor, positive, negative = triplets.T
    assert len(triplets) == 1000
    assert (v[anchor] != v[positive]).all()
    assert (v[anchor] == v[negative]).all()
    assert (anchor != negative).all()
    assert np.mean(y[anchor] == y[positive]) > 0.9
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    own = (units[anchor] * units[negative]).sum(axis=1) + 1e-9
    nearer = (units @ units[anchor].T > own) & (v[:, None] == v[anchor])
    nearer[anchor, np.arange(1000)] = False
    assert nearer.sum(axis=0).max() == 29  # one of the 30 nearest
    assert nearer.sum(axis=0).min() == 0


def test_no_triplet_has_an_anchor_that_is_alone_with_its_value():
    X, _, v = translations(shift=0.0, languages=2)
    alone = np.append(v[:60], 2)  # the last row has a value of its own
    triplets = cross_triplets(X[:61], alone, 100, np.random.default_rng(0))
    assert len(triplets)
    assert (alone[triplets[:, 0]] < 2).all()


def test_scatter_across_values_is_large_where_the_noise_is():
    X, _, v = translations(shift=0.0)
    X = X - X.mean(axis=0)
    made = cross_scatter(X, v, np.cov(X.T), np.eye(X.shape[1]), 16)
    diagonal = np.diag(made.scatter)
    assert diagonal[:6].mean() > 2 * diagonal[6:].mean()
    whitened, smoothed = made.map(0.2, 16), 0.8 * made.scatter
    smoothed = smoothed + 0.2 * np.trace(made.scatter) / len(smoothed) * np.eye(len(smoothed))
    assert np.allclose(whitened.T @ smoothed @ whitened, 0.8 * np.eye(len(smoothed)), atol=1e-4)


def test_without_any_pair_the_scatter_is_a_sphere():
    X = np.ones((20, 4))
    made = cross_scatter(X[:1], np.array([0]), np.eye(4), np.eye(4), 2)
    assert np.allclose(made.scatter, np.eye(4))


def test_queries_are_one_more_value():
    known = Nuisance((np.array([0, 1, -1]), np.array([0.5, -0.5, np.nan])), np.array([0, 1, -1]))
    both = known.with_queries(2)
    assert both.values.tolist() == [0, 1, -1, 2, 2]
    assert both.columns[0].tolist() == [0, 1, -1, -1, -1]
    assert np.isnan(both.columns[1][3:]).all()
    assert both.columns[2].tolist() == [0, 0, 0, 1, 1]
    only = Nuisance((), np.zeros(2, np.intp))
    assert only.with_queries(1).values.tolist() == [0, 0, 1]


@pytest.mark.parametrize(("shift", "low", "high"), [(3.0, 0.9, 1.0), (0.0, 0.0, 0.3)])
def test_how_often_neighbors_share_the_value(shift, low, high):
    X, _, v = translations(shift=shift)
    found, chance = shared(X - X.mean(axis=0), v, np.ones(len(v), bool), np.random.default_rng(0))
    assert low <= found <= high
    assert chance == pytest.approx(119 / 479)


def verdict(gain, n_pairs, queries=False, noise=0.02):
    """What `judge` says if all maps rank 400 held-out pairs so much higher: share and reason."""
    rng = np.random.default_rng(0)
    asks = np.arange(500) < (200 if queries else 500)
    rows = KnownRows(
        Y=np.empty((500, 4)),
        nuisance=Nuisance((), np.zeros(500, np.intp)),
        asks=asks,
        spread=np.eye(4),
        prior=np.eye(4),
        choice=ScatterChoice("none", np.inf, {}, ""),
        n_components=2,
    )
    without = rng.normal(-2, 1, 400)
    maps = np.repeat(
        (without - gain + rng.normal(0, noise, 400))[:, None], len(rows.shares), axis=1
    )
    ranks = np.column_stack([without, without, maps])
    asked = np.column_stack([rng.integers(0, 300, 400)] * 2)
    share, _, reason = judge(rows, [View(rows.Y, asked[:, 0], None, 2, asked, ranks)], n_pairs)
    return share, reason


def test_a_map_of_few_pairs_needs_clear_evidence_and_one_of_many_may_fall_short_of_it():
    few, many = const.CROSS_MANY - 1, const.CROSS_MANY
    who = "held-out rows rank their counterparts of other values"
    higher, lower = f"{who} 2% higher than without it", f"{who} 1% lower than without it"
    smallest = const.CROSS_SHARES[0]
    assert verdict(0.02, few) == (smallest, higher)
    assert verdict(-0.01, few) == (None, f"{lower}, and 0% would be needed to be sure")
    assert verdict(-0.01, many) == (smallest, f"{lower}, by a map that only half of the rows made")
    assert verdict(-0.01, few, queries=True)[0] is not None
    assert verdict(-0.1, many)[0] is None
    assert verdict(0.1, few, noise=2.0)[0] is None


def test_rows_of_one_direction_cannot_judge_a_nuisance():
    X = np.random.default_rng(0).standard_normal((60, 1))
    model = RPML(1, random_state=0).fit(X, nuisance=X[:, 0] > 0)
    assert model.whitening_.nuisance.reason == "the rows vary in one direction only"


@pytest.mark.parametrize(
    ("n", "reason"),
    [
        (const.CROSS_VALUE_ROWS - 1, "fewer than two of its values have enough rows"),
        (const.CROSS_VALUE_ROWS, "too few rows of different values are each other's nearest"),
    ],
)
def test_a_value_of_few_rows_is_no_evidence(n, reason):
    X = np.random.default_rng(0).standard_normal((200, 16))
    X[:n] += 5
    nuisance = np.arange(200) < n
    assert RPML(4, random_state=0).fit(X, nuisance=nuisance).whitening_.nuisance.reason == reason


def test_where_no_row_asks_nothing_is_shared():
    values, none = np.repeat([0, 1], 10), np.zeros(20, bool)
    Y = np.random.default_rng(0).standard_normal((20, 4))
    assert shared(Y, values, none, np.random.default_rng(0)) == (0.0, 0.0)


@pytest.mark.parametrize("n", [50, 51])
def test_of_many_queries_a_sample_is_looked_at(n, monkeypatch):
    seen = []

    def listen(data, usual, nuisance, queries):
        seen.append(np.unique(queries, axis=0))
        return known_rows(data, usual, nuisance, queries)

    monkeypatch.setattr(const, "MAX_CROSS_ROWS", 100)
    monkeypatch.setattr(choice, "known_rows", listen)
    X = np.random.default_rng(0).standard_normal((200 + n, 16))
    RPML(4, random_state=0).fit(X[:200], queries=X[200:])
    assert [len(queries) for queries in seen] == [50]


@pytest.mark.parametrize(
    ("known", "n_prior"),
    [
        ((), 0),
        (("nuisance",), const.CROSS_PRIOR_ROWS),
        (("queries",), const.PRIOR_ROWS),
        (("queries", "nuisance"), const.PRIOR_ROWS),
        (("pairs",), const.PRIOR_ROWS),
        (("y",), const.PRIOR_ROWS),
    ],
)
def test_how_many_rows_make_a_scatter_that_only_knowledge_may_use(known, n_prior, monkeypatch):
    asked = []

    def listen(data, rng, prior_rows):
        asked.append(prior_rows)
        return neighbor_scatter(data, rng, prior_rows)

    monkeypatch.setattr(choice, "neighbor_scatter", listen)
    X = np.random.default_rng(0).standard_normal((120, 10))
    every = {"nuisance": np.arange(120) % 2, "queries": X[:9], "pairs": [[0, 1]], "y": [0, 0] * 60}
    given = {name: every[name] for name in known}
    RPML(4, use_labels="y" in known, random_state=0).fit(X, **given)
    assert asked == [n_prior]
