"""Models on disk: what was fitted comes back; forged content is refused."""

import json
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.cluster import KMeans

from rpml import RPML, AuthorityAscentShift
from rpml.estimator.fitted import model_arrays, model_metadata
from rpml.io.container import FORMAT_VERSION, read_model, write_container
from rpml.runtime.errors import ModelFormatError

GOLDEN = Path(__file__).parent.parent / "golden"


def data(dtype=np.float32):
    rng = np.random.default_rng(0)
    y = np.arange(150) % 6
    return (rng.normal(size=(6, 10))[y] + 0.4 * rng.normal(size=(150, 10))).astype(dtype)


@pytest.fixture(scope="module")
def fitted():
    return RPML(4, n_neighbors=10, training="always", random_state=0).fit(data())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"weight": "bilinear"},
        {"weight": "constant", "normalize": False},
        {"solver": "stochastic", "n_epochs": 1},
        {"solver": "gd", "max_iter": 3},
        {"whiten": None},
        {"clustering": AuthorityAscentShift(12, n_clusters=3)},
        {"clustering": KMeans(6, n_init=1)},
        {"clustering": np.arange(150) % 6},
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_round_trip(tmp_path, settings):
    settings = {"n_neighbors": 10, "training": "always", "random_state": 0, **settings}
    model = RPML(4, **settings).fit(data())
    for training in (False, True):
        model.save(tmp_path / "m.rpml", training=training)
        loaded = RPML.load(tmp_path / "m.rpml")
        for dtype in (np.float32, np.float64):
            found, expected = (m.transform(data(dtype)) for m in (loaded, model))
            np.testing.assert_allclose(found, expected, atol=1e-6)
        back = (m.inverse_transform(expected) for m in (loaded, model))
        np.testing.assert_allclose(*back, atol=1e-5)
        for output in ("int8", "binary"):
            codes = [m.transform(data(), output=output).astype(int) for m in (loaded, model)]
            if output == "int8":  # the stored map is rounded, which can move a code by one step
                assert np.mean(codes[0] != codes[1]) < 0.01
                np.testing.assert_allclose(*codes, atol=1)
            else:
                np.testing.assert_array_equal(*codes)
        for name in ("history_", "n_iter_", "converged_", "message_", "n_features_in_", "weight"):
            assert getattr(loaded, name) == getattr(model, name)
        loaded.save(tmp_path / "again.rpml", training=training)
        if not settings.keys() & {"clustering"}:
            assert (tmp_path / "again.rpml").read_bytes() == (tmp_path / "m.rpml").read_bytes()
    for name in ("labels_", "triplets_", "triplet_weights_", "theta_"):
        found, expected = getattr(loaded, name), getattr(model, name)
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(loaded.components_, model.components_, atol=1e-7)


def test_a_file_holds_the_map_and_little_else(tmp_path):
    """In single precision; labels only where they cannot be made again."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 64)).astype(np.float32) + 1
    model = RPML(16, n_neighbors=10, training="always", tol=0.1, random_state=0).fit(X)
    model.save(tmp_path / "m.rpml")
    arrays = read_model(tmp_path / "m.rpml")[0]
    assert arrays.keys() == {"mean", "map", "code_ranges", "similarity_quantiles"}
    assert (arrays["map"].shape, arrays["map"].dtype) == ((16, 64), np.float32)
    assert (tmp_path / "m.rpml").stat().st_size < 4 * 16 * 64 + 20_000
    with pytest.raises(AttributeError, match="training=True"):
        _ = RPML.load(tmp_path / "m.rpml").labels_
    labels = np.where(np.arange(300) < 20, np.arange(300) % 4, -1)
    few = RPML(16, n_neighbors=10, use_labels=True, tol=0.1, random_state=0).fit(X, labels)
    few.save(tmp_path / "few.rpml")
    np.testing.assert_array_equal(RPML.load(tmp_path / "few.rpml").labeled_mask_, labels >= 0)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_rows_of_any_unit_come_back(tmp_path, scale):
    X = data(np.float64) * scale
    model = RPML(4, normalize_input=False, random_state=0).fit(X)
    model.save(tmp_path / "m.rpml")
    np.testing.assert_allclose(
        RPML.load(tmp_path / "m.rpml").transform(X), model.transform(X), atol=1e-6
    )


def test_settings_of_our_clustering_come_back(tmp_path):
    aas = AuthorityAscentShift(12, n_clusters=3)
    RPML(3, clustering=aas, random_state=0).fit(data()).save(tmp_path / "m.rpml")
    assert RPML.load(tmp_path / "m.rpml").clustering.get_params() == aas.get_params()


def test_foreign_clustering_is_text_and_a_refit_says_so(tmp_path):
    RPML(3, clustering=KMeans(6, n_init=1), random_state=0).fit(data()).save(tmp_path / "m")
    loaded = RPML.load(tmp_path / "m")
    assert "KMeans" in loaded.clustering
    with pytest.raises(ValueError, match="clustering"):
        loaded.fit(data())


def test_feature_names(tmp_path):
    pandas = pytest.importorskip("pandas")
    names = [f"f{i}" for i in range(10)]
    table = pandas.DataFrame(data(), columns=names)
    RPML(3, n_neighbors=10, random_state=0).fit(table).save(tmp_path / "m.rpml")
    loaded = RPML.load(tmp_path / "m.rpml")
    assert loaded.feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match=r"[Ff]eature names"):
        loaded.transform(table[names[::-1]])


def test_metadata_has_what_a_reader_needs(tmp_path, fitted):
    fitted.save(tmp_path / "m.rpml")
    arrays, metadata = read_model(tmp_path / "m.rpml")
    assert metadata["format_version"] == FORMAT_VERSION
    assert metadata["rpml_version"]
    assert metadata["settings"]["n_components"] == 4
    assert metadata["training"]["n_rows"] == 150
    assert set(metadata["preprocessing"]) == {"unit_input", "unit_output"}
    assert arrays["map"].shape == (4, 10)
    assert "callback" not in metadata["settings"]


def test_the_same_fit_gives_the_same_bytes(tmp_path, fitted):
    fitted.save(tmp_path / "a")
    RPML(4, n_neighbors=10, training="always", random_state=0).fit(data()).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def changes(arrays):
    """Forgeries whose checksum is right: only the content is wrong."""
    d, p = arrays["matrix"].shape
    yield "a missing array", {"components": None}, {}
    yield "components of another width", {"components": np.zeros((4, p + 1))}, {}
    yield "no components", {"components": np.zeros((0, p))}, {}
    yield "a flat matrix", {"matrix": np.zeros(d * p)}, {}
    yield "a mean of another length", {"mean": np.zeros(d + 1)}, {}
    yield "integers", {"components": np.zeros((4, p), np.int32)}, {}
    yield "not finite", {"mean": np.full(d, np.nan)}, {}
    yield "triplets of two", {"triplets": np.zeros((5, 2), np.int32)}, {}
    yield "triplets outside", {"triplets": arrays["triplets"] + 1000}, {}
    yield "fewer weights", {"triplet_weights": np.zeros(1)}, {}
    yield "labels in two dimensions", {"labels": np.zeros((3, 3), np.int32)}, {}
    yield "ranges of another size", {"code_ranges": np.zeros((3, 9), np.float32)}, {}
    yield "flat quantiles", {"similarity_quantiles": np.zeros(9, np.float32)}, {}
    yield "labels beyond any table", {"labels": np.full(len(arrays["labels"]), 2**31 - 1)}, {}
    yield "labels below -1", {"labels": arrays["labels"] * 0 - 2}, {}
    yield "components of no unit norm", {"components": np.full((4, p), 1e6)}, {}
    yield "weights that are not finite", {"triplet_weights": arrays["triplet_weights"] * np.nan}, {}
    yield "more axes than features", {"matrix": np.zeros((1, p)), "mean": np.zeros(1)}, {}
    yield "exemplars without labels", {"exemplar_labels": None}, {}
    yield "no settings", {}, {"settings": None}
    yield "endless epochs", {}, {"settings": {"n_epochs": 10**12}}
    yield "a setting of another type", {}, {"settings": {"alpha": "wide"}}
    yield (
        "a setting of the clustering",
        {},
        {"settings": {"clustering": {"AuthorityAscentShift": {"gamma": -1}}}},
    )
    yield "nested too deeply", {}, {"settings": {"alpha": json.loads("[" * 30 + "]" * 30)}}
    yield "text where a table belongs", {}, {"run": {"options": "x.npy"}}
    yield "text as training", {}, {"training": "yes"}
    yield "a history of text", {}, {"training": {"history": "loss"}}
    yield "text as whitening", {}, {"whitening": "none"}
    yield (
        "evidence that is no pairs",
        {},
        {"whitening": {"source": "", "shrinkage": 1.0, "evidence": [[1.0]]}},
    )
    yield "settings as a list", {}, {"settings": [1]}
    yield "a list as a setting", {}, {"settings": {"alpha": [1]}}
    yield "an unknown clustering", {}, {"settings": {"clustering": {"os.system": {"a": "rm"}}}}
    yield "a flag that is text", {}, {"preprocessing": {"unit_input": "yes", "unit_output": True}}
    yield "a map of another width", {"map": np.zeros((4, d + 1))}, {}
    yield "too few names", {}, {"feature_names": ["a"]}
    yield "names as a number", {}, {"feature_names": 7}
    yield "no training", {}, {"training": {}}
    yield "history as text", {}, {"training": {"n_iter": 1, "converged": True, "message": "",
                                              "history": {"loss": ["x"]}}}  # fmt: skip


EXAMPLE = {n: np.zeros((2, 2)) for n in ("matrix", "triplets", "labels", "triplet_weights")}
FORGERIES = [name for name, _, _ in changes(EXAMPLE)]


@pytest.mark.parametrize("name", FORGERIES)
def test_forgery(tmp_path, fitted, name):
    arrays, metadata = model_arrays(fitted, training=True), model_metadata(fitted)
    _, replaced, fields = next(c for c in changes(arrays) if c[0] == name)
    arrays = {k: v for k, v in {**arrays, **replaced}.items() if v is not None}
    write_container(tmp_path / "m.rpml", arrays, {**metadata, **fields}, "model", FORMAT_VERSION)
    with pytest.raises(ModelFormatError) as caught:
        RPML.load(tmp_path / "m.rpml")
    assert "\n" not in str(caught.value)
    assert "damaged" in str(caught.value)


def test_an_embedding_is_never_nan(fitted):
    """Weights that are allowed one by one and overflow together, and rows beyond the model."""
    model = copy(fitted)
    model.components_ = np.ones((4, 10))
    model.preprocessing_ = replace(fitted.preprocessing_, matrix=np.full((10, 10), 3e38))
    for normalize in (True, False):
        model.normalize = normalize
        with pytest.raises(ValueError, match=r"embedding of row \d+ .* overflows float32"):
            model.transform(data())


def test_settings_of_a_newer_package_are_left_out(tmp_path, fitted):
    metadata = model_metadata(fitted)
    metadata["settings"]["invented_later"] = 3
    write_container(tmp_path / "m.rpml", model_arrays(fitted), metadata, "model", FORMAT_VERSION)
    np.testing.assert_allclose(
        RPML.load(tmp_path / "m.rpml").transform(data()), fitted.transform(data()), atol=1e-6
    )


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_every_format_version_stays_readable(version):
    """tests/golden/make_model.py wrote these; a new format adds a file, never changes one."""
    model = RPML.load(GOLDEN / f"model_v{version}.rpml")
    expected = json.loads((GOLDEN / f"model_v{version}.json").read_text())
    rows = np.array(expected["rows"])
    tolerance = 1e-9 if version < 4 else 1e-6  # since then in single precision
    np.testing.assert_allclose(model.transform(rows), expected["embedding"], atol=tolerance)
    assert model.n_iter_ == expected["n_iter"]


def test_no_training_row_is_stored_unless_asked(tmp_path, fitted):
    fitted.save(tmp_path / "small.rpml")
    fitted.save(tmp_path / "rows.rpml", exemplars=True)
    assert "exemplar_vectors" not in read_model(tmp_path / "small.rpml")[0]
    small, whole = (RPML.load(tmp_path / name) for name in ("small.rpml", "rows.rpml"))
    np.testing.assert_array_equal(whole.predict(data()), fitted.predict(data()))
    for use in (small.predict, small.update):
        with pytest.raises(ValueError, match="--keep-exemplars"):
            use(data())
    with pytest.raises(ValueError, match="--keep-exemplars"):
        small.suggest_labels(5)
    assert len(set(small.suggest_labels(5, data()).tolist())) == 5
    fitted.save(tmp_path / "labels.rpml", training=True)
    expected = fitted.suggest_labels(5, data())
    found = RPML.load(tmp_path / "labels.rpml").suggest_labels(5, data())
    np.testing.assert_array_equal(found, expected)
