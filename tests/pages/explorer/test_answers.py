"""What the server answers over loopback."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rpml.pages.explorer.answers import Answers
from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import Catalog, make_catalog, start_work
from rpml.pages.explorer.uploads import Upload, parse_vector, sample_image
from rpml.pages.items import make_items
from rpml.runtime.errors import InputError
from tests.drawings import HOSTILE, Sample
from tests.pages.explorer.client import Client, running


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def test_the_page_and_its_parts_are_served(client: Client) -> None:
    page = client.get("/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    for name in ("base.css", "explore.css", "scatter.js", "legend.js", "explore.js"):
        assert f"/static/{name}".encode() in page.body
        assert client.get(f"/static/{name}").status == 200
    assert b"<script>" not in page.body
    assert b"style=" not in page.body


def test_about_and_status(client: Client, sample: Sample) -> None:
    about = client.json("/api/about")
    assert about["rows"] == len(sample.X)
    assert about["spaces"]["rpml"]["n_dims"] == 16
    assert about["categories"] == ["label", "cluster"]
    status = client.json("/api/status")
    assert {part["state"] for part in status.values()} == {"ready"}


@pytest.mark.parametrize("space", ["raw", "rpml"])
def test_neighbors_are_those_of_the_space(client: Client, sample: Sample, space: str) -> None:
    vectors = sample.X if space == "raw" else sample.model.transform(sample.X)
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = rows @ rows[42]
    scores[42] = -1
    found = client.json("/api/neighbors", id=sample.ids[42], space=space, k=5)
    assert [item["row"] for item in found["items"]] == np.argsort(-scores)[:5].tolist()
    assert found["query"]["row"] == 42
    first = found["items"][0]
    assert first["id"] == sample.ids[first["row"]]
    assert first["label"] == sample.labels[first["row"]]
    assert first["similarity"] == pytest.approx(scores.max(), abs=1e-3)
    assert client.json("/api/neighbors", row=42, space=space, k=5)["items"] == found["items"]


def test_ids_are_found_by_a_part(client: Client, sample: Sample) -> None:
    found = client.json("/api/find", q="/003-", most=50)["items"]
    assert [item["id"] for item in found] == [i for i in sample.ids if "/003-" in i]
    assert client.json("/api/find", q=sample.ids[5].upper())["items"][0]["row"] == 5
    assert client.json("/api/find", q="nothing like it")["items"] == []
    assert client.json("/api/find", q="")["items"] == []
    assert client.json("/api/find", q="png\nArm")["items"] == []  # does not reach over two ids
    last = client.json("/api/find", q=sample.ids[-1])["items"]
    assert [item["row"] for item in last] == [len(sample.ids) - 1]


def test_a_random_item_and_one_item(client: Client, sample: Sample) -> None:
    assert client.json("/api/random")["id"] in sample.ids
    assert client.json("/api/item", row=3)["id"] == sample.ids[3]


def test_clusters_can_be_listed_and_opened(client: Client, sample: Sample) -> None:
    labels = sample.model.labels_
    listed = client.json("/api/clusters", sort="size", most=500)
    sizes = [c["size"] for c in listed["clusters"]]
    assert sizes == sorted(sizes, reverse=True)
    assert listed["total"] == len(np.unique(labels[labels >= 0]))
    impurity = [
        c["impurity"] or -1 for c in client.json("/api/clusters", sort="impurity")["clusters"]
    ]
    assert impurity == sorted(impurity, reverse=True)
    name = listed["clusters"][0]["cluster"]
    opened = client.json("/api/cluster", cluster=name)
    members = {m["row"] for m in opened["members"]}
    assert members == set(np.flatnonzero(labels == name).tolist())
    assert opened["members"][0]["row"] == opened["mode"]["row"]
    assert {int(k) for k in opened["tree"]} == members
    assert set(opened["tree"].values()) <= members
    rows = np.frombuffer(client.get("/api/cluster/rows", {"cluster": name}).body, "<u4")
    assert set(rows.tolist()) == members


def test_the_map_has_a_point_a_row(client: Client, sample: Sample) -> None:
    for space in ("raw", "rpml"):
        body = client.get("/api/map", {"space": space}).body
        assert np.frombuffer(body, "<u2").shape == (2 * len(sample.X),)
    category = client.json("/api/category", name="label")
    assert [category["names"][c] for c in category["codes"]] == sample.labels


def test_pictures_are_encoded_anew(client: Client) -> None:
    small = client.get("/picture/3")
    assert small.headers["content-type"] == "image/webp"
    assert small.body[8:12] == b"WEBP"
    assert client.get("/picture/3?large=1").status == 200
    assert client.get("/picture/99999").status == 404


def test_the_result_can_be_exported(client: Client, sample: Sample) -> None:
    got = client.get("/api/neighbors.csv", {"id": sample.ids[0], "k": 4})
    assert "attachment" in got.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(got.body.decode())))
    assert [r["space"] for r in rows] == ["raw"] * 4 + ["rpml"] * 4
    assert rows[0]["query"] == sample.ids[0]
    assert rows[0]["id"] == sample.ids[int(rows[0]["row"])]
    name = sample.model.labels_[0]
    members = client.get("/api/cluster.csv", {"cluster": name}).body.decode()
    assert sample.ids[0] in members


def test_an_uploaded_vector_is_a_query(client: Client, sample: Sample) -> None:
    for array in (sample.X[9], sample.X[9:10].astype(np.float64), sample.X[9].astype(np.float16)):
        kept = client.post("/api/upload/vector", npy(array), x_file_name="my%20query.npy")
        assert kept.status == 200
        assert kept.json["name"] == "my query.npy"
        for space in ("raw", "rpml"):
            found = client.json("/api/neighbors", upload=kept.json["upload"], space=space, k=2)
            assert found["items"][0]["row"] == 9
            assert found["query"]["title"] == "my query.npy"
            assert not found["query"]["picture"]
    again = client.post("/api/upload/vector", npy(sample.X[9])).json["upload"]
    assert client.post("/api/upload/vector", npy(sample.X[9])).json["upload"] == again


def hostile(descr: str, shape: str) -> bytes:
    """A .npy file with any text as type and shape."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8 * 392)


@pytest.mark.parametrize(
    "body",
    [
        hostile("'<f8'", "(" + "9" * 30 + ",)"),
        hostile("'<f8'", "(-1,)"),
        hostile("'<f8'", "(" * 3000 + ")" * 3000),
        hostile("'<f8'", "-" * 9000 + "1"),
        hostile("[('a', " * 900 + "'<f8'" + ")]" * 900, "(392,)"),
        hostile("'999999999999f8'", "(392,)"),
        hostile("'|O'", "(392,)"),
        hostile('"""', "(392,)"),
    ],
)
def test_hostile_headers_are_refused(client: Client, body: bytes) -> None:
    assert client.post("/api/upload/vector", body).status == 422


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "empty"),
        (b"hello", "not a .npy file"),
        (npy(np.arange(3.0)), "shape (3,)"),
        (npy(np.array([{"a": 1}], dtype=object)), "dtype object"),
        (npy(np.array(["x"] * 392)), "dtype"),
        (npy(np.full(392, np.nan)), "NaN"),
        (npy(np.zeros(392))[:-5], "truncated"),
        (
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (9"
            + b"9" * 9,
            "npy",
        ),
        (npy(np.zeros(300_000)), "at most 2 MB"),
    ],
)
def test_wrong_uploads_are_refused(client: Client, body: bytes, sentence: str) -> None:
    answer = client.post("/api/upload/vector", body)
    assert 400 <= answer.status < 500
    assert sentence in answer.sentence


def test_images_are_refused_without_a_backbone(client: Client) -> None:
    answer = client.post("/api/upload/image", sample_image())
    assert answer.status == 404
    assert "--backbone" in answer.sentence


@pytest.fixture
def seeing(sample: Sample) -> Iterator[Client]:
    """A server whose network knows one picture, and refuses text."""

    def describe(data: bytes) -> tuple[np.ndarray, bytes | None]:
        if data == b"text":
            raise InputError("the uploaded image: not an image that can be read")
        return sample.X[4], None

    catalog = make_catalog(sample.model, sample.X, make_items(len(sample.X)))
    with running(make_app(catalog, describe=describe)) as port:
        yield Client(port)


def test_an_uploaded_image_is_a_query(seeing: Client) -> None:
    kept = seeing.post("/api/upload/image", sample_image(), x_file_name="bird.jpg")
    found = seeing.json("/api/neighbors", upload=kept.json["upload"], space="raw", k=1)
    assert found["items"][0]["row"] == 4
    refused = seeing.post("/api/upload/image", b"text")
    assert refused.status == 422
    assert "not an image" in refused.sentence


def test_what_is_not_ready_is_said(seeing: Client) -> None:
    assert seeing.json("/api/status")["map"]["state"] == "working"
    for path in ("/api/map", "/api/clusters"):
        answer = seeing.get(path)
        assert answer.status == 503
        assert "ask again" in answer.sentence
    assert seeing.get("/picture/1").status == 404


def test_queries_are_listed_and_find_items(sample: Sample) -> None:
    queries = sample.X[[9, 4]] + 1e-3
    items = replace(make_items(len(sample.X)), queries=queries)
    answers = Answers(make_catalog(sample.model, sample.X, items))
    listed = answers.about({})["queries"]
    assert list(listed.values()) == ["query 0", "query 1"]
    for token, row in zip(listed, (9, 4), strict=True):
        for space in ("raw", "rpml"):
            found = answers.neighbors({"upload": token, "space": space, "k": "3"})
            assert found["items"][0]["row"] == row
            assert found["query"]["row"] is None


def test_uploads_are_forgotten_in_order(catalog: Catalog) -> None:
    answers = Answers(catalog)
    uploads = [Upload(str(i), np.array([float(i)])) for i in range(300)]
    for upload in uploads:
        answers.add_upload(upload)
    assert uploads[0].token not in answers.uploads
    assert answers.uploads[uploads[-1].token].name == "299"


def test_an_npy_of_version_2_is_read() -> None:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.arange(4.0), version=(2, 0))
    assert parse_vector(out.getvalue(), 4).tolist() == [0, 1, 2, 3]


def test_other_rows_have_no_clusters(sample: Sample) -> None:
    catalog: Catalog = make_catalog(sample.model, sample.X[:100], make_items(100))
    start_work(catalog, sample.X[:100]).join()
    with running(make_app(catalog)) as port:
        answer = Client(port).get("/api/clusters")
        assert answer.status == 404
        assert "not the rows the model was fitted on" in answer.sentence
        assert Client(port).json("/api/about")["categories"] == []


def test_hostile_ids_come_back_as_they_are(sample: Sample) -> None:
    ids = [f"{HOSTILE}\u2028{i}" for i in range(50)]
    catalog = make_catalog(sample.model, sample.X[:50], make_items(50, ids))
    with running(make_app(catalog)) as port:
        answer = Client(port).get("/api/neighbors", {"id": ids[0]})
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["query"]["id"] == ids[0]
        assert Client(port).json("/api/find", q="</script>", most=3)["items"][2]["id"] == ids[2]


def test_similarities_on_a_scale(catalog: Catalog) -> None:
    with running(make_app(catalog, scale=True)) as port:
        for space in ("raw", "rpml"):
            items = Client(port).json(f"/api/neighbors?row=3&space={space}&k=30")["items"]
            scale = catalog.indices[space].similarity_scale
            shares = [item["scale"] for item in items]
            expected = scale.quantile([item["similarity"] for item in items])
            assert shares == pytest.approx(expected.tolist(), abs=2e-3)
            assert shares == sorted(shares, reverse=True)
            assert shares[0] > 0.95


def test_no_scale_unless_asked(client: Client) -> None:
    assert "scale" not in client.json("/api/neighbors?row=3&space=raw")["items"][0]
