"""What is written is read back, whole or not at all."""

import numpy as np
import pytest

from rpml.io.features import Layout, open_writer, read_features, read_labels, write_table
from rpml.io.features.source import as_ids
from rpml.io.features.writers import ShardWriter
from rpml.runtime.errors import InputError

KINDS = ["npy", "npz", "csv", "tsv", "parquet"]
LAYOUT = Layout("embedding", ["e0", "e1", "e2", "e3"], "id")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip_in_batches(tmp_path, X, ids, kind, dtype):
    X = X.astype(dtype) / 3
    path = f"{tmp_path}/out.{kind}"
    with open_writer(path, LAYOUT) as writer:
        for start in range(0, 23, 7):
            writer.write(X[start : start + 7], as_ids(ids[start : start + 7]))
    features = read_features(path)
    np.testing.assert_array_equal(features.values.astype(dtype), X)
    assert features.ids.tolist() == ids


@pytest.mark.parametrize("kind", KINDS)
def test_labels_round_trip(tmp_path, ids, kind):
    path = str(tmp_path / f"labels.{kind}")
    labels = np.arange(23) % 5
    write_table(path, labels, Layout("label", ["label"], "id", vector=False), as_ids(ids))
    assert read_labels(path, 23, as_ids(ids)).tolist() == labels.tolist()


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_integer_ids_stay_integers(tmp_path, X, kind):
    path = f"{tmp_path}/out.{kind}"
    write_table(path, X, LAYOUT, as_ids(list(range(23))))
    assert read_features(path).ids.tolist() == list(range(23))


def test_shards(tmp_path, X, ids):
    writer = ShardWriter(tmp_path / "out", LAYOUT, rows=10)
    for start in range(0, 23, 7):
        writer.write(X[start : start + 7], as_ids(ids[start : start + 7]))
    writer.close()
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


def write_half(path, X):
    with open_writer(path, LAYOUT, overwrite=True) as writer:
        writer.write(X[:5])
        raise RuntimeError("half way")


@pytest.mark.parametrize("kind", [*KINDS, "shards/"])
def test_failure_leaves_the_old_file_and_nothing_else(tmp_path, X, kind):
    path = f"{tmp_path}/out.{kind}"
    write_table(path, X, LAYOUT, None)
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(RuntimeError, match="half way"):
        write_half(path, 2 * X)
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
