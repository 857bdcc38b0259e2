"""Containers of vectors become the matrix they hold."""

import numpy as np
import pandas as pd
import pytest

from rpml.runtime.rows import as_matrix

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


def pandas_columns():
    return [pd.Series(list(X)), pd.Series(X.tolist()), pd.DataFrame({"embedding": list(X)})]


def polars_columns():
    pl = pytest.importorskip("polars")
    lists, fixed = pl.Series(X.tolist()), pl.Series(X.tolist(), dtype=pl.Array(pl.Float32, 3))
    return [lists, fixed, pl.DataFrame({"embedding": fixed})]


def arrow_columns():
    pa = pytest.importorskip("pyarrow")
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 3)
    parts = pa.chunked_array([fixed[:2], fixed[2:]])
    return [pa.array(X.tolist()), fixed, parts, pa.table({"embedding": parts})]


def huggingface_columns():
    data = pytest.importorskip("datasets").Dataset.from_dict({"v": X.tolist(), "t": ["a"] * 6})
    return [data["v"], data.select_columns("v"), data.with_format("numpy")["v"]]


def torch_tensors():
    torch = pytest.importorskip("torch")
    plain = torch.tensor(X)
    return [plain, torch.tensor(X, requires_grad=True), plain.double()]


MAKERS = [pandas_columns, polars_columns, arrow_columns, huggingface_columns, torch_tensors]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_columns_of_vectors(make):
    for given in make():
        found = np.asarray(as_matrix(given))
        assert found.dtype.kind == "f"
        np.testing.assert_allclose(found, X, rtol=1e-6)


def test_bfloat16():
    torch = pytest.importorskip("torch")
    found = as_matrix(torch.tensor(X).bfloat16())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, X, rtol=1e-2)


def test_all_else_stays(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    one_feature, wide = pd.DataFrame({"a": X[:, 0]}), pd.DataFrame(X)
    for given in (X, mapped, one_feature, wide, X.tolist(), None):
        assert as_matrix(given) is given
    with pytest.raises(ValueError, match="has the shape"):
        as_matrix(pd.Series([[1.0, 2.0], [3.0]]))


def test_masked_values_are_refused_at_every_entrance():
    import rpml

    masked = np.ma.masked_array(X, mask=np.zeros(X.shape, bool))
    assert as_matrix(masked) is masked
    masked[4, 1] = np.ma.masked
    model = rpml.RPML(2).fit(X)
    aas = rpml.AuthorityAscentShift(3)
    for enter in (model.fit, model.transform, aas.fit, rpml.recommend, rpml.compare):
        with pytest.raises(ValueError, match=r"X is masked at \(4, 1\)"):
            enter(masked)


def test_every_entrance_takes_them():
    import rpml
    from rpml.evaluation.metrics import recall_at_k
    from rpml.search import Index, learn_bridge
    from tests.problems import blobs

    rows, y = blobs(classes=4, per_class=30, d=10)
    column = pd.Series(list(rows))
    model = rpml.RPML(4, n_neighbors=10, random_state=0).fit(column)
    index = Index(model).add(column)
    found = index.search(column[:3], k=2).ids
    assert (found == np.arange(3)[:, None]).any(axis=1).all()  # codes of 4 bytes may be equal
    assert recall_at_k(column, y, 1) == recall_at_k(rows, y, 1)
    assert learn_bridge(column, column).neighbors_kept.low > 0.99
    assert rpml.recommend(column, 4).choice == rpml.recommend(rows, 4).choice
    tables = [rpml.compare(X, y, 4, methods=["pca"], seeds=[0]) for X in (column, rows)]
    assert tables[0].rows[0]["recall@1"] == tables[1].rows[0]["recall@1"]


@pytest.mark.parametrize("table", ["arrow", "pandas"])
def test_the_vectors_of_a_table_with_ids_are_named(table):
    import pyarrow as pa

    import rpml

    rows = pa.table({"id": ["a", "b", "c"], "embedding": [[1.0, 2.0], [2.0, 1.0], [0.0, 1.0]]})
    with pytest.raises(ValueError, match=r"pass its column of vectors, X\['embedding'\]"):
        rpml.RPML(1).fit(rows if table == "arrow" else rows.to_pandas())
