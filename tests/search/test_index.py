"""The index: the same rows as a scan of the codes; its file."""

import warnings

import numpy as np
import pandas as pd
import pytest

from rpml import RPML
from rpml.io.container import read_container, write_container
from rpml.runtime.errors import InputError, ModelFormatError
from rpml.search import Index, scan
from rpml.search import index as module

GROUPS = 120


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(GROUPS, 24))
    spread = 0.25 * rng.normal(size=(5 * GROUPS, 24))
    return (np.repeat(centers, 5, axis=0) + spread).astype(np.float32)


@pytest.fixture(scope="module")
def model(rows):
    model = RPML(16, n_neighbors=10, training="always", random_state=0).fit(rows)
    return model.learn_codebooks(rows, 4)


@pytest.fixture(scope="module")
def index(model, rows):
    return Index(model, output="int8").add(rows)


def test_small_data_is_ranked_exactly(index, model, rows):
    found = index.search(rows[:50], k=7)
    decoded = model.codec("int8").decode(model.transform(rows, output="int8"))
    scores = model.transform(rows[:50]) @ decoded.T
    np.testing.assert_array_equal(found.ids, np.argsort(-scores, axis=1, kind="stable")[:, :7])
    np.testing.assert_allclose(found.scores, np.sort(scores, axis=1)[:, :-8:-1], atol=1e-6)
    assert found.scores.max() <= 1


def test_no_number_of_rows_makes_the_ranking_coarser(model):
    """Codes rank all rows; the first stage once was sign bits above 10,000 rows."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(10_500, 24)).astype(np.float32)
    found = Index(model, n_components=8).add(rows).search(rows[:50], k=10)
    Z = model.transform(rows, n_components=8)
    expected = np.argsort(-Z[:50] @ Z.T, axis=1)[:, :10]
    assert (
        np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.ids, expected, strict=True)])
        > 0.95
    )


@pytest.mark.parametrize("output", ["int4", "int2", "binary", "pq"])
def test_the_scan_ranks_as_the_decoded_rows_do(model, rows, output):
    index = Index(model, output=output).add(rows)
    found = index.search(rows[:30], k=9)
    codec = model.codec(output)
    scores = model.transform(rows[:30]) @ codec.decode(model.transform(rows, output=output)).T
    np.testing.assert_allclose(found.scores, np.sort(scores, axis=1)[:, :-10:-1], atol=1e-5)
    assert index.bytes_per_row == codec.width


@pytest.mark.parametrize("output", ["int8", "int2"])
def test_blocks_of_queries_and_rows_give_the_same_hits(model, rows, monkeypatch, output):
    index = Index(model, output=output).add(rows)
    whole = index.search(rows[:20], k=7)
    for name in (module, scan):
        monkeypatch.setattr(name, "MIN_CHUNK", 64)
    monkeypatch.setattr(module, "BLOCK_BYTES", 4 * 64)  # one query per block
    blocks = index.search(rows[:20], k=7)
    np.testing.assert_array_equal(whole.ids, blocks.ids)
    np.testing.assert_allclose(whole.scores, blocks.scores, atol=1e-6)


def test_rescoring_ranks_by_the_finer_code(model, rows):
    coarse, fine = (Index(model, output=output).add(rows) for output in ("binary", "int8"))
    both = Index(model, output="binary", rescore="int8").add(rows)
    assert both.bytes_per_row == coarse.bytes_per_row + fine.bytes_per_row
    assert coarse.recall < both.recall <= 1
    every = both.search(rows[:20], k=5, oversample=len(rows))
    np.testing.assert_array_equal(every.ids, fine.search(rows[:20], k=5).ids)


def test_a_filter_limits_what_is_returned(model, rows):
    index = Index(model, output="int2", rescore="int8").add(rows)
    where = np.arange(len(rows)) % 3 == 0
    found = index.search(rows[:20], k=5, where=where)
    assert where[found.ids].all()
    only = Index(model, output="int2", rescore="int8").add(rows[where])
    np.testing.assert_array_equal(found.ids, 3 * only.search(rows[:20], k=5).ids)
    few = np.zeros(len(rows), bool)
    few[[4, 9]] = True
    assert sorted(index.search(rows[0], k=5, where=few).ids[0].tolist()) == [4, 9]
    none = index.search(rows[:3], k=5, where=np.zeros(len(rows), bool))
    assert none.scores.shape == none.ids.shape == (3, 0)
    with pytest.raises(ValueError, match="where must hold True or False"):
        index.search(rows[:1], where=few[:5])


def test_rows_are_removed_by_id(model, rows, tmp_path):
    ids = [f"row {i}" for i in range(len(rows))]
    index = Index(model, output="int2", rescore="int8").add(rows, ids).remove(["row 0", "row 7"])
    assert len(index) == len(rows) - 2
    assert not {"row 0", "row 7"} & set(index.search(rows[:10], k=20).ids.ravel())
    index.add(rows[:1], ["row 0"])
    assert index.search(rows[0], k=1).ids.tolist() == [["row 0"]]
    assert index.recall is None
    index.save(tmp_path / "a.index")
    assert len(Index.load(tmp_path / "a.index")) == len(rows) - 1
    with pytest.raises(InputError, match="no row with the id 'row 7'"):
        index.remove("row 7")
    assert len(Index(model).add(rows[:5]).remove([0, 3])) == 3
    assert len(Index(model).add(rows[:5]).remove(np.array([[0], [3]]))) == 3


def test_recall_is_measured_in_batches_and_stored(model, rows, tmp_path):
    whole = Index(model, output="binary").add(rows)
    parts = Index(model, output="binary").add(rows[:150]).add(rows[150:])
    Z = model.transform(rows)
    scores = Z @ Z.T
    np.fill_diagonal(scores, -2)
    exact = np.argsort(-scores, axis=1)[:, :10]
    decoded = model.codec("binary").decode(model.transform(rows, output="binary"))
    by_code = Z @ decoded.T
    np.fill_diagonal(by_code, -2)
    found = np.argsort(-by_code, axis=1, kind="stable")[:, :10]
    expected = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact, found, strict=True)])
    assert whole.recall == pytest.approx(expected, abs=0.05)  # of 100 of the 600 rows
    assert parts.recall == pytest.approx(expected, abs=0.05)
    whole.save(tmp_path / "a.index")
    assert Index.load(tmp_path / "a.index").recall == whole.recall
    assert Index(model, output="int8").add(rows).recall > 0.95


def test_low_recall_warns_once(model, rows):
    index = Index(model, output="binary").add(rows)
    with pytest.warns(UserWarning, match="by the float embedding: one with rescore"):
        index.search(rows[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        index.search(rows[:1])
        Index(model, output="int8").add(rows).search(rows[:1])


def test_adding_copies_no_stored_row(model, rows):
    """Rows in many batches cost linear time: a batch leaves the stored codes where they are."""
    index = Index(model).add(rows[:100], range(100))
    index.search(rows[:1])  # joins what is there
    codes, ids = index._parts[0], index.ids
    index.add(rows[100:200], range(100, 200))
    assert index._parts[0] is codes
    assert index._named[0] is ids
    assert len(index) == 200


def test_rows_arrive_in_parts_and_keep_their_ids(model, rows):
    ids = [f"row {i}" for i in range(len(rows))]
    whole = Index(model).add(rows, ids)
    parts = Index(model).add(rows[:200], ids[:200]).add(rows[200:], ids[200:])
    np.testing.assert_array_equal(whole.search(rows[:9]).ids, parts.search(rows[:9]).ids)
    assert whole.search(rows[3:4], k=1).ids.tolist() == [["row 3"]]
    with pytest.raises(ValueError, match="must be unique"):
        parts.add(rows[:1], ["row 7"])
    with pytest.raises(ValueError, match=r"2 ids for 1 row\."):
        parts.add(rows[:1], ["a", "b"])
    with pytest.raises(ValueError, match="or none"):
        parts.add(rows[:1])


@pytest.mark.parametrize(
    ("name", "why"), [("b\0c", "zero byte"), ("\udcff.jpg", "the index: an id with '.udcff'")]
)
def test_an_id_that_cannot_be_stored_is_refused(model, rows, tmp_path, name, why):
    index = Index(model)
    index.add(rows[:2], ids=["a", name])
    with pytest.raises(InputError, match=why):
        index.save(tmp_path / "x.index")
    assert not (tmp_path / "x.index").exists()


def test_an_emptied_index_takes_rows_with_or_without_ids(model, rows, tmp_path):
    index = Index(model).add(rows[:3], ["owl", "jay", "tit"]).remove(["owl", "jay", "tit"])
    index.save(tmp_path / "empty.index")
    for empty in (index, Index.load(tmp_path / "empty.index")):
        found = empty.add(rows[:5]).search(rows[:2], 1)
        assert empty.ids.tolist() == [0, 1, 2, 3, 4]
        assert found.ids.tolist() == [[0], [1]]


@pytest.mark.parametrize("ids", [[2**63 + 7, 5], [0.5, 1.5], [True, False], [2**70, 1]], ids=str)
def test_ids_are_the_same_in_memory_and_in_the_file(model, rows, tmp_path, ids):
    """Integers or text: what a file cannot hold becomes text when it is added."""
    index = Index(model).add(rows[:2], ids)
    index.save(tmp_path / "x.index")
    assert Index.load(tmp_path / "x.index").ids.tolist() == index.ids.tolist()
    whole = all(type(name) is int and name < 2**64 for name in ids)
    assert index.ids.tolist() == (ids if whole else list(map(str, ids)))


def test_ids_of_several_kinds_and_missing_ones_are_refused(model, rows):
    index = Index(model).add(rows[:2], ["owl", "jay"])
    with pytest.raises(ValueError, match="either all integers or all text"):
        index.add(rows[2:4], [1, 2])
    for missing in (None, np.nan, pd.NA):
        with pytest.raises(ValueError, match="An id is missing"):
            index.add(rows[2:4], ["tit", missing])
    assert len(index) == len(index.ids) == 2


@pytest.mark.parametrize("ids", [None, "text", "numbers"])
def test_the_file_finds_the_same(model, rows, tmp_path, ids):
    given = {None: None, "text": [f"é {i}" for i in range(600)], "numbers": np.arange(600) * 7}[ids]
    index = Index(model, n_components=10, output="int4", rescore="int8").add(rows, given)
    index.save(tmp_path / "a.index")
    loaded = Index.load(tmp_path / "a.index")
    one, two = index.search(rows[:20]), loaded.search(rows[:20])
    np.testing.assert_array_equal(one.ids, two.ids)
    np.testing.assert_allclose(one.scores, two.scores, atol=1e-6)
    assert loaded.bytes_per_row == 15
    expected = index.similarity_quantile(0.5)
    assert loaded.similarity_quantile(0.5) == pytest.approx(expected, abs=1e-6)
    (tmp_path / "b.index").write_text("an older index")
    loaded.save(tmp_path / "b.index")
    assert (tmp_path / "a.index").read_bytes() == (tmp_path / "b.index").read_bytes()


@pytest.mark.parametrize("size", [None, 3])
def test_the_scale_is_the_share_of_less_similar_pairs(model, rows, tmp_path, size):
    index = Index(model, n_components=size).add(rows)
    index.save(tmp_path / "a.index")
    Z = model.transform(rows, n_components=size)
    similarities = (Z @ Z.T)[np.triu_indices(len(Z), 1)]
    for s in np.quantile(similarities, [0.1, 0.5, 0.9, 0.99]):
        found = Index.load(tmp_path / "a.index").similarity_quantile(s)
        assert found == pytest.approx(np.mean(similarities < s), abs=0.01)
    with pytest.raises(ValueError, match="2 rows or more"):
        Index(model, n_components=3).add(rows[:1]).similarity_quantile(0.5)


def test_no_training_row_is_in_the_file(index, tmp_path):
    index.save(tmp_path / "a.index")
    arrays, _ = read_container(tmp_path / "a.index", "index", 3)
    named = ("exemplar", "label", "triplet")
    assert not [name for name in arrays if any(part in name for part in named)]


def test_forgeries_and_other_files_are_refused(index, model, tmp_path):
    index.save(tmp_path / "a.index")
    arrays, fields = read_container(tmp_path / "a.index", "index", 3)
    forgeries = [
        ({"codes": arrays["codes"][:, :3]}, fields["metadata"]),
        ({"codes": arrays["codes"].astype(np.int16)}, fields["metadata"]),
        ({"ids": np.arange(3)}, fields["metadata"]),
        ({}, {}),
        ({}, {"model": 3}),
        ({}, fields["metadata"] | {"output": "int2"}),
        ({}, fields["metadata"] | {"output": "what"}),
        ({}, fields["metadata"] | {"rescore": "int8"}),
    ]
    for changed, metadata in forgeries:
        write_container(tmp_path / "f.index", arrays | changed, metadata, "index", 3)
        with pytest.raises(ModelFormatError, match="damaged"):
            Index.load(tmp_path / "f.index")
    model.save(tmp_path / "m.rpml")
    with pytest.raises(ModelFormatError, match="is a model, not an index"):
        Index.load(tmp_path / "m.rpml")


def test_a_single_vector_is_one_query(index, rows):
    for one, row in zip(index.search(rows[3]), index.search(rows[3:4]), strict=True):
        np.testing.assert_array_equal(one, row)


def test_bad_requests(index, model, rows):
    for wrong in ({"k": 0}, {"k": 2.5}, {"k": "3"}, {"oversample": 0.5}):
        with pytest.raises(ValueError, match="must be integers of at least 1"):
            index.search(rows[:1], **wrong)
    with pytest.raises(ValueError, match="output='float': the codes are int8"):
        Index(model, output="float")
    with pytest.raises(ValueError, match="empty"):
        Index(model).search(rows[:1])
    with pytest.raises(ValueError, match="features"):
        index.search(rows[:1, :5])
    assert index.search(rows[:2], k=10_000).ids.shape == (2, len(rows))
