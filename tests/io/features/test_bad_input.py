"""Each bad input gets one sentence that names the file and the place."""

import io
import os
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpml.io.features import ReadOptions, open_features, read_features
from rpml.runtime.errors import InputError
from tests.labels import read_labels


def refusal(path, **options):
    with pytest.raises(InputError) as caught:
        read_features(path, ReadOptions(**options))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_missing_file(tmp_path):
    assert "no such file" in refusal(tmp_path / "absent.npy")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".tsv", ".parquet"])
def test_empty_file(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    path.touch()
    assert refusal(path) == f"{path} is empty"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n\n", "is empty"),
        ("a;b\n1;2\n", "separate the fields by commas in a .csv, by tabs in a .tsv"),
        ("a,b\n1,2\n3\n", "line 3 has 1 column, the first line has 2"),
        ("id,a,b\n1,2,3\n2,oops,3\n", "line 3, column 'a' is 'oops', not a number"),
        ("a,b\n1,2\n,4\n", "line 3, column 'a' is empty: remove or fill"),
        ("a,b\n1,2\n3,nan\n", "line 3, column 'b' is NaN"),
        ("id,a\nu,1\nv,2\nu,3\n", "id 'u' is given to rows 0 and 2"),
    ],
)
def test_a_bad_csv_is_named_by_line_or_row(tmp_path, text, reason):
    (tmp_path / "x.csv").write_text(text)
    assert reason in refusal(tmp_path / "x.csv")


def test_only_tables_have_columns_to_choose(tmp_path, X):
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", X=X)
    for name in ("x.npy", "x.npz"):
        assert "no columns to choose with --columns" in refusal(tmp_path / name, columns=("a",))


def test_an_archive_without_arrays(tmp_path):
    np.savez(tmp_path / "x.npz")
    assert refusal(tmp_path / "x.npz") == f"{tmp_path / 'x.npz'} has no arrays"


def test_bad_json_lines_are_named_without_the_words_of_arrow(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"a":\n')
    message = refusal(tmp_path / "x.jsonl")
    assert message.startswith(f"{tmp_path / 'x.jsonl'} is not a complete json file: JSON parse")
    assert "dataset" not in message


def test_standard_input_is_named_and_not_its_copy(tmp_path, X, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    cut = (tmp_path / "x.npy").read_bytes()[:-8]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(cut)))
    assert refusal("-").startswith("standard input is not a complete .npy file")


def test_wrong_suffix(tmp_path):
    (tmp_path / "x.xlsx").write_text("1")
    assert "'.xlsx'" in refusal(tmp_path / "x.xlsx")
    (tmp_path / "x").write_text("1")
    assert "no suffix" in refusal(tmp_path / "x")


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (-np.inf, "infinite")])
def test_not_finite_in_an_array(tmp_path, X, value, word):
    X[17, 2] = value
    np.save(tmp_path / "x.npy", X)
    assert f"row 17, column 2 (counted from 0) is {word}" in refusal(tmp_path / "x.npy")


def test_missing_value_in_parquet(tmp_path):
    table = pa.table({"a": [1, None, 3], "b": [1.0, 2.0, 3.0]})
    pq.write_table(table, tmp_path / "x.parquet")
    assert "row 1, column 'a'" in refusal(tmp_path / "x.parquet")


def test_duplicated_ids_across_batches(tmp_path, X):
    np.savez(tmp_path / "x.npz", X=X, ids=np.r_[np.arange(22), 3])
    source = open_features(tmp_path / "x.npz")
    with pytest.raises(InputError, match="id 3 is given to rows 3 and 22"):
        list(source.batches(4))


def test_object_arrays_are_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    trap = np.array([[Trap()]], dtype=object)
    np.save(tmp_path / "x.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "x.npz", X=trap)
    for name in ("x.npy", "x.npz"):
        assert "Python objects" in refusal(tmp_path / name)
    with pytest.raises(InputError, match="Python objects"):
        read_labels(tmp_path / "x.npy", 1)
    assert not (tmp_path / "executed").exists()


def test_pickle_named_npy(tmp_path):
    import pickle

    (tmp_path / "x.npy").write_bytes(pickle.dumps([1, 2]))
    assert "not a complete .npy file" in refusal(tmp_path / "x.npy")


@pytest.mark.parametrize("shape", [(5,), (2, 2, 2), (0, 3), (3, 0)])
def test_wrong_shapes(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.zeros(shape))
    assert str(shape) in refusal(tmp_path / "x.npy")


@pytest.mark.parametrize("dtype", ["c8", "U3", "M8[s]", "S4"])
def test_wrong_types(tmp_path, dtype):
    np.save(tmp_path / "x.npy", np.zeros((3, 2), dtype))
    assert "must be real numbers" in refusal(tmp_path / "x.npy")


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet"])
def test_truncated_files(tmp_path, X, kind):
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, X)
    elif kind == "npz":
        np.savez(path, X=X)
    else:
        pq.write_table(pa.table({"v": pa.array(X.tolist())}), path)
    path.write_bytes(path.read_bytes()[:-40])
    assert "complete" in refusal(path)


def test_npz_header_that_lies_about_its_size(tmp_path):
    header = {"descr": "<f8", "fortran_order": False, "shape": (2**40, 2**10)}
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w") as archive,
        archive.open("X.npy", "w") as file,
    ):
        np.lib.format.write_array_header_1_0(file, header)
    assert "bytes more" in refusal(tmp_path / "x.npz")


def test_npz_with_several_arrays(tmp_path, X):
    np.savez(tmp_path / "x.npz", left=X, right=X)
    assert "left, right" in refusal(tmp_path / "x.npz")
    assert "no array 'X'" in refusal(tmp_path / "x.npz", array="X")


def test_ragged_lists_in_parquet(tmp_path):
    pq.write_table(pa.table({"v": [[1.0, 2.0], [3.0]]}), tmp_path / "x.parquet")
    assert "row 1 of 'v' has 1 number, the first row has 2" in refusal(tmp_path / "x.parquet")


def test_text_column_in_parquet(tmp_path):
    pq.write_table(pa.table({"a": [1.0], "title": ["t"]}), tmp_path / "x.parquet")
    assert "column 'title' is string" in refusal(tmp_path / "x.parquet")


def test_unknown_column_suggests_a_close_one(tmp_path):
    (tmp_path / "x.csv").write_text("name,f1\nu,1\n")
    assert "did you mean 'name'" in refusal(tmp_path / "x.csv", id_column="nane")


def test_binary_named_csv(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"a,b\n1,\xff\xfe\n")
    assert "holds the byte 0xff: save it as UTF-8" in refusal(tmp_path / "x.csv")


def test_folders(tmp_path, X):
    assert "no feature files" in refusal(tmp_path)
    np.save(tmp_path / "0.npy", X)
    np.save(tmp_path / "1.npy", X[:, :2])
    assert "1.npy has 2 columns" in refusal(tmp_path)
    (tmp_path / "1.npy").unlink()
    (tmp_path / "1.csv").write_text("1,2\n")
    assert "mixes .csv and .npy" in refusal(tmp_path)


def test_a_named_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    assert "not a regular file" in refusal(tmp_path / "x.npy")


def test_fewer_ids_than_rows(tmp_path, X):
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.ids.csv").write_text("id\na\nb\n")
    assert "23 rows and 2 ids" in refusal(tmp_path / "x.npy")


def test_an_archive_that_unpacks_to_gigabytes_is_refused(tmp_path):
    """300 MB of zeros in 300 kB; the header and the archive agree."""
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("X.npy", "w", force_zip64=True) as file,
    ):
        shape = {"descr": "<f4", "fortran_order": False, "shape": (75_000, 1000)}
        np.lib.format.write_array_header_1_0(file, shape)
        for _ in range(75):
            file.write(bytes(4_000_000))
    with pytest.raises(InputError, match="not data"):
        read_features(tmp_path / "x.npz")
