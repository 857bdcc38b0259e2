import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpml import RPML
from rpml.io.features import read_features


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "tsv", "parquet"])
def test_ids_and_values_reach_every_kind(rpml, shared, vectors, tmp_path, kind):
    X, _ = vectors
    ids = [f"bird {i}" for i in range(len(X))]
    pq.write_table(pa.table({"id": ids, "v": pa.array(X.tolist(), pa.list_(pa.float32()))}),
                   tmp_path / "x.parquet")  # fmt: skip
    out = tmp_path / f"out.{kind}"
    rpml("embed", shared / "model.rpml", tmp_path / "x.parquet", "-o", out)
    features = read_features(out)
    expected = RPML.load(shared / "model.rpml").transform(X)
    np.testing.assert_allclose(features.values, expected, atol=1e-6)
    assert features.ids.tolist() == ids


def test_shards_in_shards_out(rpml, shared, vectors, tmp_path):
    X, _ = vectors
    (tmp_path / "in").mkdir()
    for i in range(3):
        np.save(tmp_path / "in" / f"{i}.npy", X[80 * i : 80 * i + 80])
    rpml("embed", shared / "model.rpml", tmp_path / "in", "-o", f"{tmp_path}/out/")
    expected = RPML.load(shared / "model.rpml").transform(X)
    np.testing.assert_allclose(read_features(tmp_path / "out").values, expected, atol=1e-6)


def test_pipe(rpml, shared, vectors):
    X, _ = vectors
    text = "\n".join(",".join(map(str, row)) for row in X[:5].tolist())
    result = rpml("embed", shared / "model.rpml", "-", "-o", "-", "-q", input=text)
    rows = list(csv.reader(result.stdout.splitlines()))
    assert rows[0] == ["id", "rpml0", "rpml1", "rpml2", "rpml3"]
    expected = RPML.load(shared / "model.rpml").transform(X[:5])
    np.testing.assert_allclose(np.array(rows[1:], float)[:, 1:], expected, atol=1e-5)


def test_prefix_is_the_smaller_embedding(rpml, shared, vectors, tmp_path):
    rpml("embed", shared / "model.rpml", shared / "x.npy", "-o", tmp_path / "e.npy", "--dim", 2)
    full = RPML.load(shared / "model.rpml").transform(vectors[0])
    prefix = full[:, :2] / np.linalg.norm(full[:, :2], axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), prefix, atol=1e-6)


def test_wrong_number_of_features(rpml, shared, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 5)))
    said = rpml.refused(
        "embed", shared / "model.rpml", tmp_path / "x.npy", "-o", tmp_path / "e.npy"
    )
    assert "fitted on 12 features" in said
    assert "has 5" in said


def test_more_components_than_there_are(rpml, shared, tmp_path):
    said = rpml.refused(
        "embed", shared / "model.rpml", shared / "x.npy", "-o", tmp_path / "e.npy", "--dim", 9
    )
    assert "--dim 9 is more than the 4 components" in said


def test_existing_output_needs_force(rpml, shared, tmp_path):
    args = ["embed", shared / "model.rpml", shared / "x.npy", "-o", tmp_path / "e.npy"]
    rpml(*args)
    assert "--force" in rpml.refused(*args)
    rpml(*args, "--force")


def test_a_bad_row_at_the_end_leaves_no_output(rpml, shared, vectors, tmp_path):
    X = vectors[0].copy()
    X[-1, 3] = np.nan
    np.save(tmp_path / "x.npy", X)
    said = rpml.refused(
        "embed", shared / "model.rpml", tmp_path / "x.npy", "-o", tmp_path / "e.npy", "-q"
    )
    assert "row 239, column 3" in said
    assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize("codes", ["int8", "int4", "int2", "binary"])
@pytest.mark.parametrize("kind", ["npy", "parquet", "csv"])
def test_codes_reach_the_file(rpml, shared, vectors, tmp_path, codes, kind):
    out = tmp_path / f"c.{kind}"
    rpml("embed", shared / "model.rpml", shared / "x.npy", "-o", out, "--codes", codes)
    expected = RPML.load(shared / "model.rpml").transform(vectors[0], output=codes)
    found = read_features(out).values
    np.testing.assert_array_equal(found, expected)
    if kind != "csv":
        assert found.dtype == expected.dtype


def test_unknown_codes_and_models_without_ranges(rpml, shared, tmp_path):
    args = ["embed", shared / "model.rpml", shared / "x.npy", "-o", tmp_path / "c.npy", "--codes"]
    assert "--codes int3: choose from int8, " in rpml.refused(*args, "int3")
    assert "no codebooks at this size: fit it with --bytes." in rpml.refused(*args, "pq")
    old = Path(__file__).parents[2] / "golden" / "model_v1.rpml"
    np.save(tmp_path / "x.npy", np.eye(6))
    said = rpml.refused(
        "embed", old, tmp_path / "x.npy", "-o", tmp_path / "c.npy", "--codes", "int8"
    )
    assert "no int8 ranges" in said
    assert "fit it again" in said
    assert not (tmp_path / "c.npy").exists()


def test_columns_are_carried_through(rpml, shared, vectors, tmp_path):
    X, _ = vectors
    source, out = tmp_path / "x.parquet", tmp_path / "y.parquet"
    pq.write_table(pa.table({"title": [f"t{i}" for i in range(240)], "v": X.tolist()}), source)
    rpml("embed", shared / "model.rpml", source, "-o", out, "--keep-columns", "title")
    table = pq.read_table(out)
    assert table.column_names == ["title", "embedding"]
    assert table["title"][7].as_py() == "t7"
    args = ("embed", shared / "model.rpml", shared / "x.npy", "-o", tmp_path / "z.csv")
    assert "no columns to keep" in rpml.refused(*args, "--keep-columns", "title")


def test_one_is_counted_as_one(rpml, shared, vectors, tmp_path):
    np.save(tmp_path / "one.npy", vectors[0][:1])
    model, one, out = shared / "model.rpml", tmp_path / "one.npy", tmp_path / "z.npy"
    said = rpml("embed", model, one, "-o", out, "--dim", 1).stdout
    assert said == f"{out}: 1 row, 1 dimension\n"
    index = tmp_path / "one.index"
    assert rpml("index", model, one, "-o", index).stdout == f"{index}: 1 row, 4 bytes per row\n"
    said = rpml("search", index, one, "-o", tmp_path / "hits.csv").stdout
    assert said.startswith("1 row found for 1 query, ")
