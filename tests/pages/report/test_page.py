"""The whole page: complete, escaped, self-contained."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from rpml import RPML
from rpml.pages.items import encode_category, fitted_on, make_items
from rpml.pages.layout import quantized
from rpml.pages.report.measurements import Measurements, Source
from rpml.pages.report.page import as_script, build_report
from rpml.pages.report.sections.fit import call, settings
from rpml.runtime.environment import versions
from rpml.runtime.errors import InputError
from tests.drawings import HOSTILE, Sample

SECTIONS = ["verdict", "table", "maps", "changed", "grid", "checks", "training", "clusters"]
SECTIONS += ["triplets", "spectrum", "sizes", "codes", "settings"]
SOURCE = Source("model.rpml", "features.npy")


class Page(HTMLParser):
    """Elements, their attributes and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        if self._inside == "style":
            self.styles.append(data)

    def every(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def page(sample: Sample) -> str:
    return build_report(Measurements([sample.model], sample.X, sample.items, SOURCE))


def test_every_section_is_there_and_in_the_contents(page: str) -> None:
    parsed = Page(page)
    ids = {a.get("id") for _, a in parsed.found}
    links = {a["href"] for a in parsed.every("a")}
    for name in [*SECTIONS, "retrieval"]:
        assert name in ids
        assert f"#{name}" in links
    rendered = [a for a in parsed.every("section") if "id" in a]
    assert page.count('class="how"') == len(rendered) >= len(SECTIONS)


def test_every_picture_has_a_text_and_comes_with_the_page(page: str) -> None:
    images = Page(page).every("img")
    assert len(images) > 200
    assert all(a["alt"] and a["src"].startswith("data:image/") for a in images)
    charts = [a for tag, a in Page(page).found if tag == "svg"]
    assert len(charts) >= 6
    assert all(a["aria-label"] for a in charts)


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    assert not re.search(r"https?://", page)
    assert not re.search(r"@import|url\(", page)
    parsed = Page(page)
    assert not parsed.every("link")
    assert not any("src" in a for a in parsed.every("script"))
    assert not any("style" in a or any(k.startswith("on") for k in a) for _, a in parsed.found)


def test_the_policy_allows_exactly_our_script_and_style(page: str) -> None:
    parsed = Page(page)
    policy = next(a["content"] for a in parsed.every("meta") if a.get("http-equiv"))
    data, script = parsed.scripts
    assert json.loads(data)["ids"]
    for text in (script, parsed.styles[0]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_hostile_names_are_shown_as_text(sample: Sample) -> None:
    ids = [f"{HOSTILE}{i}</script><img src=x onerror=alert(1)>" for i in range(len(sample.X))]
    labels = [f"'\"><svg onload=alert(1)>{label}" for label in sample.labels]
    source = Source(HOSTILE, "</title><script>", HOSTILE)
    text = build_report(
        Measurements([sample.model], sample.X, make_items(len(ids), ids, labels), source)
    )
    parsed = Page(text)
    assert len(parsed.scripts) == 2
    assert json.loads(parsed.scripts[0])["ids"] == ids
    assert not any("onerror" in a or "onload" in a for _, a in parsed.found)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_without_labels_images_and_ids(sample: Sample) -> None:
    text = build_report(Measurements([sample.model], sample.X, make_items(len(sample.X)), SOURCE))
    parsed = Page(text)
    assert not parsed.every("img")
    assert 'id="retrieval"' not in text
    assert 'id="evidence"' in text
    assert "The features were split into two halves" in text
    assert "An estimate without labels, from 300 items" in text
    assert json.loads(parsed.scripts[0])["thumbs"] is None


def test_other_rows_than_the_training_rows(sample: Sample) -> None:
    rows = np.arange(0, len(sample.X), 2)
    items = make_items(len(rows), labels=np.array(sample.labels)[rows])
    text = build_report(Measurements([sample.model], sample.X[rows], items, SOURCE))
    assert "on which the model was not trained" in text
    assert "pseudo-cluster" not in json.loads(Page(text).scripts[0])["categories"]


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (["<b>one"] * 300, "All labeled items have the label &lt;b&gt;one, so that every"),
        ([f"c{i}" for i in range(300)], "No label is given to two items"),
        (["a", "b"] * 14 + [None] * 272, "28 labeled items are too few: label 30 or more."),
    ],
)
def test_labels_that_cannot_tell_give_no_verdict(sample: Sample, labels, reason) -> None:
    items = make_items(300, labels=labels)
    text = build_report(Measurements([sample.model], sample.X, items, SOURCE))
    assert "Not enough data to say" in text
    assert reason in text


def test_the_seed_decides_everything(sample: Sample, page: str) -> None:
    assert build_report(Measurements([sample.model], sample.X, sample.items, SOURCE)) == page


def test_a_fit_without_triplets_and_few_rows() -> None:
    X = np.random.default_rng(0).normal(size=(12, 4))
    model = RPML(2, clustering=np.zeros(12, int), training="always", random_state=0)
    with pytest.warns(UserWarning, match="triplet"):
        model.fit(X)
    text = build_report(Measurements([model], X, make_items(12, labels=["a", "b"] * 6), SOURCE))
    assert 'id="triplets"' not in text
    with pytest.raises(InputError, match="at least 3 rows"):
        build_report(Measurements([model], X[:2], make_items(2), SOURCE))


@pytest.mark.slow
def test_5000_items_with_photographs_stay_under_10_megabytes(tmp_path: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    n = 5000
    X = rng.normal(size=(n, 24)).astype(np.float32)
    small = rng.integers(0, 256, (n, 24, 32, 3), dtype=np.uint8)
    for i in range(n):
        Image.fromarray(small[i]).resize((320, 240)).save(tmp_path / f"{i:05d}.jpg")
    model = RPML(8, max_iter=3, random_state=0).fit(X)
    items = make_items(n, labels=rng.integers(50, size=n), images=tmp_path)
    text = build_report(Measurements([model], X, items, SOURCE))
    assert len(text.encode()) < 10_000_000


def test_data_cannot_end_its_script() -> None:
    text = as_script({"a": "</script><!-- & \u2028\u2029 é"})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"a": "</script><!-- & \u2028\u2029 é"}


def test_points_and_categories_are_packed() -> None:
    packed = quantized(np.array([[0.0, 1.0], [0.5, 2.0]]))
    assert packed.tolist() == [[0, 65535], [32768, 65535]]
    expected = {"names": ["b", "a"], "counts": [2, 1], "codes": [0, 1, 0, -1]}
    assert encode_category(["b", "a", "b", None]) == expected


@pytest.mark.parametrize("weight", ["concat", "bilinear", "constant"])
def test_training_rows_are_recognized(sample: Sample, weight: str) -> None:
    settings = {"n_neighbors": 15, "training": "always", "max_iter": 5, "tol": 1e-2}
    model = RPML(8, weight=weight, random_state=0, **settings)
    model.fit(sample.X)
    assert fitted_on(model, sample.X)
    assert fitted_on(model, sample.X.astype(np.float64))
    assert not fitted_on(model, sample.X[::-1])
    assert not fitted_on(model, sample.X[:-1])


def test_training_rows_of_an_untrained_fit_are_recognized(sample: Sample) -> None:
    singletons = np.arange(len(sample.X))
    model = RPML(8, clustering=singletons, random_state=0).fit(sample.X)
    assert len(model.triplets_) == 0
    assert fitted_on(model, sample.X)
    assert not fitted_on(model, sample.X[::-1])


def test_settings_can_be_repeated(sample: Sample) -> None:
    assert "n_components=16" in call(sample.model)
    assert "weight" not in call(sample.model)  # at its default
    again = eval(call(sample.model), {"RPML": RPML})
    assert again.get_params() == sample.model.get_params()
    assert settings(sample.model)["n_components"] == 16
    assert settings(RPML.paper(4))["clustering: epsilon"] == 0.65
    assert {"python", "rpml", "numpy"} <= set(versions())
