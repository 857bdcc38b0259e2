"""An index in faiss: the same codes, searched by L2 from raw queries."""

import numpy as np
import pytest

from rpml import RPML
from rpml.search import Index
from rpml.search.to_faiss import faiss_index, is_index, write_faiss

faiss = pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    spread = 0.3 * rng.normal(size=(600, 30))
    return (rng.normal(size=(60, 30))[rng.integers(60, size=600)] + spread).astype(np.float32)


@pytest.fixture(scope="module")
def model(rows):
    return RPML(19, random_state=0).fit(rows).learn_codebooks(rows, 4)


@pytest.mark.parametrize("output", ["pq", "int2", "int4", "binary", "int8"])
def test_faiss_finds_nearly_the_same(model, rows, output, tmp_path):
    index = Index(model, output=output).add(rows)
    index.recall  # noqa: B018
    write_faiss(index, str(tmp_path / "x.faiss"))
    read = faiss.read_index(str(tmp_path / "x.faiss"))
    assert read.ntotal == len(rows)
    found = read.search(rows[:100], 10)[1]
    scores = model.transform(rows[:100]) @ model.codec(output).decode(index.codes).T
    own = np.argsort(-scores, axis=1)[:, :10]
    same = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found, own, strict=True)])
    assert same > 0.75  # L2 differs from the cosine by the norms of the centroids


def test_an_index_without_rows_is_refused(model):
    with pytest.raises(ValueError, match="The index is empty"):
        faiss_index(Index(model))


def test_integer_ids_are_kept(model, rows):
    ids = 7 * np.arange(len(rows)) + 3
    index = Index(model, output="int8").add(rows, ids)
    found = faiss_index(index).search(rows[:50], 1)[1]
    np.testing.assert_array_equal(found[:, 0], ids[:50])
    texts = Index(model, output="int8").add(rows, [f"row {i}" for i in ids])
    np.testing.assert_array_equal(faiss_index(texts).search(rows[:50], 1)[1][:, 0], np.arange(50))


def test_cells_find_what_a_scan_of_the_same_codes_finds(model, rows):
    ids = 7 * np.arange(len(rows)) + 3
    index = Index(model, output="int8").add(rows, ids)
    scan, cells = faiss_index(index), faiss_index(index, cells=12)
    inner = faiss.extract_index_ivf(faiss.downcast_index(cells.index))
    assert (inner.nlist, inner.ntotal, cells.ntotal) == (12, len(rows), len(rows))
    assert 1 <= inner.nprobe < 12
    inner.nprobe = 12
    for found, expected in zip(cells.search(rows, 5), scan.search(rows, 5), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="600 rows cannot have 601 cells"):
        faiss_index(index, cells=601)


def test_kinds_of_files(model, rows, tmp_path):
    model.save(tmp_path / "m.rpml")
    Index(model).add(rows).save(tmp_path / "x.index")
    (tmp_path / "text").write_text("no file of ours")
    found = [is_index(str(tmp_path / name)) for name in ("m.rpml", "x.index", "text", "none")]
    assert found == [False, True, False, False]
