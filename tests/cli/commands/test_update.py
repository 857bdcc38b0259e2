"""New vectors and questions from the shell."""

import csv

import numpy as np

from rpml import RPML
from tests.cli.conftest import make_vectors
from tests.labels import read_labels


def test_update_is_the_librarys(rpml, shared, vectors, tmp_path):
    new = make_vectors(60, seed=0)[0] + 0.01
    np.save(tmp_path / "new.npy", new)
    out = tmp_path / "two.rpml"
    args = ("update", shared / "model.rpml", tmp_path / "new.npy", "-o", out)
    fields = rpml.json(*args, "--old", shared / "x.npy")
    library = RPML.load(shared / "model.rpml").update(new, vectors[0])
    assert fields["new_rows"] == 60
    assert fields["drift"] == library.drift_
    np.testing.assert_allclose(RPML.load(out).transform(new), library.transform(new), atol=1e-6)
    assert "exists" in rpml.refused(*args)
    rpml(*args, "--force")


def test_update_refuses_other_features(rpml, shared, tmp_path):
    np.save(tmp_path / "new.npy", np.ones((5, 3), np.float32))
    args = ("update", shared / "model.rpml", tmp_path / "new.npy", "-o", tmp_path / "m.rpml")
    assert "was fitted on 12 features" in rpml.refused(*args)
    assert not (tmp_path / "m.rpml").exists()


def test_suggestions_with_and_without_ids(rpml, shared, vectors, tmp_path):
    expected = RPML.load(shared / "model.rpml").suggest_labels(5).tolist()
    fields = rpml.json("suggest", shared / "model.rpml", "-n", 5, "-o", tmp_path / "ask.csv")
    assert fields["suggested"] == expected
    with open(tmp_path / "ask.csv") as file:
        asked = list(csv.DictReader(file))
    assert [int(row["row"]) for row in asked] == expected
    answers = "".join(f"{row['id']},{row['row']},known\n" for row in asked)
    (tmp_path / "answered.csv").write_text("id,row,label\n" + answers)
    labels = read_labels(tmp_path / "answered.csv", len(vectors[0]), partial=True)
    assert [i for i, label in enumerate(labels) if label] == sorted(expected)
    names = [f"bird {i}" for i in range(len(vectors[0]))]
    table = tmp_path / "x.csv"
    with open(table, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"f{i}" for i in range(12))])
        writer.writerows([name, *row] for name, row in zip(names, vectors[0].tolist(), strict=True))
    args = ("suggest", shared / "model.rpml", "-n", 5, "-o", tmp_path / "named.csv")
    rpml(*args, "--features", table)
    with open(tmp_path / "named.csv") as file:
        found = [row["id"] for row in csv.DictReader(file)]
    with_rows = RPML.load(shared / "model.rpml").suggest_labels(5, vectors[0]).tolist()
    assert found == [names[i] for i in with_rows]


def test_suggest_without_exemplars_says_what_to_pass(rpml, shared, tmp_path):
    RPML.load(shared / "model.rpml").save(tmp_path / "m.rpml")
    told = rpml.refused("suggest", tmp_path / "m.rpml", "-o", tmp_path / "ask.csv")
    assert "pass the training rows (rpml suggest --features)" in told


def test_suggest_needs_the_rows_it_was_fitted_on(rpml, shared, tmp_path):
    np.save(tmp_path / "few.npy", np.ones((5, 12), np.float32))
    args = ("suggest", shared / "model.rpml", "-o", tmp_path / "ask.csv")
    assert "has 5 rows" in rpml.refused(*args, "--features", tmp_path / "few.npy")


def test_a_model_without_exemplars_says_what_to_do(rpml, shared, tmp_path):
    RPML.load(shared / "model.rpml").save(tmp_path / "small.rpml")
    args = ("update", tmp_path / "small.rpml", shared / "x.npy", "-o", tmp_path / "new.rpml", "-q")
    assert "rpml fit --keep-exemplars" in rpml.refused(*args)
    assert not (tmp_path / "new.rpml").exists()
