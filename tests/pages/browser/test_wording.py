"""What the pages say in their states: short, in view, and true."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rpml import RPML
from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import make_catalog, start_work
from rpml.pages.explorer.labeling import Labeling, LabelStore
from rpml.pages.items import Items, make_items
from rpml.pages.report.measurements import Measurements, Source
from rpml.pages.report.page import build_report
from tests.drawings import Sample
from tests.pages.browser.chrome import SCATTER, Chrome
from tests.pages.browser.test_explorer import look
from tests.pages.explorer.client import running

OUTSIDE = """return [...document.querySelectorAll('svg.chart')].flatMap((svg) => {
const box = svg.getBoundingClientRect(); return [...svg.querySelectorAll('text')].filter((t) => {
const b = t.getBoundingClientRect(); return b.left < box.left - 1 || b.right > box.right + 1 })
.map((t) => t.textContent) })"""


@pytest.fixture(scope="module")
def unlabeled(sample: Sample) -> str:
    items = make_items(300, sample.ids)
    page = build_report(
        Measurements([sample.model], sample.X, items, Source("model.rpml", "x.npy"))
    )
    path = sample.folder / "unlabeled.html"
    path.write_text(page, encoding="utf8")
    return path.as_uri()


@pytest.fixture(scope="module")
def long_names(sample: Sample) -> str:
    """A report of two models whose names have room on no axis."""
    other = RPML(8, random_state=0, max_iter=5).fit(sample.X)
    source = Source("a.rpml", "x.npy", second="a-model-with-a-rather-long-name.rpml")
    page = build_report(Measurements([sample.model, other], sample.X, sample.items, source))
    path = sample.folder / "long-names.html"
    path.write_text(page, encoding="utf8")
    return path.as_uri()


@pytest.fixture
def labeling(sample: Sample, tmp_path: Path) -> Iterator[str]:
    """An explorer that takes labels; none is known yet."""
    learner = learner_of(sample, make_items(300, sample.ids), tmp_path)
    with running(make_app(learner.catalog, labeling=learner)) as port:
        yield f"http://127.0.0.1:{port}"


def learner_of(sample: Sample, items: Items, folder: Path) -> Labeling:
    store = LabelStore(items, folder / "labels.csv")
    catalog = make_catalog(sample.model, sample.X, store.items)
    start_work(catalog, sample.X).join()
    return Labeling(catalog, sample.X, store)


def test_the_verdict_without_labels_is_three_short_lines(chrome: Chrome, unlabeled: str) -> None:
    chrome.open(unlabeled)
    lines = [e.text for e in chrome.all("#verdict .lead, #verdict dd")]
    assert len(lines) == 3
    assert max(len(line.split()) for line in lines) < 30
    assert "On the data sets measured with such evidence" in lines[1]
    assert "An estimate" in lines[2]
    assert "RPML" in chrome.text("#evidence table")


def test_figures_without_labels_have_intervals_in_sight(chrome: Chrome, unlabeled: str) -> None:
    """Rank gains, neighbors kept by PCA, and effective ranks."""
    chrome.open(unlabeled)
    gains, kept = chrome.all("#evidence table")
    rows = [[c.text for c in line.find_elements("css selector", "th, td")] for line in lines(gains)]
    raw = next(row for row in rows if row[0] == "raw features")
    assert re.fullmatch(r"[+−]\d\.\d\d\n[+−]\d\.\d\d to [+−]\d\.\d\d", raw[1])
    assert raw[2] == "not known"  # nothing was calibrated for another size
    for line in lines(kept):
        assert re.search(r"\d\d\.\d%\n\d\d\.\d – \d+\.\d$", line.text)
    (ranks,) = (e for e in chrome.all("#table tbody tr") if e.text.startswith("Effective rank"))
    assert len(ranks.find_elements("css selector", ".interval")) == 3
    assert all(e.text for e in ranks.find_elements("css selector", ".interval"))


def lines(table: Any) -> list[Any]:
    return list(table.find_elements("css selector", "tbody tr"))


def test_texts_stay_inside_the_charts(chrome: Chrome, long_names: str) -> None:
    chrome.open(long_names)
    assert chrome.js(OUTSIDE) == []


@pytest.mark.parametrize("page", ["report", "unlabeled", "long_names"])
def test_every_column_of_the_scores_fits_a_phone(
    chrome: Chrome, page: str, request: pytest.FixtureRequest
) -> None:
    chrome.size(390, 844, touch=True)
    chrome.open(request.getfixturevalue(page))
    cut = (
        "return [...document.querySelectorAll('.scores .number')].filter((cell) => "
        "cell.getBoundingClientRect().right > innerWidth || cell.scrollWidth > cell.clientWidth + 1"
        ").map((cell) => cell.textContent)"
    )
    assert chrome.js(cut) == []


def test_codes_have_intervals(chrome: Chrome, report: str) -> None:
    chrome.open(report)
    cells = [cell.text for cell in chrome.all("#codes td")]
    assert len(cells) == 15  # float32, int8, int4, int2 and binary of raw, PCA and RPML
    assert all(" – " in cell and "bytes" in cell for cell in cells)


@pytest.mark.parametrize("other", ["", "raw"])
def test_the_legend_is_in_view_below_the_map(chrome: Chrome, explorer: str, other: str) -> None:
    chrome.size(1280, 860)
    look(chrome, explorer, color="cluster", other=other)
    chrome.until("document.querySelectorAll('#legend button').length > 10")
    assert (
        chrome.js("return document.querySelector('#legend').getBoundingClientRect().bottom") < 860
    )
    width, height = chrome.js(
        "const m = document.getElementById('map'); return [m.clientWidth, m.clientHeight]"
    )
    assert height <= width


def test_the_galleries_stand_side_by_side(chrome: Chrome, explorer: str, sample: Sample) -> None:
    look(chrome, explorer, id=sample.ids[0], show="gallery")
    chrome.until("document.querySelectorAll('.tile').length === 40")
    tops = "[...document.querySelectorAll('.list')].map((l) => l.getBoundingClientRect().top)"
    assert len(set(chrome.js(f"return {tops}"))) == 1


def test_the_search_field_shows_what_is_searched(chrome: Chrome, explorer: str) -> None:
    look(chrome, explorer, q="armen", tab="table")
    assert chrome.js("return document.getElementById('query').value") == "armen"
    chrome.find("#matches button:last-child").click()
    chrome.until("document.getElementById('query').value === ''")


def test_the_map_is_colored_by_clusters_until_there_are_labels(
    chrome: Chrome, labeling: str
) -> None:
    look(chrome, labeling, tab="labels")
    assert chrome.js("return document.getElementById('color').value") == "cluster"
    assert chrome.text("#label-status").startswith("No item is labeled; the first change writes")
    chrome.js("rpmlExplorer.select([1, 2, 3])")
    chrome.find("#label").send_keys("first\n")
    chrome.until("document.getElementById('color').value === 'label'")
    assert chrome.text("#label-status") == "3 items are labeled; saved in labels.csv."
    chrome.find("#undo").click()
    chrome.until("document.getElementById('color').value === 'cluster'")


def test_labels_that_were_not_written_are_not_called_saved(
    chrome: Chrome, sample: Sample, tmp_path: Path
) -> None:
    items = make_items(300, sample.ids, sample.labels)
    learner = learner_of(sample, items, tmp_path)
    with running(make_app(learner.catalog, labeling=learner)) as port:
        look(chrome, f"http://127.0.0.1:{port}", tab="labels")
        said = chrome.text("#label-status")
    assert said == "300 items are labeled; the first change writes all labels to labels.csv."
    assert not (tmp_path / "labels.csv").exists()


def test_labeled_points_are_not_covered_by_others(chrome: Chrome, explorer: str) -> None:
    """One point of a class among thousands at the same place, whichever is drawn last."""
    look(chrome, explorer)
    covered = chrome.js(
        SCATTER + "const n = 6000, at = new Float32Array(n).fill(0.5), results = [];"
        "for (const [row, size] of [[0, n], [n - 1, n], [0, 100], [99, 100]]) {"
        "const map = scatter(at.slice(0, size), at.slice(0, size), 200), canvas = map.canvas;"
        "const codes = new Array(size).fill(-1); codes[row] = 0;"
        "new rpml.Legend(document.createElement('div'), () => [map]).show("
        "{ names: ['one'], counts: [1], codes }, false); map.paint();"
        "results.push([...canvas.getContext('2d').getImageData(100, 100, 1, 1).data.slice(0, 3)]);"
        "canvas.remove() } return results"
    )
    assert covered == [[0x32, 0x60, 0xA2]] * 4
