"""The table for embedding-atlas."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rpml.pages.atlas import export_atlas
from rpml.pages.explorer.index import ExactIndex
from rpml.pages.items import make_items
from tests.cli.conftest import Run
from tests.drawings import Sample, make_sample

rpml = Run()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return make_sample(tmp_path_factory.mktemp("drawings"), characters=4)


def test_the_table_holds_the_map_and_the_neighbors(sample: Sample, tmp_path: Path) -> None:
    folder, out = sample.folder, tmp_path / "map.parquet"
    line = ["export", folder / "model.rpml", folder / "features.npy", "--to", "atlas", "-o", out]
    line += ["--labels", folder / "labels.txt", "--ids", folder / "ids.txt"]
    assert rpml.json(*line, "--images", sample.images)["output"] == str(out)
    table = pq.read_table(out).to_pydict()
    assert table["id"] == table["text"] == sample.ids
    assert table["label"] == sample.labels
    assert table["cluster"] == sample.model.labels_.tolist()
    points = np.stack([table["x"], table["y"]], axis=1)
    gaps = np.linalg.norm(points[:, None] - points, axis=2) + 9 * np.eye(len(points))
    labels = np.array(sample.labels)
    assert (labels[gaps.argmin(axis=1)] == labels).mean() > 0.6  # a quarter by chance
    index = ExactIndex(sample.model.transform(sample.X))
    for row in (0, 40):
        nearest, similarity = index.near_row(row, 15)
        assert table["neighbors"][row]["ids"] == nearest.tolist()
        found = np.array(table["neighbors"][row]["distances"])
        np.testing.assert_allclose(found, 1 - similarity, atol=1e-5)
    assert table["image"][0]["bytes"].startswith((b"\x89PNG", b"RIFF"))
    assert "exists" in rpml.refused(*line)


def test_other_rows_have_the_clusters_of_predict(sample: Sample, tmp_path: Path) -> None:
    X = sample.X[::2]
    texts = [f"drawing {i}" for i in range(len(X))]
    (tmp_path / "x.parquet").write_text("an older table")
    path = export_atlas(sample.model, X, make_items(len(X), texts=texts), tmp_path / "x.parquet")
    table = pq.read_table(path).to_pydict()
    assert table["text"] == texts
    assert table["cluster"] == sample.model.predict(X).tolist()
    assert "label" not in table
    assert "image" not in table


def test_wrong_usage(sample: Sample, tmp_path: Path) -> None:
    model, features = sample.folder / "model.rpml", sample.folder / "features.npy"
    out = tmp_path / "map.parquet"
    assert "needs FEATURES" in rpml.refused("export", model, "--to", "atlas", "-o", out)
    said = rpml.refused("export", model, features, "--to", "numpy", "-o", tmp_path / "m.npz")
    assert "model alone" in said
    assert "or atlas, got 'map'" in rpml.refused("export", model, "--to", "map", "-o", out)
    line = ["export", model, features, "--to", "atlas", "-o", tmp_path / "map.csv"]
    assert "something.parquet" in rpml.refused(*line)
    assert not list(tmp_path.iterdir())
