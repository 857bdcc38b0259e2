"""DaskRPML gives what RPML gives with the same subsample."""

import warnings

import numpy as np
import pytest

from rpml import RPML, AuthorityAscentShift
from rpml.io.checkpoint import Checkpoint

from .conftest import subspace_distance

SETTINGS = {
    "training": "always",
    "n_components": 4,
    "n_neighbors": 10,
    "max_iter": 12,
    "random_state": 0,
    "subsample": 700,
}


def fit(kind, X, settings=SETTINGS, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(**settings).fit(X, **more)


def assert_same(two, one, tolerance=1e-7):
    """Every fitted attribute agrees, but for the direction of an axis within the map."""
    assert ("labels_" in vars(two)) == ("labels_" in vars(one))
    np.testing.assert_array_equal(two.triplets_, one.triplets_)
    matrices = [model.preprocessing_.matrix for model in (two, one)]
    direction = np.sign(np.sum(matrices[0] * matrices[1], axis=0))
    np.testing.assert_allclose(matrices[0], direction * matrices[1], rtol=1e-4, atol=tolerance)
    assert subspace_distance(two.components_, one.components_ * direction) < tolerance
    np.testing.assert_allclose(two.triplet_weights_, one.triplet_weights_, atol=100 * tolerance)
    np.testing.assert_allclose(two.history_["loss"], one.history_["loss"], rtol=1e-6)
    if "labels_" in vars(one):  # not if the triplets are across the values of a nuisance
        np.testing.assert_array_equal(two.labels_, one.labels_)
        np.testing.assert_array_equal(two.exemplars_.rows, one.exemplars_.rows)
        np.testing.assert_array_equal(two.exemplar_vectors_, one.exemplar_vectors_)
        np.testing.assert_array_equal(two.labeled_mask_, one.labeled_mask_)
    assert two.n_classes_ == one.n_classes_
    assert two.message_ == one.message_


@pytest.fixture(scope="module")
def local(rows):
    return fit(RPML, rows)


def test_the_same_model_from_shards(cluster, rows, shards, local):
    from rpml.distributed import DaskRPML

    seen = []
    settings = {**SETTINGS, "callback": lambda p: seen.append(p.stage)}
    model = fit(DaskRPML, shards, settings, cluster=cluster)
    assert_same(model, local)
    assert (local.labels_ >= 0).sum() in (699, 700)
    assert {"read", "neighbors", "labels", "optimize"} <= set(seen)
    plain = model.to_local()
    assert type(plain) is RPML
    np.testing.assert_array_equal(plain.predict(rows), local.predict(rows))
    np.testing.assert_allclose(plain.transform(rows[:9]), local.transform(rows[:9]), atol=1e-7)


def test_few_rows_are_all_used(cluster, rows, shards):
    from rpml.distributed import DaskRPML

    settings = {**SETTINGS, "subsample": len(rows)}
    assert_same(fit(DaskRPML, shards, settings, cluster=cluster), fit(RPML, rows, settings), 1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"weight": "bilinear", "whiten": 0.5, "init": "random", "weight_ridge": None},
        {"weight": "constant", "whiten": None, "solver": "gd"},
        {"normalize_input": False, "solver": "stochastic", "n_epochs": 1},
        {"clustering": AuthorityAscentShift(8, metric="euclidean", merge="average")},
        {"sampler": "hard"},
        {"training": "auto"},
    ],
)
def test_other_settings(cluster, rows, shards, settings):
    from rpml.distributed import DaskRPML

    settings = {**SETTINGS, "max_iter": 4, **settings}
    one, two = fit(RPML, rows, settings), fit(DaskRPML, shards, settings, cluster=cluster)
    assert two.outcome_ == one.outcome_
    np.testing.assert_array_equal(two.predict(rows), one.predict(rows))
    assert subspace_distance(one.components_, two.components_) < 1e-6
    np.testing.assert_allclose(one.transform(rows), two.to_local().transform(rows), atol=1e-6)


@pytest.fixture(scope="module")
def views():
    """400 instances, three rows each in random order, and the instance of each row."""
    rng = np.random.default_rng(4)
    instances = rng.standard_normal((16, 12))[rng.integers(0, 16, 400)]
    instances = instances + 0.3 * rng.standard_normal((400, 12))
    group = rng.permutation(np.repeat(np.arange(400), 3))
    X = instances[group] + rng.standard_normal((1200, 12)) * np.repeat([0.1, 2.5], [8, 4])
    return X, group


def same_fit(cluster, X, settings, **inputs):
    """Fit with both; the fits agree."""
    import dask.array as da

    from rpml.distributed import DaskRPML

    one = fit(RPML, X, settings, **inputs)
    two = fit(DaskRPML, da.from_array(X, chunks=(500, -1)), settings, cluster=cluster, **inputs)
    assert two.whitening_.source == one.whitening_.source
    assert_same(two, one)
    return one


def test_groups(cluster, views):
    X, group = views
    groups = np.where(group < 300, group, -1)
    one = same_fit(cluster, X, {**SETTINGS, "max_iter": 4}, groups=groups)
    assert one.whitening_.source == "groups"


def test_nuisance(cluster):
    rng = np.random.default_rng(0)
    content, camera = rng.integers(0, 40, 1200), rng.integers(0, 4, 1200)
    X = rng.standard_normal((40, 12))[content] + 3 * rng.standard_normal((4, 12))[camera]
    X += 0.3 * rng.standard_normal(X.shape)
    settings = {**SETTINGS, "max_iter": 4, "whiten": "auto"}
    names = np.array(["a", "b", "c", "d"])[camera]
    one = same_fit(cluster, X, settings, nuisance=names)
    assert one.whitening_.source == "nuisance"
    assert one.whitening_.nuisance.shared_after < one.whitening_.nuisance.shared


@pytest.mark.parametrize("normalize_input", [True, False])
def test_queries(cluster, normalize_input):
    rng = np.random.default_rng(0)
    topics = 7 * rng.standard_normal((40, 12))
    X = topics[rng.integers(0, 40, 1200)] + 2 * rng.standard_normal((1200, 12))
    queries = topics[rng.integers(0, 40, 300)] + 2 * rng.standard_normal((300, 12))
    queries[:, :3] += 30
    settings = {**SETTINGS, "max_iter": 4, "normalize_input": normalize_input}
    one = same_fit(cluster, X, settings, queries=queries)
    assert one.whitening_.nuisance is not None


def test_wrong_knowledge_is_refused_before_anything_is_read(cluster, shards, monkeypatch):
    from rpml.distributed import DaskRPML

    monkeypatch.setattr("rpml.distributed.estimator.gather_rows", None)
    with pytest.raises(ValueError, match="queries must be rows of 16 columns"):
        fit(DaskRPML, shards, cluster=cluster, queries=np.ones((3, 4)))
    with pytest.raises(ValueError, match="nuisance"):
        fit(DaskRPML, shards, cluster=cluster, nuisance=np.arange(3))


def test_labels(cluster, views):
    X, group = views
    y = np.where(np.random.default_rng(0).random(len(X)) < 0.2, group % 16, -1)
    settings = {**SETTINGS, "max_iter": 4, "use_labels": True}
    one = same_fit(cluster, X, settings, y=y)
    assert one.n_classes_ == 16
    same_fit(cluster, X, settings, y=y, groups=group)


def test_pairs_and_constraints(cluster, views):
    X, group = views
    order = np.argsort(group, kind="stable").reshape(-1, 3)
    settings = {**SETTINGS, "max_iter": 4}
    one = same_fit(cluster, X, settings, pairs=order[:, :2])
    assert one.whitening_.pairs is not None
    constraints = {
        "must_link": order[:40, :2],
        "cannot_link": np.stack([order[:20, 0], order[20:40, 2]], axis=1),
        "comparisons": np.stack([order[50:60, 0], order[50:60, 1], order[60:70, 0]], axis=1),
    }
    same_fit(cluster, X, settings, **constraints)


def test_labels_are_ignored_unless_asked_for(cluster, rows, shards, local):
    from rpml.distributed import DaskRPML

    settings = {**SETTINGS, "clustering": np.arange(len(rows)) // 100, "max_iter": 1}
    model = fit(DaskRPML, shards, settings, cluster=cluster, y=np.arange(len(rows)))
    assert not model.labeled_mask_.any()


def test_dask_array_and_lazy_transform(cluster, rows, local):
    import dask.array as da

    from rpml.distributed import DaskRPML

    X = da.from_array(rows, chunks=(300, 16))
    settings = {**SETTINGS, "clustering": np.arange(len(rows)) // 100, "max_iter": 3}
    model = fit(DaskRPML, X, settings, cluster=cluster.client)
    plain = model.to_local()
    Y = model.transform(X)
    assert Y.shape == (len(rows), 4)
    np.testing.assert_allclose(Y.compute(scheduler="threads"), plain.transform(rows), atol=1e-12)
    found = model.predict(X)
    assert found.shape == (len(rows),)
    np.testing.assert_array_equal(found.compute(scheduler="threads"), plain.predict(rows))
    assert model.transform(rows[:3]).shape == (3, 4)


def test_a_column_of_vectors(cluster, rows, local, tmp_path):
    pa = pytest.importorskip("pyarrow")
    dd = pytest.importorskip("dask.dataframe")
    from pyarrow import parquet

    from rpml.distributed import DaskRPML
    from rpml.runtime.errors import InputError

    for i, part in enumerate(np.split(rows, [300, 700])):
        table = pa.table({"id": np.arange(len(part)), "v": list(part)})
        parquet.write_table(table, tmp_path / f"{i}.parquet")
    frame = dd.read_parquet(tmp_path)
    assert_same(fit(DaskRPML, frame["v"], cluster=cluster), local)
    assert_same(fit(DaskRPML, frame[["v"]], cluster=cluster), local)
    with pytest.raises(InputError, match=r"columns id, v: pass the one with the vectors"):
        fit(DaskRPML, frame, cluster=cluster)
    with pytest.raises(InputError, match=r"column 'v': dtype .*dataframe\.convert-string"):
        fit(DaskRPML, frame["v"].astype(str), cluster=cluster)
    with pytest.raises(InputError, match="column 'v' has no rows"):
        fit(DaskRPML, frame["v"][frame["id"] < 0], cluster=cluster)


def test_every_row_is_read_once(cluster, rows, tmp_path):
    import dask.array as da

    from rpml.distributed import DaskRPML

    log = tmp_path / "log"

    def read(block, block_info=None):
        with open(log, "a") as file:
            file.write(f"{len(block)}\n")
        return block

    X = da.from_array(rows, chunks=(300, -1)).map_blocks(read, dtype=rows.dtype, meta=rows[:0])
    fit(DaskRPML, X, {**SETTINGS, "max_iter": 1}, cluster=cluster)
    assert sum(map(int, log.read_text().split())) == len(rows)


def test_a_fit_resumes_without_reading_again(cluster, rows, shards, tmp_path):
    from rpml.distributed import DaskRPML, open_rows

    digest = open_rows(shards, cluster).digest()
    assert digest == open_rows(shards, cluster, partition_rows=300).digest()

    class Stop(Exception):
        pass

    def stop(progress):
        if progress.stage == "optimize" and progress.done == 11:
            raise Stop

    settings = {**SETTINGS, "max_iter": 12, "tol": 0.0}
    whole = fit(RPML, rows, settings)
    store = Checkpoint(tmp_path / "c", digest, settings)
    with pytest.raises(Stop):
        fit(DaskRPML, shards, {**settings, "callback": stop}, cluster=cluster, store=store)
    stages = []
    store = Checkpoint(tmp_path / "c", digest, settings, resume=True)
    again = {**settings, "callback": lambda p: stages.append(p)}
    model = fit(DaskRPML, shards, again, cluster=cluster, store=store)
    assert not any(p.stage == "read" for p in stages)
    assert min(p.done for p in stages if p.stage == "optimize") == 11
    assert subspace_distance(model.components_, whole.components_) < 1e-7


def test_files_that_changed_have_another_digest(cluster, shards):
    from rpml.distributed import open_rows

    before = open_rows(shards, cluster).digest()
    np.save(shards / "part-0.npy", np.ones((100, 16)))
    assert open_rows(shards, cluster).digest() != before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clustering": [0, 1]}, "one value per row"),
        ({"n_components": 99}, "n_components=99 must not exceed"),
        ({"solver": "banana"}, "solver"),
    ],
)
def test_wrong_settings_are_refused_before_any_row_is_read(
    cluster, shards, monkeypatch, settings, message
):
    from rpml.distributed import DaskRPML

    monkeypatch.setattr("rpml.distributed.estimator.gather_rows", None)
    with pytest.raises(ValueError, match=message):
        fit(DaskRPML, shards, {**SETTINGS, **settings}, cluster=cluster)
    with pytest.raises(TypeError, match="no argument 'banana'"):
        fit(DaskRPML, shards, cluster=cluster, banana=1)


def test_an_initial_matrix_of_rows_that_vary_in_few_directions(cluster, rows):
    import dask.array as da

    from rpml.distributed import DaskRPML

    X = da.from_array(np.hstack([rows, rows[:, :5]]), chunks=(300, -1))
    for p in (15, 21):
        with pytest.raises(ValueError, match=r"shape \(16, 4\)"):
            fit(DaskRPML, X, {**SETTINGS, "init": np.eye(p, 4)}, cluster=cluster)


@pytest.mark.parametrize("y", [None, "unlabeled"])
def test_labels_that_are_missing_warn(cluster, shards, rows, y):
    from rpml.distributed import DaskRPML

    y = None if y is None else np.full(len(rows), -1)
    settings = {**SETTINGS, "clustering": np.arange(len(rows)) // 100, "max_iter": 0}
    with pytest.warns(UserWarning, match="use_labels=True, but y"):
        DaskRPML(**settings, use_labels=True).fit(shards, y, cluster=cluster)


@pytest.mark.parametrize("power", [-100, 100])  # 2^100 is 1e30
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_unit_of_the_rows_does_not_matter(cluster, rows, power, dtype):
    import dask.array as da

    from rpml.distributed import DaskRPML

    settings = {**SETTINGS, "normalize_input": False}
    plain = rows.astype(dtype)
    X = plain * dtype(2.0**power)
    model, expected = (
        fit(DaskRPML, da.from_array(part, chunks=(500, -1)), settings, cluster=cluster)
        for part in (X, plain)
    )
    one = fit(RPML, plain, settings)
    np.testing.assert_array_equal(model.labels_, one.labels_)
    np.testing.assert_array_equal(model.exemplar_vectors_, X[model.exemplars_.rows])
    found = model.to_local().transform(X)
    np.testing.assert_allclose(found, expected.to_local().transform(plain), atol=1e-12)
    np.testing.assert_allclose(found, one.transform(plain), atol=1e-3)


def test_partitions_of_very_different_scale(cluster, rows):
    """The moments of each batch are taken in its own unit."""
    import dask.array as da

    from rpml.distributed import DaskRPML

    X = rows.copy()
    X[:500] *= 2.0**40
    settings = {**SETTINGS, "normalize_input": False, "whiten": 0.0, "max_iter": 2}
    one = fit(RPML, X, settings)
    two = fit(DaskRPML, da.from_array(X, chunks=(300, -1)), settings, cluster=cluster)
    for name in ("mean", "matrix"):
        found, expected = (getattr(model.preprocessing_, name) for model in (two, one))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())


def test_rows_on_one_line_vary_in_one_direction(cluster):
    """What single precision loses in the moments is computed again in double precision."""
    import dask.array as da

    from rpml.distributed import DaskRPML

    rng = np.random.default_rng(0)
    X = np.outer(rng.normal(size=1200), rng.normal(size=16)).astype("f4")
    settings = {"n_neighbors": 10, "random_state": 0, "subsample": 700}
    model = fit(DaskRPML, da.from_array(X, chunks=(500, -1)), settings, cluster=cluster)
    assert model.components_.shape == (1, 1)
