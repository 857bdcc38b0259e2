"""Feather and JSON lines like parquet; other columns carried from table to table."""

import io
import json
import sys

import numpy as np
import pytest

from rpml.io.features import (
    Batch,
    Layout,
    ReadOptions,
    open_features,
    read_features,
    write_batches,
    write_table,
)
from rpml.io.features.labels import read_metadata
from rpml.runtime.errors import InputError
from tests.labels import read_labels

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.feather")
pytest.importorskip("pyarrow.parquet")
X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
NAMES = [f"row {i}" for i in range(7)]
TABLES = [".parquet", ".feather", ".jsonl", ".csv"]


def write(path):
    """A table with ids, vectors, and other columns, some of them with gaps."""
    rows = [
        {"id": n, "title": f"é, {n}", "price": None if i == 2 else i / 4, "tags": ["a"] * i}
        for i, n in enumerate(NAMES)
    ]
    rows = [{**row, "vector": x.tolist()} for row, x in zip(rows, X, strict=True)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    elif path.suffix == ".feather":
        pa.feather.write_feather(pa.Table.from_pylist(rows), path)
    else:
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.fixture(params=[".parquet", ".feather", ".jsonl"])
def table(request, tmp_path):
    import pyarrow.feather
    import pyarrow.parquet  # noqa: F401

    return write(tmp_path / f"table{request.param}")


def test_vectors_ids_labels_and_metadata(table):
    read = read_features(table, ReadOptions(columns=("vector",)))
    np.testing.assert_allclose(read.values, X, rtol=1e-6)
    assert read.ids.tolist() == NAMES
    assert read_labels(table, 7, read.ids, "title")[3] == "é, row 3"
    with pytest.raises(InputError, match="no column 'vectr': did you mean 'vector'"):
        open_features(table, ReadOptions(columns=("vectr",)))


def test_metadata(table, tmp_path):
    plain = tmp_path / f"plain{table.suffix}"
    write_table(str(plain), np.arange(7), Layout("label", ["label"], "id", False), np.array(NAMES))
    assert read_metadata(plain, NAMES[::-1])["label"] == [str(i) for i in range(6, -1, -1)]
    found = read_metadata(table, NAMES)  # with vectors and lists of tags
    assert list(found) == ["title", "price"]
    assert found["price"][:3] == ["0.0", "0.25", ""]


@pytest.mark.parametrize("suffix", [".feather", ".jsonl"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
def test_what_is_written_is_read(tmp_path, suffix, dtype):
    path, values = tmp_path / f"x{suffix}", (10 * X).astype(dtype)
    names = np.array(NAMES, object)
    batches = [Batch(0, values[:4], names[:4]), Batch(4, values[4:], names[4:])]
    write_batches(str(path), Layout("embedding", list("abc"), "id"), batches)
    found = read_features(path)
    np.testing.assert_array_equal(found.values.astype(dtype), values)
    assert found.ids.tolist() == NAMES
    assert open_features(path).n_rows == 7


def test_whole_numbers_in_the_first_lines(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"v": [0, 1]}\n{"v": [0.5, 1e3]}\n')
    assert read_features(path).values.tolist() == [[0, 1], [0.5, 1000]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", b'{"v": [1, 2]}\n{"v": [1,\n', "not a complete json file: .*JSON"),
        ("x.jsonl", b'{"v": [1, 2]}\n{"v": [1]}\n', "row 1 of 'v' has 1 number,"),
        ("x.jsonl", b'{"v": "text"}\n', "not numbers"),
        ("x.jsonl", b"[1, 2]\n", "not a complete json file"),
        ("x.jsonl", b"null\nnull\n", "a line is null"),  # at which Arrow ends the process
        ("x.jsonl", b'\xef\xbb\xbf null\n{"v": [1]}\n', "a line is null"),
        ("x.jsonl", b'{"v": [1, 2]}\n' * 10**5 + b"null\n" * 10**6, "a line is null"),
        ("x.jsonl", b'{"v": ' + b"[" * 5000 + b"]" * 5000 + b"}", "nested too deeply"),
        ("x.jsonl", b'{"]": ' * 9999 + b"1" + b"}" * 9999, "nested too deeply"),
        ("x.feather", b"ARROW1 and no more", "not a complete feather file"),
    ],
)
def test_damage_is_one_sentence(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_features(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_brackets_in_text_and_beside_each_other_are_not_nested(tmp_path):
    path = tmp_path / "x.jsonl"
    rows = [{"v": [1, 2], "text": "[{" * 99, "more": [[]] * 99}, {"v": [3, 4], "text": '"[' * 99}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = read_features(path, ReadOptions(columns=("v",)))
    assert found.values.tolist() == [[1, 2], [3, 4]]


def test_offsets_that_lead_out_of_a_feather_file(tmp_path):
    """Arrow ends the process if it is not asked to look at them first."""
    path = tmp_path / "x.feather"
    pa.feather.write_feather(pa.table({"v": X.tolist()}), str(path), compression="uncompressed")
    offsets = np.arange(0, 3 * len(X) + 1, 3, dtype=np.int32)
    data = path.read_bytes()
    assert data.count(offsets.tobytes()) == 1
    for wrong in (900_000_000, -5, 0):
        damaged = np.where(np.arange(len(offsets)) == 2, np.int32(wrong), offsets)
        path.write_bytes(data.replace(offsets.tobytes(), damaged.tobytes()))
        with pytest.raises(InputError, match=r"cannot be read: .*offset"):
            read_features(path)


@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_the_index_of_a_data_frame_holds_ids_and_no_features(tmp_path, suffix):
    """Whatever its name, and though integers could be features."""
    pandas = pytest.importorskip("pandas")
    numbers = pandas.Index(range(10, 17), name="item").drop(13).insert(0, 13)
    frame = pandas.DataFrame(X, columns=list("xyz"), index=numbers).assign(label=NAMES)

    def written(name, frame):
        content = pa.Table.from_pandas(frame)
        pa.parquet.write_table(content, tmp_path / f"{name}.parquet")
        pa.feather.write_feather(content, str(tmp_path / f"{name}.feather"))
        return tmp_path / f"{name}{suffix}"

    found = read_features(written("x", frame[["x", "y", "z"]]))
    assert found.feature_names == ("x", "y", "z")
    assert found.ids.tolist() == numbers.tolist()
    labels = written("labels", frame[["label"]].sort_index())
    assert read_labels(labels, 7, found.ids).tolist() == NAMES
    pages = frame.set_index("label", append=True)
    assert read_features(written("pages", pages)).feature_names == ("x", "y", "z")
    assert read_features(written("named", frame[["x"]].assign(id=NAMES))).ids.tolist() == NAMES


def test_standard_input(table, monkeypatch):
    pipe = io.TextIOWrapper(io.BytesIO(table.read_bytes()))
    monkeypatch.setattr(sys, "stdin", pipe)
    found = read_features("-", ReadOptions(columns=("vector",)))
    np.testing.assert_allclose(found.values, X, rtol=1e-6)


def keep(source, path, pattern="*"):
    opened = open_features(source, ReadOptions(keep=(pattern,)))
    layout = Layout("embedding", list("abc"), "id", kept=opened.kept_names)
    write_batches(str(path), layout, opened.batches(rows=3))


@pytest.mark.parametrize("suffix", TABLES)
def test_columns_are_carried_through(table, tmp_path, suffix):
    out = tmp_path / f"out{suffix}"
    keep(table, out, "[pt]*e")
    titles, prices = (
        read_labels(out, 7, np.array(NAMES), name, partial=True) for name in ("title", "price")
    )
    assert titles.tolist() == [f"é, {n}" for n in NAMES]
    assert prices[1:4].tolist() == ["0.25", None, "0.75"]
    if suffix != ".csv":
        again = open_features(out)
        np.testing.assert_allclose(again.load().values, X, rtol=1e-6)
        keep(out, tmp_path / "twice.csv")
        assert read_metadata(tmp_path / "twice.csv", NAMES)["title"] == titles.tolist()


@pytest.mark.parametrize("suffix", TABLES)
def test_columns_of_shards_are_carried_through(tmp_path, suffix):
    shards = tmp_path / "shards"
    shards.mkdir()
    for i, name in enumerate("ab"):
        rows = pa.table({"id": [f"{name}{j}" for j in range(3)], "title": [f"{name}'s"] * 3,
                         "size": pa.array([i] * 3, pa.int64() if i else pa.float64()),
                         "v": X[:3].tolist()})  # fmt: skip
        pa.parquet.write_table(rows, shards / f"{name}.parquet")
    keep(shards, tmp_path / f"out{suffix}")
    ids = np.array([f"{name}{j}" for name in "ab" for j in range(3)])
    titles, sizes = (
        read_labels(tmp_path / f"out{suffix}", 6, ids, name) for name in ("title", "size")
    )
    assert titles.tolist() == ["a's"] * 3 + ["b's"] * 3
    assert sizes.astype(float).tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(InputError, match="no room for other columns"):
        keep(shards, tmp_path / "out.npy")


def test_columns_that_differ_between_shards_are_refused(tmp_path):
    for name, title in {"a": [1, 2, 3], "b": ["x", "y", "z"]}.items():
        rows = pa.table({"id": [f"{name}{j}" for j in range(3)], "title": title,
                         "v": X[:3].tolist()})  # fmt: skip
        pa.parquet.write_table(rows, tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match="'title' is int64 in the first rows and string in later"):
        keep(tmp_path, tmp_path.with_name("out.parquet"))
    pa.parquet.write_table(rows.rename_columns(["id", "other", "v"]), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet has other columns to keep than .*a\.parquet"):
        keep(tmp_path, tmp_path.with_name("out.csv"))


def test_kept_infinities_are_null_in_json(tmp_path):
    kept = {"price": [np.inf, np.nan, 2.0], "sizes": [[1.0, -np.inf], [2.0], []]}
    pa.parquet.write_table(pa.table({"v": X[:3].tolist(), **kept}), tmp_path / "x.parquet")
    source = open_features(tmp_path / "x.parquet", ReadOptions(columns=("v",), keep=("*",)))
    layout = Layout("embedding", list("abc"), kept=source.kept_names)
    write_batches(str(tmp_path / "x.jsonl"), layout, source.batches())
    assert "Infinity" not in (tmp_path / "x.jsonl").read_text()
    again = open_features(tmp_path / "x.jsonl", ReadOptions(columns=("embedding",), keep=("*",)))
    (batch,) = again.batches()
    assert batch.kept["price"].to_pylist() == [None, None, 2]
    assert batch.kept["sizes"].to_pylist() == [[1, None], [2], []]


def test_csv_columns_are_carried_through(tmp_path):
    lines = ["id,colour,f0,f1"] + [f"{i},c{i},{i}.5,1" for i in range(5)]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    opened = open_features(tmp_path / "x.csv", ReadOptions(keep=("colour",)))
    assert opened.feature_names == ("f0", "f1")
    assert [b.kept for b in opened.batches(rows=3)][1] == {"colour": ["c3", "c4"]}


def test_columns_that_cannot_be_kept(table, tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(InputError, match="no columns to keep"):
        open_features(tmp_path / "x.npy", ReadOptions(keep=("a",)))
    with pytest.raises(InputError, match="no column 'nope'"):
        open_features(table, ReadOptions(keep=("nope",)))
    for out in ("y.npy", "y.npz", "shards/"):
        with pytest.raises(InputError, match="no room for other columns"):
            keep(table, f"{tmp_path}/{out}", "title")
    clash = Layout("title", list("abc"), kept=("title",))
    with pytest.raises(InputError, match="'title' cannot be kept"):
        write_batches(str(tmp_path / "z.csv"), clash, [])
