import csv
import json
import re

import numpy as np
import pytest

from rpml import RPML
from rpml.search import Index


@pytest.fixture(scope="module")
def index(rpml, shared, tmp_path_factory):
    out = tmp_path_factory.mktemp("index") / "x.index"
    rpml("index", shared / "model.rpml", shared / "x.npy", "-o", out)
    return out


def test_search_finds_what_the_library_finds(rpml, shared, vectors, index):
    X, _ = vectors
    hits = rpml.json("search", index, shared / "x.npy", "-k", 3)["hits"]
    expected = Index(RPML.load(shared / "model.rpml")).add(X).search(X, 3)
    assert [h["id"] for h in hits] == expected.ids.ravel().tolist()
    assert [h["rank"] for h in hits[:4]] == [1, 2, 3, 1]
    assert hits[0]["score"] == pytest.approx(float(expected.scores[0, 0]), abs=1e-5)


def test_low_recall_is_answered_by_an_option_of_index(rpml, shared, tmp_path):
    out = tmp_path / "bits.index"
    rpml("index", shared / "model.rpml", shared / "x.npy", "-o", out, "--codes", "binary")
    warned = rpml("search", out, shared / "x.npy", "-o", tmp_path / "hits.csv").stderr
    assert "one with --rescore int8, or with more bytes would return more" in warned


@pytest.fixture(scope="module")
def named(rpml, vectors, tmp_path_factory):
    """A folder with vectors whose columns have names, the same in another order, and a model."""
    folder = tmp_path_factory.mktemp("named")
    for name, columns in (("x", range(12)), ("turned", range(11, -1, -1))):
        header = ",".join(f"f{i}" for i in columns)
        table = vectors[0][:, list(columns)]
        np.savetxt(folder / f"{name}.csv", table, "%.9g", ",", header=header, comments="")
    rpml("fit", folder / "x.csv", "-o", folder / "m.rpml", "--dim", 4, "--keep-exemplars")
    return folder


def test_columns_in_another_order_are_refused_until_they_are_named(rpml, named):
    rpml("index", named / "m.rpml", named / "x.csv", "-o", named / "x.index")
    search = ("search", named / "x.index", named / "turned.csv", "-q")
    told = "feature 0 of .*turned.csv is 'f11', .* was fitted on 'f0' there: name the columns"
    assert re.search(told, rpml.refused(*search))
    update = ("update", named / "m.rpml", named / "x.csv", "-o", named / "new.rpml", "-q")
    assert re.search(told, rpml.refused(*update, "--old", named / "turned.csv"))
    in_order = ",".join(f"f{i}" for i in range(12))
    expected = rpml("search", named / "x.index", named / "x.csv", "-q").stdout
    assert rpml(*search, "--columns", in_order).stdout == expected


def test_scale_and_table(rpml, shared, index, tmp_path):
    out = tmp_path / "hits.csv"
    result = rpml("search", index, shared / "x.npy", "-k", 2, "--scale", "-o", out)
    with open(out, newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 480
    assert list(rows[0]) == ["query", "rank", "id", "score", "scale"]
    assert 0.9 < float(rows[0]["scale"]) <= 1
    assert result.stdout == f"480 rows found for 240 queries, written to {out}\n"
    shown = rpml("search", index, shared / "x.npy", "-k", 2, "--scale").stdout
    assert shown.split()[:5] == list(rows[0])
    assert "--force" in rpml.refused("search", index, shared / "x.npy", "-o", out)


def test_ids_go_in_and_come_out(rpml, shared, vectors, tmp_path):
    np.savez(tmp_path / "x.npz", X=vectors[0], ids=[f"bird {i}" for i in range(240)])
    rpml("index", shared / "model.rpml", tmp_path / "x.npz", "-o", tmp_path / "b.index", "--dim", 3)
    hits = rpml.json("search", tmp_path / "b.index", tmp_path / "x.npz", "-k", 1)["hits"]
    assert json.dumps(hits[5]).startswith('{"query": "bird 5", "rank": 1, "id": "bird ')


def test_refusals(rpml, shared, index, tmp_path):
    np.save(tmp_path / "narrow.npy", np.ones((2, 4)))
    assert "12 features" in rpml.refused("search", index, tmp_path / "narrow.npy")
    assert "not an index" in rpml.refused("search", shared / "model.rpml", shared / "x.npy")
    assert "not a model" in rpml.refused("embed", index, shared / "x.npy", "-o", tmp_path / "e.npy")
    args = ("index", shared / "model.rpml", shared / "x.npy", "-o")
    assert "--force" in rpml.refused(*args, index)
    assert "call it something.index" in rpml.refused(*args, tmp_path / "x.npy")
    out = tmp_path / "hits.txt"
    assert ".csv, .json or .md" in rpml.refused("search", index, shared / "x.npy", "-o", out)


def test_inspect_describes_an_index(rpml, shared, index, tmp_path):
    fields = rpml.json("inspect", index)
    assert (fields["kind"], fields["rows"], fields["features"], fields["dim"]) == (
        "index", 240, 12, 4
    )  # fmt: skip
    assert fields["bytes_per_row"] == 4
    assert fields["bytes"] == index.stat().st_size
    assert fields["ids"] is None
    told = rpml("inspect", index).stdout
    assert "int8" in told
    assert "240" in told


def test_an_index_and_its_model_share_a_fingerprint(rpml, shared, vectors, index, tmp_path):
    model, small = shared / "model.rpml", tmp_path / "named.data"
    np.savez(tmp_path / "x.npz", X=vectors[0], ids=[f"bird {i}" for i in range(240)])
    rpml("index", model, tmp_path / "x.npz", "-o", small, "--dim", 2)
    fields = rpml.json("inspect", small)
    assert (fields["kind"], fields["dim"], fields["ids"]) == ("index", 2, "text")
    found = [rpml.json("inspect", path)["fingerprint"] for path in (model, index, small)]
    assert len(set(found)) == 1
    rpml("fit", shared / "x.npy", "-o", tmp_path / "other.rpml", "--dim", 4, "--set", "whiten=0.5")
    assert rpml.json("inspect", tmp_path / "other.rpml")["fingerprint"] != found[0]


@pytest.mark.parametrize("option", ["--codes", "--rescore"])
def test_unknown_codes_name_their_option(rpml, shared, tmp_path, option):
    line = ["index", shared / "model.rpml", shared / "x.npy", "-o", tmp_path / "a.index"]
    assert f"{option} int3: choose from int8, " in rpml.refused(*line, option, "int3")
    assert "--rescore pq: choose from int8, int4, int2" in rpml.refused(*line, "--rescore", "pq")
