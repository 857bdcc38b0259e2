"""Ids and labels that no user means, and some do: a sentence, or what they say."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpml.io.features import read_features
from rpml.io.features.source import as_ids
from rpml.runtime.errors import InputError
from tests.labels import read_labels

X = np.arange(6.0).reshape(3, 2)


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_a_column_twice(tmp_path):
    table = pa.Table.from_arrays([pa.array([1.0])] * 3, names=["a", "b", "a"])
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(InputError, match="two columns 'a'"):
        read_features(tmp_path / "x.parquet")
    with pytest.raises(InputError, match="two columns 'a'"):
        read_labels(tmp_path / "x.parquet", 1, column="a")


@pytest.mark.parametrize("values", [[[1], [2], [3]], [{"a": 1}] * 3, [b"\xff", b"b", b"c"]])
def test_values_that_are_not_plain(tmp_path, values):
    path = parquet(tmp_path / "x.parquet", id=values, label=values, v=X.tolist())
    with pytest.raises(InputError, match="text or numbers"):
        read_features(path)
    with pytest.raises(InputError, match="text or numbers"):
        read_labels(path, 3, column="label")


def test_infinite_and_missing_numbers(tmp_path):
    path = parquet(tmp_path / "y.parquet", label=[1.0, np.inf, 2.0])
    with pytest.raises(InputError, match="infinite label"):
        read_labels(path, 3)
    path = parquet(tmp_path / "y.parquet", label=[1.0, np.nan, 2.0])
    with pytest.raises(InputError, match=r"row 1 .* is missing"):
        read_labels(path, 3)
    assert read_labels(path, 3, partial=True).tolist() == [1, -1, 2]


@pytest.mark.parametrize("odd", ["²", "9" * 5000, "--1", "٣", "01", "-0", "1_000"])
def test_text_that_resembles_a_number_is_text(tmp_path, odd):
    (tmp_path / "y.txt").write_text(f"{odd}\n1\n{odd}\n", encoding="utf8")
    assert read_labels(tmp_path / "y.txt", 3).tolist() == [odd, "1", odd]


def test_a_header_without_labels(tmp_path):
    (tmp_path / "y.csv").write_text("id,label\n")
    with pytest.raises(InputError, match="no labels"):
        read_labels(tmp_path / "y.csv", 3, ids=as_ids(["a", "b", "c"]), partial=True)
    with pytest.raises(InputError, match="no labels"):
        read_labels(tmp_path / "y.csv", 3, partial=True)


def test_ids_that_are_no_text(tmp_path):
    np.savez(tmp_path / "x.npz", X=X, ids=np.array(["a", "\udc80", "c"]))
    with pytest.raises(InputError, match=r"an id with '\\udc80' is not valid text"):
        read_features(tmp_path / "x.npz")


def test_objects_without_fields(tmp_path):
    (tmp_path / "y.jsonl").write_text("{}\n{}\n{}\n")
    with pytest.raises(InputError, match="has no columns"):
        read_labels(tmp_path / "y.jsonl", 3)
    with pytest.raises(InputError, match="has no columns"):
        read_features(tmp_path / "y.jsonl")


@pytest.mark.parametrize("shape", [(), (3, 1), (1, 3)])
def test_ids_of_another_shape(tmp_path, shape):
    np.savez(tmp_path / "x.npz", X=X, ids=np.zeros(shape, int))
    with pytest.raises(InputError, match=r"x\.npz\['ids'\] has shape .* one dimension"):
        read_features(tmp_path / "x.npz")


def test_a_small_table_that_unpacks_to_gigabytes(tmp_path):
    """Refused by its number of rows, not by the memory it takes."""
    zeros = pa.table({"label": np.zeros(2**22, np.int64)})
    with pq.ParquetWriter(tmp_path / "y.parquet", zeros.schema) as writer:
        for _ in range(12):
            writer.write_table(zeros)
    assert (tmp_path / "y.parquet").stat().st_size < 10**6
    tracemalloc.start()
    with pytest.raises(InputError, match="has 50,331,648 values, the features have 3 rows"):
        read_labels(tmp_path / "y.parquet", 3)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**24
