"""What is written is read back, whole or not at all."""

import os
import sys
import time

import numpy as np
import pytest

from rpml.io.features import (
    Layout,
    check_table_output,
    read_features,
    write_batches,
    write_table,
    writing,
)
from rpml.io.features.source import Batch, as_ids
from rpml.runtime.errors import InputError
from tests.faults.shim import FAULTS, NOT_REACHED, run_forked
from tests.labels import read_labels

KINDS = ["npy", "npz", "csv", "tsv", "parquet"]
LAYOUT = Layout("embedding", ["e0", "e1", "e2", "e3"], "id")


def batches_of_seven(X, ids):
    for start in range(0, 23, 7):
        yield Batch(start, X[start : start + 7], as_ids(ids[start : start + 7]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip_in_batches(tmp_path, X, ids, kind, dtype):
    X = X.astype(dtype) / 3
    path = f"{tmp_path}/out.{kind}"
    write_batches(path, LAYOUT, batches_of_seven(X, ids))
    features = read_features(path)
    np.testing.assert_array_equal(features.values.astype(dtype), X)
    assert features.ids.tolist() == ids


@pytest.mark.parametrize("kind", KINDS)
def test_labels_round_trip(tmp_path, ids, kind):
    path = str(tmp_path / f"labels.{kind}")
    labels = np.arange(23) % 5
    write_table(path, labels, Layout("label", ["label"], "id", vector=False), as_ids(ids))
    assert read_labels(path, 23, as_ids(ids)).tolist() == labels.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_only_vectors_in_npy_have_their_ids_in_a_file_next_to_them(tmp_path, kind):
    (tmp_path / "x.ids.csv").write_text("mine")
    values = np.ones((2, 2), np.float32)
    layout, ids = Layout("X", ["a", "b"], "id"), np.array(["u", "v"], object)
    write_table(str(tmp_path / f"x.{kind}"), values, layout, ids, overwrite=True)
    assert ((tmp_path / "x.ids.csv").read_text() == "mine") == (kind != "npy")


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_integer_ids_stay_integers(tmp_path, X, kind):
    path = f"{tmp_path}/out.{kind}"
    write_table(path, X, LAYOUT, as_ids(list(range(23))))
    assert read_features(path).ids.tolist() == list(range(23))


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(writing, "SHARD_ROWS", 10)


def test_shards(tmp_path, X, ids, small_shards):
    write_batches(f"{tmp_path}/out/", LAYOUT, batches_of_seven(X, ids))
    parts = sorted(p.name for p in (tmp_path / "out").glob("*.npy"))
    assert parts == ["part-00000.npy", "part-00001.npy", "part-00002.npy"]
    features = read_features(tmp_path / "out")
    np.testing.assert_array_equal(features.values, X)
    assert features.ids.tolist() == ids


def test_folder_by_trailing_slash(tmp_path, X):
    write_table(str(tmp_path / "out") + "/", X, LAYOUT, None)
    np.testing.assert_array_equal(read_features(tmp_path / "out").values, X)


def test_standard_output_is_csv(capsys, X, ids):
    write_table("-", X[:2], LAYOUT, as_ids(ids[:2]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "id,e0,e1,e2,e3"
    assert lines[1].startswith('"item 0, «é»",')


@pytest.mark.parametrize("kind", [*KINDS, "shards/"])
def test_existing_output_needs_force(tmp_path, X, kind):
    path = f"{tmp_path}/out.{kind}"
    write_table(path, X, LAYOUT, None)
    with pytest.raises(InputError, match="--force"):
        write_table(path, 2 * X, LAYOUT, None)
    np.testing.assert_allclose(read_features(path).values, X, rtol=1e-6)
    write_table(path, 2 * X, LAYOUT, None, overwrite=True)
    np.testing.assert_allclose(read_features(path).values, 2 * X, rtol=1e-6)


def half(X):
    yield Batch(0, X[:5])
    raise RuntimeError("half way")


@pytest.mark.parametrize("kind", [*KINDS, "shards/"])
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path, X, kind):
    path = f"{tmp_path}/out.{kind}"
    write_table(path, X, LAYOUT, None)
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="half way"):
        write_batches(path, LAYOUT, half(2 * X), overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    np.testing.assert_allclose(read_features(path).values, X, rtol=1e-6)


def test_ids_of_an_older_file_do_not_stay(tmp_path, X, ids):
    path = str(tmp_path / "out.npy")
    write_table(path, X, LAYOUT, as_ids(ids))
    write_table(path, X, LAYOUT, None, overwrite=True)
    assert read_features(path).ids is None


@pytest.mark.parametrize("name", ["out.xlsx", "out"])
def test_unknown_suffix(tmp_path, X, name):
    with pytest.raises(InputError, match="suffix"):
        write_table(str(tmp_path / name), X, LAYOUT, None)


def test_missing_folder(tmp_path, X):
    with pytest.raises(InputError, match="does not exist"):
        write_table(str(tmp_path / "no" / "out.npy"), X, LAYOUT, None)


def vectors_and_ids(path):
    features = read_features(path)
    return features.values[0, 0], features.ids.tolist()[0]


@pytest.mark.parametrize("fault", FAULTS)
def test_vectors_and_their_ids_are_of_one_write_whatever_fails(tmp_path, X, fault):
    """The next reader finds the old pair or the new one, or refuses; it writes nothing."""
    refused = 0
    path = str(tmp_path / "out.npy")
    old, new = (X, as_ids([f"old{i}" for i in range(23)])), (X + 1, as_ids(list(range(23))))
    for moment in range(100):
        write_table(path, old[0], LAYOUT, old[1], overwrite=True)
        status = run_forked(
            lambda: write_table(path, new[0], LAYOUT, new[1], overwrite=True),
            tmp_path,
            moment,
            fault,
        )
        before = {p.name: os.lstat(p).st_mtime_ns for p in tmp_path.iterdir()}
        try:
            assert vectors_and_ids(path) in ((X[0, 0], "old0"), (X[0, 0] + 1, "0"))
        except InputError as error:
            assert "was written for other vectors" in str(error)  # noqa: PT017
            refused += 1
        assert {p.name: os.lstat(p).st_mtime_ns for p in tmp_path.iterdir()} == before
        if status == NOT_REACHED:
            break
    assert vectors_and_ids(path) == (X[0, 0] + 1, "0")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.ids.csv", "out.npy"]
    assert moment > 8
    assert refused > 0


def test_ids_replaced_while_they_are_read_are_noticed(tmp_path, X, ids, monkeypatch):
    import rpml.io.features.numpy_files as numpy_files

    path = str(tmp_path / "out.npy")
    for name in ("csv_rows", "read_column", "load_npy"):
        original = getattr(numpy_files, name)
        write_table(path, X, LAYOUT, as_ids(ids), overwrite=True)

        def read_slowly(*args, original=original):
            write_table(path, X + 1, LAYOUT, as_ids(list(range(23))), overwrite=True)
            return original(*args)

        with monkeypatch.context() as patch:
            patch.setattr(numpy_files, name, read_slowly)
            with pytest.raises(InputError, match=r"other vectors|was changed while it was read"):
                read_features(path)


def test_ids_of_other_vectors_are_refused_until_somebody_vouches_for_them(tmp_path, X, ids):
    path, table = str(tmp_path / "out.npy"), tmp_path / "out.ids.csv"
    write_table(path, X, LAYOUT, as_ids(ids))
    np.save(path, X + 1)
    with pytest.raises(InputError, match="was written for other vectors"):
        read_features(path)
    lines = table.read_text().splitlines()
    table.write_text("\n".join(line.rpartition(",")[0] for line in lines) + "\n")
    assert read_features(path).ids.tolist() == list(map(str, ids))


@pytest.mark.parametrize("change", ["missing", "killed", "more"])
def test_a_folder_that_is_not_as_it_was_written_is_refused(tmp_path, X, change):
    folder = tmp_path / "out"
    write_table(f"{folder}/", X, LAYOUT, None)
    if change == "missing":
        (folder / "part-00000.npy").rename(folder / "part-00001.npy")
    elif change == "more":
        np.save(folder / "part-00001.npy", X + 1)
    else:
        text = (folder / "rpml.json").read_text()
        (folder / "rpml.json").write_text(text.replace('"complete": true', '"complete": false'))
    with pytest.raises(InputError, match=r"not exactly the files that rpml\.json lists"):
        read_features(folder)


def test_a_second_writer_of_the_same_output_is_refused(tmp_path, X):
    path = str(tmp_path / "out.npy")

    def second():
        with pytest.raises(InputError, match="being written by process"):
            write_table(path, X + 1, LAYOUT, None, overwrite=True)

    def first():
        yield Batch(0, X)
        assert run_forked(second, tmp_path, None, "kill") == 0

    write_batches(path, LAYOUT, first())
    np.testing.assert_array_equal(read_features(path).values, X)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", ["part-00000.npy", "mine.csv"])
def test_vectors_of_the_users_in_an_output_folder_are_never_replaced(tmp_path, X, late, name):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    if not late:
        (folder / name).write_text("mine")

    def batches():
        yield Batch(0, X + 1)
        (folder / name).write_text("mine")

    def write():
        write_batches(f"{folder}/", LAYOUT, batches(), overwrite=True)

    if late and name == "mine.csv":
        write()
        with pytest.raises(InputError, match="mixes"):
            read_features(folder)
    else:
        with pytest.raises(InputError, match=name):
            write()
        assert sorted(p.name for p in folder.iterdir()) == sorted([name, "thesis.txt"])
    assert (folder / name).read_text() == (folder / "thesis.txt").read_text() == "mine"


def test_an_output_folder_keeps_what_rpml_did_not_write(tmp_path, X, small_shards):
    folder = tmp_path / "out"
    write_table(f"{folder}/", X, LAYOUT, None)
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("empty")
    write_table(f"{folder}/", X[:14] + 1, LAYOUT, None, overwrite=True)
    names = ["empty", "link", "part-00000.npy", "part-00001.npy", "rpml.json"]
    assert sorted(p.name for p in folder.iterdir()) == names
    np.testing.assert_array_equal(read_features(folder).values, X[:14] + 1)


@pytest.mark.parametrize("name", ["x.npy", "x.ids.csv", "shards/", "shards/new.npy", "./"])
def test_inputs_are_never_outputs(tmp_path, X, ids, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table("x.npy", X, LAYOUT, as_ids(ids))
    write_table("shards/", X, LAYOUT, None)
    with pytest.raises(InputError, match="the input"):
        check_table_output(name, True, ["x.npy", "shards"])


def test_equal_rows_give_equal_archives(tmp_path, X, ids, monkeypatch):
    for name, now in (("a.npz", 1e9), ("b.npz", 1.5e9)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        write_table(str(tmp_path / name), X, LAYOUT, as_ids(ids))
        os.utime(tmp_path / name, (now, now))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_closed_standard_output_is_not_a_file_called_stdout(tmp_path, X, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InputError, match="standard output is closed"):
        write_table("-", X, LAYOUT, None)
    assert list(tmp_path.iterdir()) == []
