"""Triplets: what must always hold, against loops that enumerate every possibility."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.triplets.sampling import (
    SAMPLERS,
    batch_sampler,
    hard,
    mine_batch_triplets,
    sample_triplets,
    semi_hard,
)

label_lists = st.lists(st.integers(-1, 4), min_size=1, max_size=30).map(np.array)


def rng(seed=0):
    return np.random.default_rng(seed)


def check(triplets, labels, groups=None):
    a, p, n = triplets.T
    assert (a != p).all()
    assert (labels[a] == labels[p]).all()
    assert (labels[a] != labels[n]).all()
    assert (labels[triplets] >= 0).all()
    if groups is not None:
        assert not ((groups[a] >= 0) & (groups[a] == groups[n])).any()


def possible(labels):
    """Anchors with another row of their label and a row of another one."""
    return [
        i
        for i, label in enumerate(labels)
        if label >= 0
        and sum(other == label for other in labels) >= 2
        and any(other >= 0 and other != label for other in labels)
    ]


@settings(max_examples=60, deadline=None)
@given(label_lists, st.integers(1, 5), st.integers(0, 99))
def test_uniform_triplets_are_lawful_and_complete(labels, per_anchor, seed):
    triplets = sample_triplets(labels, rng(seed), per_anchor=per_anchor)
    check(triplets, labels)
    np.testing.assert_array_equal(triplets[:, 0], np.repeat(possible(labels), per_anchor))
    np.testing.assert_array_equal(
        triplets, sample_triplets(labels, rng(seed), per_anchor=per_anchor)
    )


@settings(max_examples=40, deadline=None)
@given(label_lists, st.integers(0, 70), st.integers(0, 99))
def test_a_limit_only_lowers_and_uses_anchors_equally(labels, limit, seed):
    triplets = sample_triplets(labels, rng(seed), per_anchor=2, limit=limit)
    anchors = possible(labels)
    check(triplets, labels)
    assert len(triplets) == min(limit, 2 * len(anchors))
    if anchors:
        counts = np.bincount(triplets[:, 0], minlength=len(labels))[anchors]
        assert counts.max() - counts.min() <= 1


def test_uniform_means_uniform():
    labels = np.array([0, 0, 0, 0, 1, 1, 2, -1])
    triplets = sample_triplets(labels, rng(), per_anchor=30_000)
    mine = triplets[triplets[:, 0] == 1]
    positives = np.bincount(mine[:, 1], minlength=8) / len(mine)
    negatives = np.bincount(mine[:, 2], minlength=8) / len(mine)
    np.testing.assert_allclose(positives, [1 / 3, 0, 1 / 3, 1 / 3, 0, 0, 0, 0], atol=0.02)
    np.testing.assert_allclose(negatives, [0, 0, 0, 0, 1 / 3, 1 / 3, 1 / 3, 0], atol=0.02)


def clustered(seed=0, n=120, classes=6):
    generator = rng(seed)
    labels = generator.integers(-1, classes, n)
    X = generator.standard_normal((classes + 1, 4))[labels] + generator.standard_normal((n, 4))
    return X, labels, nearest_neighbors(X, 20, metric="euclidean")


def test_hard_negatives_are_the_nearest_of_another_label():
    X, labels, near = clustered()
    sampler = partial(hard, neighbors=near, X=X)
    triplets = sample_triplets(labels, rng(), per_anchor=3, sampler=sampler)
    check(triplets, labels)
    checked = 0
    for i in possible(labels):
        mine = triplets[triplets[:, 0] == i]
        allowed = [j for j in near.indices[i] if labels[j] not in (-1, labels[i])]
        if allowed:
            expected = [allowed[t % len(allowed)] for t in range(3)]
            assert mine[:, 2].tolist() == expected
            checked += 1
    assert checked > 20


@pytest.mark.parametrize("margin", [0.05, 0.5])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_semi_hard_negatives_lie_behind_the_positive(margin, metric):
    X, labels, _ = clustered()
    near = nearest_neighbors(X, 20, metric=metric)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True) if metric == "cosine" else X
    sampler = partial(semi_hard, neighbors=near, X=X, margin=margin)
    triplets = sample_triplets(labels, rng(), per_anchor=6, sampler=sampler)
    check(triplets, labels)
    drawn = 0
    for a, p, n in triplets:
        to_p, to_n = (np.linalg.norm(unit[a] - unit[j]) for j in (p, n))
        band = [
            j
            for j in near.indices[a]
            if labels[j] not in (-1, labels[a])
            and to_p < np.linalg.norm(unit[a] - unit[j]) < to_p + margin
        ]
        if band:
            assert n in band
            assert to_p < to_n < to_p + margin
            drawn += 1
    assert drawn > 20


def test_chunks_do_not_show(monkeypatch):
    X, labels, near = clustered()
    for sampler in (partial(choose, neighbors=near, X=X) for choose in (hard, semi_hard)):
        whole = sample_triplets(labels, rng(), per_anchor=5, sampler=sampler)
        monkeypatch.setattr("rpml.method.triplets.sampling._CHUNK", 7)
        np.testing.assert_array_equal(
            whole, sample_triplets(labels, rng(), per_anchor=5, sampler=sampler)
        )
        monkeypatch.undo()


@pytest.mark.parametrize("sampler", ["uniform", "semi-hard", "hard"])
def test_rows_of_one_group_are_never_negatives_of_each_other(sampler):
    X, labels, near = clustered()
    groups = rng(3).integers(-1, 10, len(labels))
    choose = SAMPLERS[sampler]
    if sampler != "uniform":
        choose = partial(choose, neighbors=near, X=X)
    triplets = sample_triplets(labels, rng(), sampler=choose, groups=groups, per_anchor=8)
    check(triplets, labels, groups)
    assert len(triplets) == 8 * len(possible(labels))


def test_anchors_whose_every_negative_shares_their_group_are_left_out():
    labels, groups = np.array([0, 0, 1]), np.array([5, -1, 5])
    triplets = sample_triplets(labels, rng(), groups=groups, per_anchor=2)
    assert triplets[:, 0].tolist() == [1, 1]


@pytest.mark.parametrize("labels", [[0] * 9, list(range(9)), [-1] * 9, [-1, 0, 0, -1], []])
@pytest.mark.parametrize("options", [{}, {"limit": 10}])
def test_nothing_to_learn_from_is_an_empty_array(labels, options):
    triplets = sample_triplets(np.array(labels, dtype=int), rng(), **options)
    assert triplets.shape == (0, 3)
    assert triplets.dtype.kind == "i"


def literal_mining(Z, labels, margin, mining):
    """Every (anchor, positive, negative) of the batch, one after the other."""
    out = []
    b = len(labels)
    distance = [[float(np.sqrt(((Z[i] - Z[j]) ** 2).sum())) for j in range(b)] for i in range(b)]
    for a in range(b):
        others = [n for n in range(b) if labels[n] >= 0 and labels[n] != labels[a]]
        for p in range(b):
            if labels[a] < 0 or p == a or labels[p] != labels[a]:
                continue
            if mining == "hard":
                out += [(a, p, min(others, key=lambda n: distance[a][n]))] if others else []
                continue
            for n in others:
                gap = distance[a][n] - distance[a][p]
                if mining == "all" or 0 < gap < margin:
                    out.append((a, p, n))
    return out


@settings(max_examples=30, deadline=None)
@given(label_lists, st.sampled_from(["semi-hard", "hard", "all"]), st.integers(0, 99))
def test_mining_is_the_triple_loop(labels, mining, seed):
    Z = rng(seed).standard_normal((len(labels), 3))
    mined = mine_batch_triplets(Z, labels, rng(), margin=0.5, mining=mining)
    assert sorted(map(tuple, mined.tolist())) == sorted(literal_mining(Z, labels, 0.5, mining))


def test_mining_keeps_a_random_part_under_the_limit():
    labels = np.repeat(np.arange(8), 5)
    Z = rng(1).standard_normal((40, 4)).astype(np.float32)
    everything = {tuple(t) for t in mine_batch_triplets(Z, labels, rng(), mining="all").tolist()}
    some = mine_batch_triplets(Z, labels, rng(), mining="all", limit=100)
    assert len(some) == len({tuple(t) for t in some.tolist()} & everything) == 100
    again = mine_batch_triplets(Z, labels, rng(), mining="all", limit=100)
    other = mine_batch_triplets(Z, labels, rng(5), mining="all", limit=100)
    np.testing.assert_array_equal(some, again)
    assert not np.array_equal(some, other)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-1, 12), max_size=200).map(lambda x: np.array(x, dtype=int)),
    st.integers(2, 40),
    st.integers(2, 6),
    st.integers(0, 99),
)
def test_an_epoch_shows_every_useful_row_once(labels, batch_size, per_class, seed):
    batches = list(batch_sampler(labels, rng(seed), batch_size, per_class))
    shown = np.concatenate(batches) if batches else np.empty(0, int)
    useful = [i for i, x in enumerate(labels) if x >= 0 and (labels == x).sum() >= 2]
    assert sorted(shown.tolist()) == useful
    for batch in batches:
        assert np.unique(labels[batch], return_counts=True)[1].min() >= 2
        assert len(batch) <= batch_size + per_class


def test_an_epoch_is_about_n_over_batch_size_and_shuffled():
    labels = np.repeat(np.arange(300), 8)
    batches = list(batch_sampler(labels, rng(), 120, 4))
    assert len(batches) == 20
    assert all(len(batch) == 120 for batch in batches)
    assert all(len(np.unique(labels[batch])) > 10 for batch in batches)
    same, other = (np.concatenate(list(batch_sampler(labels, rng(s), 120, 4))) for s in (0, 1))
    np.testing.assert_array_equal(np.concatenate(batches), same)
    assert not np.array_equal(same, other)
