"""Codes and similarity quantiles of a fitted model."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rpml import RPML
from rpml.estimator import embedding
from rpml.estimator.fitted import model_arrays, model_metadata, rebuild_model
from rpml.method.codes import interleaved
from rpml.runtime.rows import unit_rows
from tests.problems import blobs

GOLDEN = Path(__file__).parent.parent / "golden"
OUTPUTS = ("int8", "int4", "int2", "binary")


@pytest.fixture(scope="module")
def rows():
    return blobs(spread=0.5)[0].astype(np.float32)


@pytest.fixture(scope="module")
def model(rows):
    return RPML(5, n_neighbors=10, random_state=0).fit(rows)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("size", [None, 3])
def test_codes_of_one_query_equal_those_of_the_batch(model, rows, output, size):
    batch = model.transform(rows, size, output)
    alone = np.vstack([model.transform(row[None], size, output) for row in rows])
    np.testing.assert_array_equal(alone, batch)


@pytest.mark.parametrize("output", [*OUTPUTS, "pq"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_do_not_change_with_the_batch_nor_the_place_in_it(output, dtype):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((1500, 300)).astype(dtype)
    model = RPML(20, random_state=0).fit(rows[:600]).learn_codebooks(rows[:600], 7)
    codes = model.transform(rows, output=output)
    order = rng.permutation(len(rows))
    np.testing.assert_array_equal(model.transform(rows[order], output=output), codes[order])
    np.testing.assert_array_equal(model.transform(rows[990:1203], output=output), codes[990:1203])


def test_codes_of_plain_rows_do_not_change_with_the_batch():
    rows = np.random.default_rng(0).standard_normal((700, 40)).astype(np.float32)
    model = RPML(8, normalize=False, random_state=0).fit(rows)
    for output in ("int8", "int2"):
        codes = model.transform(rows, output=output)
        np.testing.assert_array_equal(model.transform(rows[333:], output=output), codes[333:])


def test_codes_decode_to_the_embedding(model, rows):
    codes = model.transform(rows, output="int8")
    assert (codes.dtype, codes.shape) == (np.int8, (len(rows), 5))
    np.testing.assert_allclose(model.codec("int8").decode(codes), model.transform(rows), atol=0.01)
    for output, width in (("int4", 3), ("int2", 2), ("binary", 1)):
        packed = model.transform(rows, output=output)
        assert (packed.dtype, packed.shape) == (np.uint8, (len(rows), width))
        decoded = model.codec(output).decode(packed)
        np.testing.assert_allclose(np.linalg.norm(decoded, axis=1), 1, atol=1e-6)


def test_codebooks_are_learned_stored_and_of_one_size(model, rows, tmp_path):
    with pytest.raises(ValueError, match="no codebooks"):
        model.transform(rows, output="pq")
    model = RPML(5, n_neighbors=10, random_state=0).fit(rows).learn_codebooks(rows, 2)
    assert (model.codebooks_.dtype, model.codebooks_.shape) == (np.float32, (2, 256, 3))
    codes = model.transform(rows, output="pq")
    alone = np.vstack([model.transform(row[None], output="pq") for row in rows])
    np.testing.assert_array_equal(alone, codes)
    decoded = model.codec("pq").decode(codes)
    assert np.vecdot(decoded, model.transform(rows)).mean() > 0.95
    model.save(tmp_path / "m.rpml")
    loaded = RPML.load(tmp_path / "m.rpml")
    np.testing.assert_array_equal(loaded.transform(rows, output="pq"), codes)
    arrays, metadata = model_arrays(model), model_metadata(model)
    del arrays["product_rotation"]  # an older file: of axes that are dealt to the bytes
    older = rebuild_model(RPML, arrays, metadata, "m.rpml").codec("pq")
    np.testing.assert_array_equal(older.rotation, interleaved(5, 2))
    arrays["codebooks"] = arrays.pop("product_codebooks")  # a still older one: of a fixed rotation
    assert rebuild_model(RPML, arrays, metadata, "m.rpml").codebooks_ is None
    with pytest.raises(ValueError, match="no codebooks at this size"):
        model.transform(rows, 3, "pq")
    with pytest.raises(ValueError, match="n_bytes=6 must be an integer from 1 to the 5"):
        model.learn_codebooks(rows, 6)
    assert model.fit(rows).codebooks_ is None  # of another map


@pytest.mark.parametrize("kind", ["frame", "list"])
def test_codebooks_of_a_sample_of_a_table(rows, monkeypatch, kind):
    """Data frames and lists are not indexed by row numbers as arrays are."""
    monkeypatch.setattr(embedding, "CODEBOOK_ROWS", len(rows) // 2)
    given = pd.DataFrame(rows).add_prefix("f") if kind == "frame" else rows.tolist()
    model = RPML(5, n_neighbors=10, random_state=0).fit(given)
    found = model.learn_codebooks(given, 2).codebooks_
    np.testing.assert_allclose(found, model.learn_codebooks(np.asarray(given), 2).codebooks_)


def test_a_float_query_finds_the_same_rows_among_codes(model, rows):
    Z = model.transform(rows)
    decoded = model.codec("int8").decode(model.transform(rows, output="int8"))
    assert np.mean((Z @ decoded.T).argmax(axis=1) == np.arange(len(rows))) > 0.95


def test_plain_rows_have_codes(rows):
    model = RPML(4, n_neighbors=10, normalize=False, random_state=0).fit(rows)
    decoded = model.codec("int8").decode(model.transform(rows, output="int8"))
    Z = model.transform(rows)
    assert np.abs(decoded - Z).max() < 0.01 * np.abs(Z).max()


def test_ranges_and_quantiles_are_in_the_file(model, rows, tmp_path):
    model.save(tmp_path / "m.rpml")
    loaded = RPML.load(tmp_path / "m.rpml")
    for output in OUTPUTS:
        expected = model.transform(rows, output=output)
        np.testing.assert_array_equal(loaded.transform(rows, output=output), expected)
    assert loaded.similarity_quantile(0.7) == model.similarity_quantile(0.7)


def test_codes_stay_comparable_after_an_update(rows):
    model = RPML(5, n_neighbors=10, random_state=0).fit(rows[::2])
    before = model.code_ranges_
    model.update(rows[1::2])
    assert model.code_ranges_ is before


@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_models_have_codes_and_say_what_to_do_for_the_rest(version):
    old = RPML.load(GOLDEN / f"model_v{version}.rpml")
    expected = json.loads((GOLDEN / f"model_v{version}.json").read_text())
    codes = old.transform(np.array(expected["rows"]), output="int4")
    decoded, Z = old.codec("int4").decode(codes), np.array(expected["embedding"])
    assert np.vecdot(decoded, unit_rows(Z)).min() > 0.9
    with pytest.raises(ValueError, match="fit it again"):
        old.transform(np.array(expected["rows"]), output="int8")
    with pytest.raises(ValueError, match="fit it again"):
        old.similarity_quantile(0.5)


def test_quantiles_place_a_similarity(model, rows):
    Z = model.transform(rows)
    pairs = (Z @ Z.T)[np.triu_indices(len(Z), 1)]
    assert model.similarity_quantile(0.5) == pytest.approx(np.mean(pairs < 0.5), abs=0.01)
    assert model.similarity_quantile(0.9, "nearest") < model.similarity_quantile(0.9)
