"""The index: the same rows as a scan of the codes; its file."""

import numpy as np
import pytest

from rpml import RPML
from rpml.io.container import read_container, write_container
from rpml.runtime.errors import InputError, ModelFormatError
from rpml.search import Index
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
    return RPML(16, n_neighbors=10, training="always", random_state=0).fit(rows)


@pytest.fixture(scope="module")
def index(model, rows):
    return Index(model).add(rows)


def test_small_data_is_ranked_exactly(index, model, rows):
    found = index.search(rows[:50], k=7)
    decoded = model.codec("int8").decode(model.transform(rows, output="int8"))
    scores = model.transform(rows[:50]) @ decoded.T
    np.testing.assert_array_equal(found.ids, np.argsort(-scores, axis=1, kind="stable")[:, :7])
    assert scores.max() > 1 + 1e-4  # decoded rows are not quite of unit length
    expected = np.minimum(np.sort(scores, axis=1)[:, :-8:-1], 1)
    np.testing.assert_allclose(found.scores, expected, atol=1e-6)
    assert found.scores.max() == 1


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


def test_blocks_of_rows_give_the_same_hits(index, rows, monkeypatch):
    whole = index.search(rows[:20], k=7)
    monkeypatch.setattr(module, "BLOCK_BYTES", 4 * 256 * 50)  # 50 rows per block
    for one, two in zip(whole, index.search(rows[:20], k=7), strict=True):
        np.testing.assert_array_equal(one, two)


def test_adding_copies_no_stored_row(model, rows):
    """Rows in many batches cost linear time: a batch leaves the stored codes where they are."""
    index = Index(model).add(rows[:100], range(100))
    codes, ids = index._codes, index.ids
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


def test_an_id_with_a_zero_byte_is_refused(model, rows, tmp_path):
    index = Index(model)
    index.add(rows[:2], ids=["a", "b\0c"])
    with pytest.raises(InputError, match="zero byte"):
        index.save(tmp_path / "x.index")
    assert not (tmp_path / "x.index").exists()


@pytest.mark.parametrize("ids", [None, "text", "numbers"])
def test_the_file_finds_the_same(model, rows, tmp_path, ids):
    given = {None: None, "text": [f"é {i}" for i in range(600)], "numbers": np.arange(600) * 7}[ids]
    index = Index(model, n_components=10).add(rows, given)
    index.save(tmp_path / "a.index")
    loaded = Index.load(tmp_path / "a.index")
    for one, two in zip(index.search(rows[:20]), loaded.search(rows[:20]), strict=True):
        np.testing.assert_array_equal(one, two)
    assert loaded.bytes_per_row == 10
    assert loaded.similarity_quantile(0.5) == index.similarity_quantile(0.5)
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
    arrays, _ = read_container(tmp_path / "a.index", "index", 1)
    named = ("exemplar", "label", "triplet")
    assert not [name for name in arrays if any(part in name for part in named)]


def test_forgeries_and_other_files_are_refused(index, model, tmp_path):
    index.save(tmp_path / "a.index")
    arrays, fields = read_container(tmp_path / "a.index", "index", 1)
    forgeries = [
        ({"codes": arrays["codes"][:, :3]}, fields["metadata"]),
        ({"codes": arrays["codes"].astype(np.int16)}, fields["metadata"]),
        ({"ids": np.arange(3)}, fields["metadata"]),
        ({}, {}),
        ({}, {"model": 3}),
    ]
    for changed, metadata in forgeries:
        write_container(tmp_path / "f.index", arrays | changed, metadata, "index", 1)
        with pytest.raises(ModelFormatError, match="damaged"):
            Index.load(tmp_path / "f.index")
    model.save(tmp_path / "m.rpml")
    with pytest.raises(ModelFormatError, match="is a model, not an index"):
        Index.load(tmp_path / "m.rpml")


def test_a_single_vector_is_one_query(index, rows):
    for one, row in zip(index.search(rows[3]), index.search(rows[3:4]), strict=True):
        np.testing.assert_array_equal(one, row)


def test_bad_requests(index, model, rows):
    with pytest.raises(ValueError, match="at least 1"):
        index.search(rows[:1], k=0)
    with pytest.raises(ValueError, match="empty"):
        Index(model).search(rows[:1])
    with pytest.raises(ValueError, match="features"):
        index.search(rows[:1, :5])
    assert index.search(rows[:2], k=10_000).ids.shape == (2, len(rows))
