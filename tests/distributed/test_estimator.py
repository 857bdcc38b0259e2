"""DaskRPML gives what RPML gives."""

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
}


def fit(kind, X, settings=SETTINGS, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(**settings).fit(X, **more)


@pytest.fixture(scope="module")
def local(rows):
    return fit(RPML, rows)


def test_the_same_model_from_shards(cluster, rows, shards, local):
    from rpml.distributed import DaskRPML

    seen = []
    settings = {**SETTINGS, "callback": lambda p: seen.append(p.stage)}
    model = fit(DaskRPML, shards, settings, cluster=cluster)
    np.testing.assert_array_equal(model.labels_, local.labels_)
    np.testing.assert_array_equal(model.triplets_, local.triplets_)
    assert subspace_distance(model.components_, local.components_) < 1e-4
    np.testing.assert_allclose(model.triplet_weights_, local.triplet_weights_, atol=1e-4)
    np.testing.assert_allclose(model.history_["loss"], local.history_["loss"], rtol=1e-6)
    assert {"read", "whiten", "neighbors", "labels", "optimize"} <= set(seen)
    np.testing.assert_array_equal(model.exemplars_.rows, local.exemplars_.rows)
    np.testing.assert_array_equal(model.exemplar_vectors_, local.exemplar_vectors_)
    plain = model.to_local()
    assert type(plain) is RPML
    np.testing.assert_array_equal(plain.predict(rows), local.predict(rows))
    np.testing.assert_allclose(plain.transform(rows[:9]), local.transform(rows[:9]), atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {
            "weight": "bilinear",
            "whiten": 0.5,
            "init": "random",
            "weight_ridge": None,
            "max_iter": 4,
        },
        {"weight": "constant", "whiten": None, "solver": "gd", "max_iter": 4},
        {"clustering": AuthorityAscentShift(8, metric="euclidean", merge=None), "max_iter": 2},
    ],
)
def test_other_settings(cluster, rows, shards, settings):
    from rpml.distributed import DaskRPML

    settings = {**SETTINGS, **settings}
    one, two = fit(RPML, rows, settings), fit(DaskRPML, shards, settings, cluster=cluster)
    np.testing.assert_array_equal(two.labels_, one.labels_)
    assert subspace_distance(one.components_, two.components_) < 1e-4


@pytest.fixture(scope="module")
def views():
    """400 things, three rows each in random order, and their classes."""
    rng = np.random.default_rng(4)
    things = rng.standard_normal((16, 12))[rng.integers(0, 16, 400)]
    things = things + 0.3 * rng.standard_normal((400, 12))
    group = rng.permutation(np.repeat(np.arange(400), 3))
    X = things[group] + rng.standard_normal((1200, 12)) * np.repeat([0.1, 2.5], [8, 4])
    return X, group


def sorted_rows(triplets):
    return triplets[np.lexsort(triplets.T)]


def same_fit(cluster, X, settings, **sides):
    """Fits of both kinds, compared in every fitted attribute."""
    import dask.array as da

    from rpml.distributed import DaskRPML

    one = fit(RPML, X, settings, **sides)
    two = fit(DaskRPML, da.from_array(X, chunks=(500, -1)), settings, cluster=cluster, **sides)
    assert two.whitening_.source == one.whitening_.source
    np.testing.assert_array_equal(two.labels_, one.labels_)
    np.testing.assert_array_equal(sorted_rows(two.triplets_), sorted_rows(one.triplets_))
    assert subspace_distance(one.components_, two.components_) < 1e-4
    np.testing.assert_array_equal(two.exemplars_.rows, one.exemplars_.rows)
    np.testing.assert_array_equal(two.labeled_mask_, one.labeled_mask_)
    assert two.n_classes_ == one.n_classes_
    return one


def test_groups(cluster, views):
    X, group = views
    one = same_fit(cluster, X, {**SETTINGS, "max_iter": 4}, groups=np.where(group < 300, group, -1))
    assert one.whitening_.source == "groups"


@pytest.mark.parametrize("share", [0.2, pytest.param(1.0, marks=pytest.mark.slow)])
def test_labels(cluster, views, share):
    X, group = views
    y = np.where(np.random.default_rng(0).random(len(X)) < share, group % 16, -1)
    settings = {**SETTINGS, "max_iter": 4, "use_labels": True}
    one = same_fit(cluster, X, settings, y=y)
    assert one.n_classes_ == 16
    same_fit(cluster, X, settings, y=y, groups=group)


def test_labels_are_ignored_unless_asked_for(cluster, rows, shards, local):
    from rpml.distributed import DaskRPML

    settings = {**SETTINGS, "clustering": local.labels_, "max_iter": 1}
    model = fit(DaskRPML, shards, settings, cluster=cluster, y=np.arange(len(rows)))
    assert not model.labeled_mask_.any()


def test_dask_array_and_lazy_transform(cluster, rows, local):
    import dask.array as da

    from rpml.distributed import DaskRPML

    X = da.from_array(rows, chunks=(300, 16))
    settings = {**SETTINGS, "clustering": local.labels_, "max_iter": 3}
    model = fit(DaskRPML, X, settings, cluster=cluster.client)
    Y = model.transform(X)
    assert Y.shape == (len(rows), 4)
    np.testing.assert_allclose(
        Y.compute(scheduler="threads"), model.to_local().transform(rows), atol=1e-12
    )
    assert model.transform(rows[:3]).shape == (3, 4)


def test_stochastic(cluster, rows, shards, local):
    from rpml.distributed import DaskRPML

    settings = {**SETTINGS, "solver": "stochastic", "n_epochs": 2, "clustering": local.labels_}
    model = fit(DaskRPML, shards, settings, cluster=cluster)
    alone = fit(RPML, rows, settings)
    assert model.n_iter_ == 2
    assert len(model.history_["loss"]) == 2
    # other batches, the same problem: both end near the same subspace and loss
    assert model.history_["loss"][-1] == pytest.approx(alone.history_["loss"][-1], rel=0.05)
    assert subspace_distance(model.components_, alone.components_) < 0.35


def test_one_part_draws_the_local_batches(cluster, rows):
    from rpml.distributed.stochastic import distributed_epoch
    from rpml.method.solver.stochastic import BatchSettings, EpochState, run_epoch

    labels = np.arange(len(rows)) // 100
    start = np.eye(16, 4)
    one, two = EpochState(start, np.zeros(32)), EpochState(start, np.zeros(32))
    settings = BatchSettings()
    run_epoch(rows, labels, one, settings, np.random.default_rng(4))
    parts = [cluster.hold((rows, labels, np.zeros(len(rows), bool)))]
    distributed_epoch(cluster, parts, two, settings, np.random.default_rng(4))
    np.testing.assert_allclose(one.L, two.L, atol=1e-12)
    assert one.history == two.history


def test_a_fit_resumes(cluster, rows, shards, tmp_path):
    from rpml.distributed import DaskRPML, open_rows

    digest = open_rows(shards, cluster).digest(cluster)
    assert digest == open_rows(shards, cluster).digest(cluster)

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
    assert not any(p.stage == "neighbors" for p in stages)
    assert min(p.done for p in stages if p.stage == "optimize") == 11
    assert subspace_distance(model.components_, whole.components_) < 1e-4


def test_what_needs_all_rows_in_one_place_is_refused(cluster, rows, shards):
    from sklearn.cluster import KMeans

    from rpml.distributed import DaskRPML

    for name in ("neighbors", "pairs", "must_link", "comparisons"):
        with pytest.raises(ValueError, match=f"{name} is not available"):
            fit(DaskRPML, shards, cluster=cluster, **{name: np.zeros(len(rows))})
    with pytest.raises(TypeError, match="no argument 'banana'"):
        fit(DaskRPML, shards, cluster=cluster, banana=1)
    directed = {**SETTINGS, "clustering": AuthorityAscentShift(symmetric=False, merge=None)}
    with pytest.raises(ValueError, match=r"symmetric=False\) is not available"):
        fit(DaskRPML, shards, directed, cluster=cluster)
    with pytest.raises(ValueError, match=r"KMeans\(\) needs all rows"):
        fit(DaskRPML, shards, {**SETTINGS, "clustering": KMeans()}, cluster=cluster)
    with pytest.raises(ValueError, match="sampler='hard' is not available"):
        fit(DaskRPML, shards, {**SETTINGS, "sampler": "hard"}, cluster=cluster)
    with pytest.raises(ValueError, match="n_components=99 must not exceed"):
        fit(DaskRPML, shards, {"n_components": 99}, cluster=cluster)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": "hard"}, "sampler='hard' is not available"),
        ({"clustering": AuthorityAscentShift(merge="ward")}, "merge"),
        ({"clustering": [0, 1]}, "one value per row"),
        ({"init": np.eye(17, 4)}, r"init must have shape \(16, 4\)"),
        ({"init": np.eye(15, 4)}, r"init must have shape \(16, 4\)"),
    ],
)
def test_wrong_settings_are_refused_before_any_work(
    cluster, shards, monkeypatch, settings, message
):
    from rpml.distributed import DaskRPML

    monkeypatch.setattr("rpml.distributed.estimator.learn", None)
    with pytest.raises(ValueError, match=message):
        fit(DaskRPML, shards, {**SETTINGS, **settings}, cluster=cluster)


def test_an_initial_matrix_of_rows_that_vary_in_few_directions(cluster, rows, monkeypatch):
    import dask.array as da

    from rpml.distributed import DaskRPML

    monkeypatch.setattr("rpml.distributed.estimator.learn", None)
    X = da.from_array(np.hstack([rows, rows[:, :5]]), chunks=(300, -1))
    for p, error in ((21, ValueError), (15, ValueError), (16, TypeError)):
        with pytest.raises(error, match=r"shape \(16, 4\)|not callable"):
            fit(DaskRPML, X, {**SETTINGS, "init": np.eye(p, 4)}, cluster=cluster)


@pytest.mark.parametrize("y", [None, "unlabeled"])
def test_labels_that_are_missing_warn(cluster, shards, rows, local, y):
    from rpml.distributed import DaskRPML

    y = None if y is None else np.full(len(rows), -1)
    settings = {**SETTINGS, "clustering": local.labels_, "max_iter": 0, "use_labels": True}
    with pytest.warns(UserWarning, match="use_labels=True, but y"):
        DaskRPML(**settings).fit(shards, y, cluster=cluster)


def test_nothing_to_learn_from(cluster, shards, rows):
    from rpml.distributed import DaskRPML

    settings = {**SETTINGS, "clustering": np.zeros(len(rows), int)}
    with pytest.warns(UserWarning, match="No triplet can be formed"):
        model = DaskRPML(**settings).fit(shards, cluster=cluster)
    assert model.triplets_.shape == (0, 3)
    assert model.triplet_weights_.shape == (0,)


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
    np.testing.assert_array_equal(model.labels_, fit(RPML, plain, settings).labels_)
    np.testing.assert_array_equal(model.exemplar_vectors_, X[model.exemplars_.rows])
    found = model.to_local().transform(X)
    np.testing.assert_allclose(found, expected.to_local().transform(plain), atol=1e-4)


def test_rows_on_one_line_vary_in_one_direction(cluster):
    """What single precision loses in the moments is computed again in double precision."""
    import dask.array as da

    from rpml.distributed import DaskRPML

    rng = np.random.default_rng(0)
    X = np.outer(rng.normal(size=1200), rng.normal(size=16)).astype("f4")
    settings = {"n_neighbors": 10, "random_state": 0}
    model = fit(DaskRPML, da.from_array(X, chunks=(500, -1)), settings, cluster=cluster)
    assert model.components_.shape == (1, 1)
