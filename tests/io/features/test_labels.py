import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpml.io.features.labels import labeled_mask, read_metadata
from rpml.io.features.source import as_ids
from rpml.runtime.errors import InputError
from tests.labels import read_labels

Y = [3, 1, 2, 1]


@pytest.fixture(params=["npy", "npz", "csv", "txt", "headed.csv", "parquet"])
def labels_file(request, tmp_path):
    path = tmp_path / f"y.{request.param}"
    text = "\n".join(map(str, Y)) + "\n"
    if request.param == "npy":
        np.save(path, np.array(Y))
    elif request.param == "npz":
        np.savez(path, X=np.zeros((4, 2)), y=np.array(Y))
    elif request.param == "parquet":
        pq.write_table(pa.table({"label": Y, "vector": [[1.0]] * 4}), path)
    else:
        path.write_text(("label\n" if "headed" in request.param else "") + text)
    return path


def test_every_kind(labels_file):
    assert read_labels(labels_file, 4).tolist() == Y


def test_a_column_of_a_folder_of_shards(tmp_path):
    """In natural order, matched by id if the shards have ids."""
    for i, name in ((10, "b"), (2, "a")):
        table = pa.table({"id": [f"{name}1", f"{name}2"], "y": [name, None], "v": [[1.0], [2.0]]})
        pq.write_table(table, tmp_path / f"part-{i}.parquet")
    assert read_labels(tmp_path, 4, column="y", id_column="", partial=True).tolist() == [
        "a", None, "b", None
    ]  # fmt: skip
    ids = as_ids(["b1", "a2", "a1", "b2"])
    assert read_labels(tmp_path, 4, ids, "y", partial=True).tolist() == ["b", None, "a", None]
    with pytest.raises(InputError, match=r"part-2\.parquet has no column 'z'"):
        read_labels(tmp_path, 4, column="z")


def test_another_length(labels_file):
    with pytest.raises(InputError, match="has 4 values, the features have 5 rows"):
        read_labels(labels_file, 5)


def test_matched_by_id_not_by_order(tmp_path):
    (tmp_path / "y.csv").write_text("id,label\nc,bird\na,cat\nb,dog\nunused,fish\n")
    labels = read_labels(tmp_path / "y.csv", 3, as_ids(["a", "b", "c"]))
    assert labels.tolist() == ["cat", "dog", "bird"]


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_arrays_with_ids_are_matched_by_these(tmp_path, kind):
    """The ids of an .npy file stand next to it, as `rpml cluster` writes them."""
    path, names, labels = tmp_path / f"y.{kind}", np.array(["c", "a", "b"]), np.array([30, 10, 20])
    if kind == "npz":
        np.savez(path, ids=names, labels=labels)
    else:
        np.save(path, labels)
        (tmp_path / "y.ids.csv").write_text("id\nc\na\nb\n")
    assert read_labels(path, 3, as_ids(["a", "b", "c"])).tolist() == [10, 20, 30]
    assert read_labels(path, 3, as_ids(["a", "b", "c"]), id_column="").tolist() == [30, 10, 20]
    with pytest.raises(InputError, match="the features have no ids"):
        read_labels(path, 3)


def test_another_number_of_ids_than_of_labels(tmp_path):
    np.savez(tmp_path / "y.npz", ids=np.array(["a", "b"]), labels=np.array([1, 2, 3]))
    with pytest.raises(InputError, match=r"y\.npz has 3 labels, 2 ids"):
        read_labels(tmp_path / "y.npz", 3, as_ids(["a", "b", "c"]))


def test_parquet_matched_by_integer_id(tmp_path):
    pq.write_table(pa.table({"id": [7, 8], "kind": ["u", "v"]}), tmp_path / "y.parquet")
    assert read_labels(tmp_path / "y.parquet", 2, as_ids([8, 7])).tolist() == ["v", "u"]


def test_missing_and_repeated_ids(tmp_path):
    (tmp_path / "y.csv").write_text("id,label\na,1\nb,2\n")
    with pytest.raises(InputError, match="no label for the id 'z'"):
        read_labels(tmp_path / "y.csv", 2, as_ids(["a", "z"]))
    (tmp_path / "y.csv").write_text("id,label\na,1\na,2\n")
    with pytest.raises(InputError, match="two labels for the id 'a'"):
        read_labels(tmp_path / "y.csv", 2, as_ids(["a", "b"]))


def test_column_must_be_named_among_several(tmp_path):
    (tmp_path / "y.csv").write_text("coarse,fine\n1,2\n1,3\n")
    with pytest.raises(InputError, match="name the column to read"):
        read_labels(tmp_path / "y.csv", 2)
    assert read_labels(tmp_path / "y.csv", 2, column="fine").tolist() == [2, 3]


def test_labels_beside_features_in_one_file(tmp_path):
    (tmp_path / "x.csv").write_text("id,a,b,species\n1,0,0,wren\n2,1,1,owl\n")
    found = read_labels(tmp_path / "x.csv", 2, as_ids(["1", "2"]), column="species")
    assert found.tolist() == ["wren", "owl"]


def test_empty_label(tmp_path):
    (tmp_path / "y.csv").write_text("id,label\na,1\nb,\n")
    with pytest.raises(InputError, match=r"label of row 1 .* is missing"):
        read_labels(tmp_path / "y.csv", 2)


def test_nan_is_a_missing_label(tmp_path):
    np.save(tmp_path / "y.npy", np.array([3.0, np.nan]))
    assert read_labels(tmp_path / "y.npy", 2, partial=True).tolist() == [3, -1]
    with pytest.raises(InputError, match=r"label of row 1 .* is missing"):
        read_labels(tmp_path / "y.npy", 2)


def test_a_header_may_have_any_name_that_is_no_label(tmp_path):
    path = tmp_path / "y.csv"
    path.write_text("kind\nwren\nowl\nowl\n")
    assert read_labels(path, 3).tolist() == ["wren", "owl", "owl"]
    for first in ("owl", "7"):  # a label, or a file of other rows
        path.write_text(f"{first}\nwren\nowl\nowl\n")
        with pytest.raises(InputError, match=f"first line, '{first}', is a header, call it label"):
            read_labels(path, 3)


def test_zero_padded_labels_stay_text(tmp_path):
    (tmp_path / "y.txt").write_text("01\n1\n")
    assert read_labels(tmp_path / "y.txt", 2).tolist() == ["01", "1"]


def test_labels_of_two_dimensions(tmp_path):
    np.save(tmp_path / "y.npy", np.zeros((4, 2)))
    with pytest.raises(InputError, match="one dimension"):
        read_labels(tmp_path / "y.npy", 4)


@pytest.mark.parametrize("header", ["", "label\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
def test_blank_lines_of_one_column_are_rows_without_a_label(tmp_path, header, end):
    path = tmp_path / "y.csv"
    path.write_text(f"{header}wren\n\n\nowl{end}")
    found = read_labels(path, 4, partial=True)
    assert found.tolist() == ["wren", None, None, "owl"]
    with pytest.raises(InputError, match="label of row 1"):
        read_labels(path, 4)


def test_blank_lines_at_the_end_may_be_rows_without_a_label(tmp_path):
    (tmp_path / "y.csv").write_text("\nowl\n\n\n")
    found = read_labels(tmp_path / "y.csv", 3, partial=True)
    assert found.tolist() == [None, "owl", None]


def test_partial_labels(tmp_path):
    (tmp_path / "y.csv").write_text("id,label\na,wren\nb,\n")
    ids = as_ids(["c", "a", "b"])
    assert read_labels(tmp_path / "y.csv", 3, ids, partial=True).tolist() == [None, "wren", None]
    (tmp_path / "y.csv").write_text("id,label\na,3\n")
    assert read_labels(tmp_path / "y.csv", 3, ids, partial=True).tolist() == [-1, 3, -1]


def test_rows_without_ids_are_named_by_number(tmp_path):
    (tmp_path / "y.csv").write_text("id,label\n2,cat\n0,dog\n")
    labels = read_labels(tmp_path / "y.csv", 4, partial=True)
    assert labels.tolist() == ["dog", None, "cat", None]
    assert labeled_mask(labels).tolist() == [True, False, True, False]
    assert labeled_mask(np.array([1, -1, 0])).tolist() == [True, False, True]


@pytest.mark.parametrize("partial", [False, True])
def test_all_rows_are_matched_by_number_too(tmp_path, partial):
    (tmp_path / "y.csv").write_text("id,label\n2,c\n0,a\n1,b\n")
    assert read_labels(tmp_path / "y.csv", 3, partial=partial).tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("ids", ["owl,jay,tit", "1,2,3"])
def test_ids_of_features_without_ids_are_refused(tmp_path, ids, partial):
    lines = [f"{name},{i}" for i, name in enumerate(ids.split(","))]
    (tmp_path / "y.csv").write_text("\n".join(["id,label", *lines]))
    with pytest.raises(InputError, match="the features have no ids: use row numbers from 0 to 2"):
        read_labels(tmp_path / "y.csv", 3, partial=partial)


def test_a_repeated_row_number_is_refused(tmp_path):
    (tmp_path / "y.csv").write_text("id,label\n0,a\n1,b\n1,c\n")
    with pytest.raises(InputError, match="two labels for the id '1'"):
        read_labels(tmp_path / "y.csv", 3, partial=True)


def test_ids_can_be_ignored(tmp_path):
    (tmp_path / "y.csv").write_text("id,label\nowl,a\njay,b\n")
    found = read_labels(tmp_path / "y.csv", 2, column="label", id_column="")
    assert found.tolist() == ["a", "b"]


@pytest.mark.parametrize("header", ["group", "cluster", "label"])
def test_headers_that_rpml_writes(tmp_path, header):
    (tmp_path / "g.csv").write_text(f"{header}\n4\n7\n")
    assert read_labels(tmp_path / "g.csv", 2).tolist() == [4, 7]


def test_ids_that_match_nothing_are_refused(tmp_path):
    (tmp_path / "y.csv").write_text("id,label\nx,1\ny,2\n")
    with pytest.raises(InputError, match=r"no id in .* is an id of the features"):
        read_labels(tmp_path / "y.csv", 2, as_ids(["a", "b"]), partial=True)


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_metadata_are_matched_by_id(tmp_path, kind):
    path = tmp_path / f"m.{kind}"
    columns = {"price": [3, -1, None], "id": ["b", "a", "x"], "title": ["B, b", "", "X"]}
    if kind == "parquet":
        pq.write_table(pa.table(columns), path)
    else:
        separator = "," if kind == "csv" else "\t"
        path.write_text(
            "\n".join(
                separator.join("" if v is None else f'"{v}"' for v in row)
                for row in [columns, *zip(*columns.values(), strict=True)]
            )
        )
    found = read_metadata(path, ["a", "b", "c"])
    assert found == {"price": ["-1", "3", ""], "title": ["", "B, b", ""]}


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("m.csv", "name,price\na,1\n", "column of ids"),
        ("m.csv", "id\na\n", "column of ids"),
        ("m.csv", "id,price\nz,1\n", "no id in"),
        ("m.txt", "id\na\n", "metadata are read from"),
    ],
)
def test_metadata_without_ids_are_refused(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=sentence):
        read_metadata(tmp_path / name, ["a"])
