"""Containers of vectors become the matrix they hold."""

import numpy as np
import pandas as pd
import pytest

from rpml.runtime.validation import as_matrix

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
    with pytest.raises(ValueError, match="same shape"):
        as_matrix(pd.Series([[1.0, 2.0], [3.0]]))
