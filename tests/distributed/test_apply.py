"""A whole dataset embedded and scored on the workers."""

import os

import numpy as np
import pytest

from rpml import RPML
from rpml.evaluation.metrics import recall_at_k
from rpml.io.features import read_features
from rpml.runtime.errors import InputError


@pytest.fixture(scope="module")
def model(rows):
    return RPML(3, max_iter=3, tol=1.0, n_neighbors=10, random_state=0).fit(rows)


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_embed_and_resume(cluster, rows, shards, model, tmp_path, kind):
    from rpml.distributed import embed, open_rows

    if kind == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / "out"
    shards = open_rows(shards, cluster, partition_rows=500)
    files = embed(model, shards, out, cluster, kind=kind)
    values = read_features(out).values
    np.testing.assert_allclose(values, model.transform(rows), atol=1e-12)
    times = {f: os.stat(f).st_mtime_ns for f in files}
    os.unlink(files[1])
    assert embed(model, shards, out, cluster, kind=kind) == files
    again = {f: os.stat(f).st_mtime_ns for f in files}
    assert [f for f in files if times[f] != again[f]] == [files[1]]
    assert sorted(os.listdir(out)) == sorted(os.path.basename(f) for f in files)


def test_what_a_killed_worker_left_is_tidied_up(cluster, shards, model, tmp_path):
    from rpml.distributed import embed
    from rpml.runtime.files import locked

    out = tmp_path / "out"
    files = embed(model, shards, out, cluster, kind="npy")
    before = [np.load(file) for file in files]
    with locked(files[0]) as scratch:
        hidden = scratch.parent
        left = {path: path.is_dir() for path in hidden.iterdir()}
    hidden.mkdir()
    for path, folder in left.items():
        path.mkdir() if folder else path.touch()
    assert embed(model, shards, out, cluster, kind="npy") == files
    assert sorted(map(str, out.iterdir())) == files
    np.testing.assert_array_equal([np.load(file) for file in files], before)


def test_codes_are_those_of_a_local_embedding(cluster, rows, shards, model, tmp_path):
    from rpml.distributed import embed

    files = embed(model, shards, tmp_path / "out", cluster, kind="npy", output="int2")
    codes = np.concatenate([np.load(f) for f in files])
    np.testing.assert_array_equal(codes, model.transform(rows, output="int2"))
    with pytest.raises(InputError, match="not of this model and these rows"):
        embed(model, shards, tmp_path / "out", cluster, kind="npy", output="int8")


def test_ids_are_carried_through(cluster, rows, model, tmp_path):
    from rpml.distributed import embed
    from rpml.io.features import Layout
    from rpml.io.features.writing import write_table

    folder = tmp_path / "in"
    folder.mkdir()
    ids = np.array([f"row {i}" for i in range(len(rows))], object)
    names = [f"f{i}" for i in range(rows.shape[1])]
    for i, part in enumerate(np.array_split(np.arange(len(rows)), 3)):
        layout = Layout("X", names, "id")
        write_table(str(folder / f"{i}.npy"), rows[part], layout, ids[part])
    embed(model, folder, tmp_path / "out", cluster, kind="npy")
    back = read_features(tmp_path / "out")
    assert back.ids.tolist() == ids.tolist()
    np.testing.assert_allclose(back.values, model.transform(rows), atol=1e-12)


def test_dask_array(cluster, rows, model, tmp_path):
    import dask.array as da

    from rpml.distributed import embed

    embed(model, da.from_array(rows, chunks=400), tmp_path / "out", cluster, kind="npy")
    np.testing.assert_allclose(
        read_features(tmp_path / "out").values, model.transform(rows), atol=1e-12
    )


def test_bad_requests(cluster, rows, shards, model, tmp_path):
    import dask.array as da

    from rpml.distributed import embed, evaluate

    with pytest.raises(ValueError, match="kind='csv'"):
        embed(model, shards, tmp_path / "out", cluster, kind="csv")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "part-00000-0123456789.npy").touch()
    with pytest.raises(InputError, match=r"0123456789\.npy, which is not of this model"):
        embed(model, shards, tmp_path / "other", cluster)
    with pytest.raises(InputError, match="fitted on 16 features, the Dask array has 4"):
        embed(model, da.ones((9, 4)), tmp_path / "out", cluster)
    with pytest.raises(ValueError, match="got 3 labels for 1,200 rows"):
        evaluate(shards, [1, 2, 3], cluster)


def test_evaluate(cluster, rows, shards, model):
    from rpml.distributed import embedded, evaluate

    y = np.arange(len(rows)) // 100
    for metric in ("cosine", "euclidean"):
        scores = evaluate(shards, y, cluster, ks=(1, 4), metric=metric)
        assert scores == recall_at_k(rows, y, (1, 4), metric)
    scores = evaluate(embedded(model, shards, cluster), y, cluster, ks=(1, 4))
    assert scores == recall_at_k(model.transform(rows), y, ks=(1, 4))


def test_evaluate_counts_ties_against_the_rows_and_leaves_out_unlabeled_ones(cluster):
    import dask.array as da

    from rpml.distributed import evaluate

    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, (3000, 3)).astype(float)  # full of ties
    X[0] = 0
    y = rng.integers(-1, 40, 3000)
    y[5] = 99  # alone in its class
    known = y >= 0
    for metric in ("cosine", "euclidean"):
        found = evaluate(da.from_array(X, chunks=700), y, cluster, ks=(1, 8, 64), metric=metric)
        assert found == recall_at_k(X[known], y[known], (1, 8, 64), metric)


def test_evaluate_samples_the_queries_of_many_rows(cluster, rows, monkeypatch):
    import dask.array as da

    from rpml.distributed import apply, evaluate

    monkeypatch.setattr(apply, "MAX_QUERIES", 300)
    X = rows + 3 * np.random.default_rng(0).standard_normal(rows.shape)
    y = np.arange(len(rows)) // 100
    sampled = evaluate(da.from_array(X, chunks=500), y, cluster, ks=(1,))[1]
    assert sampled != recall_at_k(X, y, (1,))[1]
    assert sampled == pytest.approx(recall_at_k(X, y, (1,))[1], abs=0.1)
    assert (300 * sampled) % 1 == pytest.approx(0, abs=1e-9)
