"""Every kind of input gives the same rows, names and ids."""

import csv
import io
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpml.io.features import ReadOptions, numpy_files, open_features, read_features


def write_csv(path, X, ids=None, names=None, separator=","):
    with open(path, "w", encoding="utf8", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        if names is not None:
            writer.writerow((["id"] if ids else []) + names)
        for i, row in enumerate(X.tolist()):
            writer.writerow(([ids[i]] if ids else []) + row)


def test_a_large_npy_is_mapped_not_copied(tmp_path, X, monkeypatch):
    monkeypatch.setattr("rpml.io.features.numpy_files.MAPPED_BYTES", X.nbytes - 1)
    np.save(tmp_path / "x.npy", X)
    features = read_features(tmp_path / "x.npy")
    assert isinstance(features.values, np.memmap)
    np.testing.assert_array_equal(features.values, X)
    assert features.ids is None


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", "i1", "i4", "i8", "u1", "u8", "?", ">f4", ">i2", "g"]
)
def test_number_types(tmp_path, X, dtype):
    values = (X * 10).astype(dtype)
    np.save(tmp_path / "x.npy", values)
    found = read_features(tmp_path / "x.npy").values
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, values.astype(found.dtype))


def test_fortran_order(tmp_path, X):
    np.save(tmp_path / "x.npy", np.asfortranarray(X))
    np.testing.assert_array_equal(read_features(tmp_path / "x.npy").values, X)


def test_npz_named_array_and_ids(tmp_path, X, ids):
    np.savez(tmp_path / "x.npz", first=X, second=2 * X, ids=np.array(ids))
    features = read_features(tmp_path / "x.npz", ReadOptions(array="second"))
    np.testing.assert_array_equal(features.values, 2 * X)
    assert features.ids.tolist() == ids


def test_npz_usual_name_is_found_among_others(tmp_path, X):
    np.savez_compressed(tmp_path / "x.npz", y=np.arange(23), X=X, train=np.ones(23, bool))
    np.testing.assert_array_equal(read_features(tmp_path / "x.npz").values, X)


@pytest.mark.parametrize("separator", [",", "\t"])
def test_csv_with_header_and_ids(tmp_path, X, ids, separator):
    path = tmp_path / ("x.csv" if separator == "," else "x.tsv")
    write_csv(path, X, ids, list("abcd"), separator)
    features = read_features(path)
    np.testing.assert_allclose(features.values, X, rtol=1e-7)
    assert features.ids.tolist() == ids
    assert features.feature_names == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("head", "row", "header", "has_ids"),
    [
        ("1,2,3", "4,5,6", False, False),
        ("a,b,c", "4,5,6", True, False),
        ("bird.jpg,2,3", "cat.jpg,5,6", False, True),
        ("file,f0,f1", "cat.jpg,5,6", True, True),
        ("0,1,2", "4,5,6", True, False),  # pandas, index=False
        (",0,1", "0,5,6", True, True),  # pandas with its index
        ("id,0,1", "0,5,6", True, True),
        ("f0,f1,id", "5,6,x", True, True),
    ],
)
def test_csv_header_and_ids_are_found(tmp_path, head, row, header, has_ids):
    path = tmp_path / "x.csv"
    path.write_text(f"{head}\n{row}\n")
    source = open_features(path)
    features = source.load()
    assert len(features.values) == (1 if header else 2)
    assert source.has_ids == has_ids
    assert features.values.shape[1] == (2 if has_ids else 3)


def test_csv_of_a_spreadsheet(tmp_path):
    """A byte-order mark, CRLF and blank lines at the end."""
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbfid,a,b\r\n1,2,3\r\n4,5,6\r\n\r\n")
    features = read_features(tmp_path / "x.csv")
    np.testing.assert_array_equal(features.values, [[2, 3], [5, 6]])
    assert features.ids.tolist() == ["1", "4"]


def test_csv_columns_by_name_and_pattern(tmp_path):
    (tmp_path / "x.csv").write_text("name,f1,other,f2\nu,1,text,2\nv,3,more,4\n")
    options = ReadOptions(columns=("f*",), id_column="name")
    features = read_features(tmp_path / "x.csv", options)
    np.testing.assert_array_equal(features.values, [[1, 2], [3, 4]])
    assert features.feature_names == ("f1", "f2")
    assert features.ids.tolist() == ["u", "v"]


def parquet_tables(X, ids):
    yield pa.table({"id": ids, "vector": pa.array(X.tolist(), type=pa.list_(pa.float32()))})
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 4)
    yield pa.table({"id": ids, "title": ids, "vector": fixed})
    yield pa.table({"id": ids, **{f"f{i}": X[:, i] for i in range(4)}})


def test_parquet_lists_and_columns(tmp_path, X, ids):
    for i, table in enumerate(parquet_tables(X, ids)):
        path = tmp_path / f"{i}.parquet"
        pq.write_table(table, path, row_group_size=5)
        features = read_features(path)
        np.testing.assert_array_equal(features.values, X)
        assert features.values.dtype == np.float32
        assert features.ids.tolist() == ids


def test_parquet_keeps_integer_ids_and_streams(tmp_path, X):
    table = pa.table({"key": np.arange(23) + 5, "v": pa.array(X.tolist())})
    pq.write_table(table, tmp_path / "x.parquet")
    source = open_features(tmp_path / "x.parquet")
    batches = list(source.batches(10))
    assert [len(b.values) for b in batches] == [10, 10, 3]
    assert [b.start for b in batches] == [0, 10, 20]
    assert batches[1].ids[0] == 15
    assert source.id_name == "key"


def test_folder_of_shards_in_natural_order(tmp_path, X):
    folder = tmp_path / "shards"
    folder.mkdir()
    for i in (0, 1, 2, 10):
        np.save(folder / f"part-{i}.npy", X[2 * i : 2 * i + 2])
    features = read_features(folder)
    np.testing.assert_array_equal(features.values, X[[0, 1, 2, 3, 4, 5, 20, 21]])


def test_folder_of_csv_shards_counts_rows(tmp_path, X, ids):
    for i, (a, b) in enumerate([(0, 9), (9, 23)]):
        write_csv(tmp_path / f"{i}.csv", X[a:b], ids[a:b], list("abcd"))
    source = open_features(tmp_path)
    assert source.n_rows is None
    assert [b.start for b in source.batches(5)] == [0, 5, 9, 14, 19]
    assert source.load().ids.tolist() == ids


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "tsv", "parquet"])
def test_standard_input_of_every_kind(tmp_path, X, kind, monkeypatch):
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, X)
    elif kind == "npz":
        np.savez(path, X=X)
    elif kind == "parquet":
        pq.write_table(pa.table({"v": pa.array(X.tolist())}), path)
    else:
        write_csv(path, X, None, list("abcd"), "\t" if kind == "tsv" else ",")
    stream = io.TextIOWrapper(io.BytesIO(path.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    features = read_features("-")
    np.testing.assert_allclose(features.values, X, rtol=1e-7)
    assert features.name.startswith("standard input")


def test_name_with_spaces_and_unicode(tmp_path, X):
    path = tmp_path / "mes données – 図.npy"
    np.save(path, X)
    np.testing.assert_array_equal(read_features(path).values, X)


def test_a_parser_confused_by_other_threads_is_asked_again(tmp_path, monkeypatch):
    """Python 3.11 raises SystemError when several threads parse .npy headers at once."""
    np.save(tmp_path / "x.npy", np.eye(3))
    read, failures = np.lib.format.read_array_header_1_0, [SystemError("depth mismatch")]

    def confused(file):
        if failures:
            file.read(5)
            raise failures.pop()
        return read(file)

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", confused)
    np.testing.assert_array_equal(numpy_files.load_npy(tmp_path / "x.npy"), np.eye(3))
    assert not failures
