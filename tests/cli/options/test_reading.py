"""Tables about the rows are matched by the ids of the vectors, whatever their column is called."""

import numpy as np
import pytest

from rpml import RPML
from rpml.cli.commands.fit import SupervisionOptions
from rpml.cli.options import parse_names, parse_numbers
from rpml.cli.options.knowledge import read_nuisance_columns
from rpml.cli.options.reading import LabeledReadingOptions
from rpml.evaluation.protocol import from_file
from rpml.io.features import ReadOptions, read_features
from rpml.pages.items import read_texts
from rpml.runtime.errors import InputError

KINDS = ["tit", "jay", "owl"] * 4


@pytest.fixture
def folder(tmp_path):
    """Vectors and a table about them, both with ids called image, in another order."""
    X = np.random.default_rng(0).normal(size=(12, 3))
    rows = [f"{i}.jpg," + ",".join(map(str, x)) for i, x in enumerate(X)]
    (tmp_path / "x.csv").write_text("\n".join(["image,a,b,c", *rows]))
    for name in ("label", "group", "text"):
        about = [f"{i}.jpg,{KINDS[i]}" for i in reversed(range(12))]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"image,{name}", *about]))
    return tmp_path


@pytest.mark.parametrize("id_column", [None, "image"])
def test_labels_groups_texts_and_a_nuisance(folder, id_column):
    data = read_features(folder / "x.csv", ReadOptions(id_column=id_column))
    reading, model = LabeledReadingOptions(id_column=id_column), RPML()
    assert reading.read_labels(str(folder / "label.csv"), data).tolist() == KINDS
    assert read_texts(folder / "text.csv", data) == KINDS
    path = str(folder / "label.csv")
    assert read_nuisance_columns(path, data, reading)["label"].tolist() == KINDS
    known = SupervisionOptions(groups=str(folder / "group.csv"), pseudo_labels=path)
    assert known.read(model, data, reading)["groups"].tolist() == KINDS
    assert model.clustering.tolist() == KINDS


def test_a_matrix_of_other_ids_is_no_nuisance(folder):
    data = read_features(folder / "x.csv")
    np.save(folder / "numbers.npy", np.arange(24.0).reshape(12, 2))
    path, reading = str(folder / "numbers.npy"), LabeledReadingOptions()
    assert len(read_nuisance_columns(path, data, reading)) == 2
    (folder / "numbers.ids.csv").write_text("\n".join(["id", *data.ids]))
    assert len(read_nuisance_columns(path, data, reading)) == 2
    (folder / "numbers.ids.csv").write_text("\n".join(["id", *data.ids[::-1]]))
    with pytest.raises(InputError, match="other ids, or another order"):
        read_nuisance_columns(path, data, reading)


def test_labels_of_a_benchmark(folder):
    classes = [1, 101, 2, 102] * 3
    lines = [f"{i}.jpg,{classes[i]}" for i in reversed(range(12))]
    (folder / "label.csv").write_text("\n".join(["image,label", *lines]))
    found = from_file("cub", str(folder / "x.csv"), ReadOptions(), str(folder / "label.csv"))
    assert found.labels.tolist() == classes


@pytest.mark.parametrize(
    ("text", "names"), [("pca,, rpml,", ["pca", "rpml"]), (",", None), ("", None), (None, None)]
)
def test_names_are_separated_by_commas(text: str | None, names: list[str] | None) -> None:
    assert parse_names(text) == names


def test_a_number_that_is_repeated_counts_once() -> None:
    assert parse_numbers("--bytes", "8, 16,8") == [8, 16]
