"""Labels given in the explorer: saved at once, undone, read by fit, learned from."""

from __future__ import annotations

import csv
import json
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from rpml import RPML
from rpml.io.features.source import as_ids
from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import make_catalog, start_work
from rpml.pages.explorer.labeling import Labeling, LabelStore, check_labels_file
from rpml.pages.items import make_items
from rpml.runtime.errors import InputError
from tests.drawings import Sample
from tests.labels import read_labels
from tests.pages.explorer.client import Client, running


@pytest.fixture
def store(sample: Sample, tmp_path: Path) -> LabelStore:
    return LabelStore(make_items(len(sample.X), sample.ids), tmp_path / "labels.csv")


def test_every_change_is_saved_and_can_be_undone(store: LabelStore) -> None:
    assert not store.path.exists()
    assert store.assign([3, 1], " a  cat ") == 2
    assert store.assign([1], "dog, big") == 1
    assert store.assign([1], "dog, big") == 0
    text = store.path.read_text(encoding="utf8")
    assert text == f'id,label\n{store.items.ids[1]},"dog, big"\n{store.items.ids[3]},a cat\n'
    assert store.undo() == 1
    assert store.labels[1] == "a cat"
    assert store.undo() == 2
    assert store.undo() == 0
    assert store.path.read_text(encoding="utf8") == "id,label\n"


def test_labels_survive_the_end_of_the_process(store: LabelStore, sample: Sample) -> None:
    store.assign([3, 7], "cat")
    again = LabelStore(make_items(len(sample.X), sample.ids), store.path)
    assert again.counts() == [("cat", 2)]
    again.assign([3], None)
    assert again.rows_of("cat").tolist() == [7]


def test_fit_reads_the_file(store: LabelStore, sample: Sample, tmp_path: Path) -> None:
    store.assign(list(range(0, 40)), "first")
    store.assign(list(range(40, 80)), "second")
    y = read_labels(store.path, len(sample.X), as_ids(sample.ids), partial=True)
    assert y[:80].tolist() == ["first"] * 40 + ["second"] * 40
    assert set(y[80:].tolist()) == {None}
    numbered = LabelStore(make_items(len(sample.X)), tmp_path / "numbered.csv")
    numbered.assign([5], "x")
    assert read_labels(numbered.path, len(sample.X), partial=True)[5] == "x"


def test_formulas_are_marked_for_spreadsheets_and_read_back(tmp_path: Path) -> None:
    ids = ["=1+1", "-5", "@b", "'c"]
    labels = ["=cmd|' /C calc'!A0", "+x", "-y", "'quoted"]
    store = LabelStore(make_items(4, ids), tmp_path / "labels.csv")
    for row, label in enumerate(labels):
        store.assign([row], label)
    fields = [f for line in csv.reader(store.path.read_text().splitlines()) for f in line]
    assert [f for f in fields if f.startswith(("=", "+", "-", "@"))] == ["-5"]
    assert LabelStore(make_items(4, ids), store.path).labels == labels
    assert read_labels(store.path, 4, as_ids(ids)).tolist() == labels


def test_a_labels_file_that_becomes_a_pipe_does_not_block(store: LabelStore) -> None:
    store.assign([0], "cat")
    store.path.unlink()
    os.mkfifo(store.path)
    with pytest.raises(InputError, match="no longer a regular file"):
        store.assign([1], "dog")
    assert store.labels[1] is None
    with pytest.raises(InputError, match="no longer a regular file"):
        LabelStore(store.items, store.path)


@pytest.mark.parametrize(
    "text", ["id,label\nnobody,cat\n", "a,b\n1,2\n", "some notes\n", "", "id,label\nx\n"]
)
def test_another_file_is_never_overwritten(sample: Sample, tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="choose another file"):
        LabelStore(make_items(3), path)
    assert path.read_text() == text


def test_changes_of_others_are_not_overwritten(store: LabelStore) -> None:
    store.assign([0], "cat")
    store.path.write_text("id,label\nmine,1\n")
    with pytest.raises(InputError, match="changed by another program"):
        store.assign([1], "dog")
    assert store.labels[1] is None
    assert store.path.read_text() == "id,label\nmine,1\n"


def test_two_explorers_of_one_file_lose_nothing(sample: Sample, tmp_path: Path) -> None:
    path, n = tmp_path / "labels.csv", 60

    def label(first: int) -> None:
        for row in range(first, n, 2):
            while True:  # refused: start again from the file, as its user would
                with suppress(InputError):
                    LabelStore(make_items(n), path).assign([row], str(row))
                    break

    threads = [threading.Thread(target=label, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = dict(LabelStore(make_items(n), path).counts())
    assert found == {str(row): 1 for row in range(n)}
    assert os.listdir(tmp_path) == ["labels.csv"]


def test_an_input_is_not_saved_over(tmp_path: Path) -> None:
    path = tmp_path / "metadata.csv"
    path.write_text("id,label\n0,mine\n1,\n")
    with pytest.raises(InputError, match="is the input"):
        check_labels_file(path, [path])
    path.write_text("id,label\n0,mine\n0,yours\n")
    with pytest.raises(InputError, match="two labels for one id"):
        LabelStore(make_items(3), path)


def test_a_full_disk_is_said_and_changes_nothing(labeling: Client, store: LabelStore) -> None:
    store.assign([3], "cat")
    before = store.path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), hard))  # the lock, and no more
    try:
        status, answer = post(labeling, "/api/labels", {"rows": [1], "label": "dog"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert status == 507
    assert str(answer["error"]).startswith(f"cannot write {store.path}: File too large")
    assert store.path.read_bytes() == before
    assert store.labels[1] is None
    assert post(labeling, "/api/labels", {"rows": [1], "label": "dog"})[0] == 200


@pytest.mark.parametrize("label", ["", "  ", "-1", "x" * 201])
def test_wrong_labels_are_refused(store: LabelStore, label: str) -> None:
    with pytest.raises(InputError, match="a label must have"):
        store.assign([0], label)
    assert not store.path.exists()


@pytest.fixture
def learner(sample: Sample, store: LabelStore) -> Labeling:
    catalog = make_catalog(sample.model, sample.X, store.items)
    start_work(catalog, sample.X).join()
    return Labeling(catalog, sample.X, store)


@pytest.fixture
def labeling(learner: Labeling) -> Iterator[Client]:
    with running(make_app(learner.catalog, labeling=learner)) as port:
        yield Client(port)


def post(client: Client, path: str, body: object, **headers: str) -> tuple[int, dict[str, object]]:
    sent = json.dumps(body).encode()
    answer = client.post(path, sent, **{"content_type": "application/json", **headers})
    return answer.status, answer.json


def test_label_over_http(labeling: Client, store: LabelStore) -> None:
    assert labeling.json("/api/about")["can_label"]
    status, answer = post(labeling, "/api/labels", {"rows": [1, 2], "label": "cat"})
    assert (status, answer["changed"], answer["n_labeled"]) == (200, 2, 2)
    assert answer["labels"] == [{"label": "cat", "count": 2}]
    rows = np.frombuffer(labeling.get("/api/labels/rows", {"label": "cat"}).body, "<u4")
    assert rows.tolist() == [1, 2]
    assert labeling.json("/api/item", row=1)["label"] == "cat"
    assert labeling.json("/api/category", name="label")["counts"] == [2]
    assert post(labeling, "/api/labels/undo", {})[1]["n_labeled"] == 0


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"rows": "all"},
        {"rows": [-1], "label": "x"},
        {"rows": [300], "label": "x"},
        {"rows": [1.5], "label": "x"},
        {"rows": [True], "label": "x"},
        {"rows": [1], "label": 7},
    ],
)
def test_wrong_labelings_are_refused(labeling: Client, store: LabelStore, body: object) -> None:
    status, answer = post(labeling, "/api/labels", body)
    assert status == 400
    assert answer["error"]
    assert not store.path.exists()


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"rows": [1], "label": "\\ud800"}'])
def test_odd_json_is_refused(labeling: Client, store: LabelStore, body: bytes) -> None:
    answer = labeling.post("/api/labels", body, content_type="application/json")
    assert answer.status == 400
    assert answer.sentence
    assert not store.path.exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
    ],
)
def test_a_foreign_origin_cannot_label(
    labeling: Client, store: LabelStore, headers: dict[str, str]
) -> None:
    for path in ("/api/labels", "/api/labels/undo", "/api/learn"):
        assert post(labeling, path, {"rows": [1], "label": "x"}, **headers)[0] in (403, 415)
    assert not store.path.exists()


def test_labels_need_a_file(client: Client) -> None:
    assert not client.json("/api/about")["can_label"]
    assert post(client, "/api/labels", {"rows": [1], "label": "x"})[0] == 404


def test_suggestions_are_unlabeled_and_spread_out(labeling: Client, store: LabelStore) -> None:
    first = [item["row"] for item in labeling.json("/api/suggest", n=5)["items"]]
    assert len(set(first)) == 5
    store.assign(first, "cat")
    second = [item["row"] for item in labeling.json("/api/suggest", n=5)["items"]]
    assert not set(first) & set(second)


def test_learn_again(
    labeling: Client, store: LabelStore, learner: Labeling, sample: Sample
) -> None:
    assert post(labeling, "/api/learn", {})[0] == 422
    for label in sorted(set(sample.labels)):
        rows = [row for row, other in enumerate(sample.labels) if other == label][:8]
        store.assign(rows, label)
    assert post(labeling, "/api/learn", {})[1]["state"] == "working"
    learner.thread.join()
    done = labeling.json("/api/learn")
    assert done["state"] == "ready", done
    assert done["n_labeled"] == 120
    before, after, gain = (done["recall"][name] for name in ("before", "after", "gain"))
    assert after["value"] >= before["value"]
    assert gain["value"] == pytest.approx(after["value"] - before["value"])
    assert gain["low"] <= gain["value"] <= gain["high"]
    assert "learned" in labeling.json("/api/about")["spaces"]
    assert len(labeling.json("/api/neighbors", row=3, space="learned", k=5)["items"]) == 5
    assert len(labeling.get("/api/map", {"space": "learned"}).body) == 4 * len(sample.X)
    expected = RPML(**{**sample.model.get_params(deep=False), "use_labels": True})
    expected.fit(sample.X, np.array(store.labels, object))
    assert np.allclose(
        learner.catalog.models["learned"].components_, expected.components_, atol=5e-3
    )


def test_learning_can_be_cancelled(store: LabelStore, learner: Labeling, sample: Sample) -> None:
    for row, label in enumerate(sample.labels):
        store.labels[row] = label
    learner.learn(b"")
    learner.cancel(b"")
    learner.thread.join()
    assert learner.fit["state"] == "idle"
    assert "learned" not in learner.catalog.indices
