"""The estimator: scikit-learn's rules, the paper's settings, safe defaults, clear refusals."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_transformer_n_iter, parametrize_with_checks

from rpml import RPML
from rpml.evaluation.metrics import recall_at_k
from rpml.runtime.errors import WeightCollapseWarning
from tests.problems import ALL_WEIGHTS, blobs

UNTRAINED = {"check_transformer_n_iter": "four columns are left to PCA, without iterations"}


@parametrize_with_checks(
    [RPML(n_components=2, random_state=0)], expected_failed_checks=lambda estimator: UNTRAINED
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_iterations_are_counted_as_scikit_learn_asks():
    check_transformer_n_iter("RPML", RPML(n_components=2, training="always", random_state=0))


@pytest.fixture(scope="module")
def digits():
    """Digits 0-4 to learn from, 5-9 to score: classes never seen in training."""
    X, y = load_digits(return_X_y=True)
    return X[y < 5].astype(np.float32), X[y >= 5].astype(np.float32), y[y >= 5]


@pytest.fixture(scope="module")
def fitted(digits):
    return RPML(n_components=8, training="always", random_state=0).fit(digits[0])


def test_attributes_have_the_promised_shapes(fitted, digits):
    n = len(digits[0])
    assert fitted.components_.shape[0] == 8
    gram = fitted.components_ @ fitted.components_.T
    np.testing.assert_allclose(gram, np.eye(8), atol=1e-10)
    assert fitted.labels_.shape == (n,)
    T = len(fitted.triplets_)
    assert fitted.triplets_.shape == (T, 3)
    assert fitted.triplet_weights_.shape == fitted.triplet_probabilities_.shape == (T,)
    assert fitted.n_features_in_ == 64
    assert len(fitted.history_["loss"]) == fitted.n_iter_ + 1
    assert list(fitted.get_feature_names_out()) == [f"rpml{i}" for i in range(8)]
    a, p, n_ = fitted.triplets_.T
    assert (fitted.labels_[a] == fitted.labels_[p]).all()
    assert (fitted.labels_[a] != fitted.labels_[n_]).all()


def test_a_prefix_of_principal_axes_is_the_smaller_fit(digits):
    fitted = RPML(n_components=8, random_state=0).fit(digits[0])
    assert not fitted.whitening_.whitens
    smaller = clone(fitted).set_params(n_components=4).fit(digits[0])
    assert not smaller.whitening_.whitens
    prefix = fitted.transform(digits[1], n_components=4)
    np.testing.assert_allclose(smaller.transform(digits[1]), prefix, atol=1e-6)


def test_rows_come_out_with_unit_norm_or_plain(fitted, digits):
    Z = fitted.transform(digits[1])
    assert Z.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1, atol=1e-6)
    plain = clone(fitted).set_params(normalize=False).fit(digits[0]).transform(digits[1])
    np.testing.assert_allclose(plain / np.linalg.norm(plain, axis=1, keepdims=True), Z, atol=1e-5)


def test_a_row_does_not_depend_on_the_others(fitted, digits):
    whole = fitted.transform(digits[1])
    alone = np.vstack([fitted.transform(digits[1][i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, whole[:20], atol=1e-6)


def test_the_same_seed_gives_the_same_model_bit_for_bit(fitted, digits):
    again = clone(fitted).fit(digits[0])
    np.testing.assert_array_equal(again.components_, fitted.components_)
    np.testing.assert_array_equal(again.triplets_, fitted.triplets_)
    other = clone(fitted).set_params(random_state=1).fit(digits[0])
    assert not np.array_equal(other.triplets_, fitted.triplets_)


def test_better_than_random_and_not_below_pca_of_the_same_size(digits):
    train, X, y = digits
    score = recall_at_k(RPML(16, random_state=0).fit(train).transform(X), y, ks=(1,))[1]
    noise = X @ np.random.default_rng(0).standard_normal((64, 16))
    assert score > recall_at_k(noise, y, ks=(1,))[1] + 0.02
    pca = PCA(16).fit(train).transform(X)
    assert score > recall_at_k(pca, y, ks=(1,))[1] - 0.02


@pytest.mark.parametrize("solver", ["cg", "stochastic", "gd"])
@pytest.mark.parametrize("weight", ALL_WEIGHTS)
def test_every_solver_and_weight_gives_a_model(weight, solver):
    X, y = blobs(spread=0.5)
    settings = {"training": "always", "max_iter": 20, "tol": 1e-3}
    model = RPML(4, weight=weight, solver=solver, random_state=0, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        Z = model.fit(X).transform(X)
    assert recall_at_k(Z, y, ks=(1,))[1] > 0.8
    assert np.isfinite(model.triplet_weights_).all()


@pytest.mark.parametrize("weight", ["concat", "bilinear"])
def test_defaults_do_not_collapse_on_positive_features(weight):
    X, y = blobs(spread=0.7)
    X = np.abs(X) + 0.01
    test_X, test_y = X[y >= 4], y[y >= 4]
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeightCollapseWarning)
        guarded = RPML(5, weight=weight, training="always", random_state=0).fit(X[y < 4])
    constant = RPML(5, weight="constant", training="always", random_state=0).fit(X[y < 4])
    assert guarded.triplet_weights_.mean() > 0.2
    scores = [recall_at_k(m.transform(test_X), test_y, ks=(1,))[1] for m in (guarded, constant)]
    assert scores[0] >= scores[1] - 0.02


def test_the_papers_settings_collapse_with_a_warning_that_names_the_remedy():
    X, _ = blobs(spread=0.7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", category=WeightCollapseWarning)
        with pytest.raises(WeightCollapseWarning, match=r"weight_ridge=0\.01 or weight='constant'"):
            RPML.paper(4, random_state=0, max_iter=300).fit(np.abs(X) + 0.01)


def test_paper_adds_nothing():
    model = RPML.paper(16, weight="bilinear", solver="stochastic")
    assert (model.weight, model.solver, model.n_components) == ("bilinear", "stochastic", 16)
    assert (model.init, model.weight_ridge, model.whiten, model.normalize) == (
        "random",
        None,
        None,
        False,
    )
    aas = model.clustering
    assert (aas.n_neighbors, aas.gamma, aas.epsilon) == (50, 100, 0.65)
    assert (model.alpha, model.batch_size, model.sampler) == (45.0, 120, "uniform")


def test_y_never_leaks_unless_asked(digits):
    X = digits[0][:300]
    rng = np.random.default_rng(0)
    plain = RPML(4, random_state=0).fit(X)
    ignored = RPML(4, random_state=0).fit(X, rng.integers(0, 3, len(X)))
    np.testing.assert_array_equal(plain.components_, ignored.components_)
    used = RPML(4, random_state=0, use_labels=True).fit(X, rng.integers(0, 3, len(X)))
    assert len(np.unique(used.labels_)) == 3


def test_clustering_may_be_an_object_or_labels(digits):
    X = digits[0][:300]
    kmeans = RPML(
        4,
        clustering=KMeans(6, n_init=1, random_state=0),
        training="always",
        random_state=0,
    ).fit(X)
    assert len(np.unique(kmeans.labels_)) == 6
    given = RPML(4, clustering=kmeans.labels_, training="always", random_state=0).fit(X)
    np.testing.assert_array_equal(given.labels_, kmeans.labels_)
    np.testing.assert_allclose(given.components_, kmeans.components_)


def test_works_in_pipeline_grid_search_and_pandas(digits):
    X, y = digits[1][:300], digits[2][:300]
    search = GridSearchCV(
        make_pipeline(RPML(random_state=0, max_iter=5, tol=1e-2), KNeighborsClassifier(3)),
        {"rpml__n_components": [2, 8]},
        cv=3,
    ).fit(X, y)
    assert search.best_params_ == {"rpml__n_components": 8}
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(64)])
    model = RPML(3, random_state=0).set_output(transform="pandas").fit(frame)
    out = model.transform(frame)
    assert list(out.columns) == ["rpml0", "rpml1", "rpml2"]
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame.rename(columns={"f0": "other"}))


def test_none_takes_what_is_available():
    X, _ = blobs(d=20)
    assert RPML(random_state=0).fit(X).components_.shape[0] == 20
    assert RPML(random_state=0).fit(X[:10]).components_.shape[0] == 9


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.uint8, bool])
def test_other_number_types_are_converted(dtype):
    X, _ = blobs()
    X = (X > 0 if dtype is bool else 10 * np.abs(X)).astype(dtype)
    Z = RPML(3, random_state=0).fit(X).transform(X)
    assert Z.dtype == (np.float32 if dtype == np.float16 else np.float64)


def test_callback_hears_of_every_stage_and_can_stop():
    X, _ = blobs()
    heard = []

    def listen(progress):
        heard.append((progress.stage, progress.done))
        return progress.stage == "optimize" and progress.done == 2

    with pytest.warns(ConvergenceWarning, match=r"on request\) after 2 iterations\.$"):
        model = RPML(3, training="always", random_state=0, callback=listen, tol=0).fit(X)
    assert model.n_iter_ == 2
    assert {"neighbors", "labels", "optimize"} <= {stage for stage, _ in heard}


def test_not_converged_always_warns():
    X, _ = blobs()
    with pytest.warns(ConvergenceWarning, match=r"max_iter reached.*raise max_iter or tol\.$"):
        RPML(3, training="always", random_state=0, max_iter=1).fit(X)
    with pytest.warns(ConvergenceWarning, match=r"max_iter reached.*or lower learning_rate"):
        RPML(3, training="always", solver="gd", random_state=0, max_iter=1).fit(X)


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.array([[1.0, 2], [3, np.nan], [5, 6]]), ValueError, "NaN at row 1, column 1"),
        (np.array([[1.0, 2], [3, 4], [-np.inf, 6]]), ValueError, "infinity at row 2, column 0"),
        (sparse.eye(5, format="csr"), TypeError, "[Ss]parse"),
        (np.array([["a", "b"], ["c", "d"]]), ValueError, "X must hold numbers"),
        (np.ones((1, 5)), ValueError, "minimum of 2 is required"),
        (np.ones((6, 3)), ValueError, "All 6 rows of X are identical"),
        (np.ones(5), ValueError, "a single vector of 5 numbers. Reshape"),
    ],
)
def test_bad_input_gets_one_clear_sentence(X, error, message):
    with pytest.raises(error, match=message):
        RPML(2).fit(X)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_components": 0},
        {"n_components": 2.5},
        {"weight": "cubic"},
        {"solver": "adam"},
        {"alpha": 90},
        {"alpha": -1},
        {"n_neighbors": 0},
        {"whiten": 1.5},
        {"weight_ridge": -0.1},
        {"max_iter": -1},
        {"subsample": 2},
        {"triplets_per_anchor": 0},
        {"init": "zeros"},
    ],
)
def test_out_of_range_parameters_are_named_with_their_value(parameters):
    X, _ = blobs()
    ((name, value),) = parameters.items()
    with pytest.raises(ValueError, match=f"'{name}' parameter of RPML.*Got {value!r}"):
        RPML(**parameters).fit(X)


def test_sizes_that_do_not_fit_are_refused():
    X, _ = blobs(d=20)
    with pytest.raises(ValueError, match="n_components=21 must not exceed the 20 features"):
        RPML(21).fit(X)
    with pytest.raises(ValueError, match="n_components=15 is more than the 9 directions"):
        RPML(15).fit(X[:10])
    with pytest.raises(ValueError, match="one value per row"):
        RPML(3, clustering=[0, 1]).fit(X)


@pytest.mark.parametrize(
    ("settings", "init", "message"),
    [
        ({}, np.eye(4), r"init must have shape \(p, 3\), .*, got \(4, 4\)\.$"),
        ({}, np.eye(20, 4), r"shape \(p, 3\)"),
        ({}, np.eye(19, 3), r"shape \(20, 3\)"),
        ({}, np.eye(21, 3), r"shape \(20, 3\)"),
        ({"whiten": 0.5}, np.eye(21, 3), r"shape \(20, 3\)"),
        ({"whiten": None}, np.eye(19, 3), r"shape \(20, 3\)"),
        ({"n_components": None}, np.eye(20, 19), r"shape \(20, 20\)"),
        ({}, np.ones((20, 3)), "linearly independent"),
        ({}, np.eye(20, 3) * np.nan, "finite numbers"),
        ({}, [["a"] * 3] * 20, "finite numbers"),
    ],
)
def test_an_initial_matrix_is_checked(settings, init, message):
    X, _ = blobs(d=20)
    reported = []
    with pytest.raises(ValueError, match=message):
        RPML(**{"n_components": 3, "init": init} | settings, callback=reported.append).fit(X)
    # the whitening, which takes long, only tells the number of axes
    assert bool(reported) == (r"\(20" in message and settings != {"whiten": None})


@pytest.mark.parametrize(("whiten", "p"), [("auto", 12), (0.5, 12), (None, 20)])
def test_an_initial_matrix_of_rows_that_vary_in_few_directions(whiten, p):
    X, _ = blobs(d=12)
    X = X @ np.random.default_rng(0).standard_normal((12, 20))
    model = RPML(3, whiten=whiten, init=np.eye(p, 3), random_state=0).fit(X)
    assert model.components_.shape == (3, p)
    for wrong in (np.eye(p - 1, 3), np.eye(p + 1, 3), np.eye(3, p)):
        with pytest.raises(ValueError, match=rf"init must have shape \(({p}|p), 3\)"):
            RPML(3, whiten=whiten, init=wrong, random_state=0).fit(X)


def test_transform_checks_its_input(fitted):
    with pytest.raises(NotFittedError):
        RPML(2).transform(np.ones((3, 4)))
    with pytest.raises(ValueError, match="64 features"):
        fitted.transform(np.ones((3, 5)))
    with pytest.raises(ValueError, match="NaN at row 0, column 3"):
        fitted.transform(np.where(np.arange(64) == 3, np.nan, 1.0)[None])


def test_fewer_rows_than_neighbors_are_enough_with_a_warning():
    X, _ = blobs(per_class=4)
    with pytest.warns(UserWarning, match="n_neighbors=50"):
        model = RPML(3, training="always", random_state=0).fit(X)
    assert model.components_.shape[0] == 3


def test_zero_rows_are_embedded():
    X, _ = blobs()
    X[:5] = 0
    Z = RPML(3, random_state=0).fit(X).transform(X)
    assert np.isfinite(Z).all()


@pytest.mark.parametrize("labels", [np.zeros(200, int), np.arange(200), np.full(200, -1)])
@pytest.mark.parametrize("solver", ["cg", "stochastic"])
def test_useless_clusters_keep_the_initial_subspace_with_a_warning(labels, solver):
    X, _ = blobs()
    with pytest.warns(UserWarning, match="initial subspace is kept"):
        model = RPML(3, clustering=labels, solver=solver, random_state=0).fit(X)
    assert len(model.triplets_) == 0
    assert np.isfinite(model.transform(X)).all()


def test_save_and_load(tmp_path, fitted, digits):
    fitted.save(tmp_path / "digits.rpml", training=True)
    loaded = RPML.load(tmp_path / "digits.rpml")
    found, expected = (model.transform(digits[1]) for model in (loaded, fitted))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert loaded.get_params() == fitted.get_params()
    np.testing.assert_array_equal(loaded.triplets_, fitted.triplets_)
    assert loaded.history_ == fitted.history_
    assert loaded.whitening_ == fitted.whitening_


def test_smaller_sizes_have_the_first_names():
    X = load_digits(as_frame=True).data[:200]
    model = RPML(4, random_state=0).fit(X)
    plain = model.transform(X, n_components=2)
    assert plain.shape == (200, 2)
    model.set_output(transform="pandas")
    frame = model.transform(X, n_components=2)
    assert list(frame.columns) == ["rpml0", "rpml1"]
    assert frame.index.equals(X.index)
    np.testing.assert_array_equal(frame.to_numpy(), plain)
    assert model.transform(X).shape == model.fit_transform(X).shape == (200, 4)
