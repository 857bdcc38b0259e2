"""What the pages say is true, and what they show is whole: one test per former defect."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from rpml.pages import layout
from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import make_catalog, start_work
from rpml.pages.items import Items, make_items
from rpml.pages.report.measurements import Measurements, Source
from rpml.pages.report.page import build_report
from tests.drawings import Sample
from tests.pages.browser.chrome import Chrome
from tests.pages.browser.test_explorer import HITS, look
from tests.pages.explorer.client import running

WriteReport = Callable[[str, Items], str]


@pytest.fixture(scope="module")
def write_report(sample: Sample) -> WriteReport:
    """Write a report on the sample's vectors; its address."""

    def write(name: str, items: Items) -> str:
        page = build_report(
            Measurements([sample.model], sample.X, items, Source("model.rpml", "x.npy"))
        )
        path = sample.folder / f"{name}.html"
        path.write_text(page, encoding="utf8")
        return path.as_uri()

    return write


@pytest.fixture(scope="module")
def partial_report(sample: Sample, write_report: WriteReport) -> str:
    labels = [label if i % 3 == 0 else None for i, label in enumerate(sample.labels)]
    return write_report("partial", make_items(300, sample.ids, labels))


@pytest.fixture(scope="module")
def text_report(sample: Sample, write_report: WriteReport) -> str:
    """Long texts for ids, and 60 labels."""
    texts = [f"{i}. why was my card declined at the shop yesterday evening {i}" for i in range(300)]
    return write_report("texts", make_items(300, texts, [f"class {i % 60}" for i in range(300)]))


def test_partial_labels_are_judged_on_labeled_rows(chrome: Chrome, partial_report: str) -> None:
    chrome.open(partial_report)
    assert "Measured on the 100 labeled items among 300 items" in chrome.text("#verdict")
    assert "100 of 300 items have a label" in chrome.text("#table")
    entries = [e.text.replace("\n", " ") for e in chrome.all("#legend button")]
    assert entries[-1] == "none 200"
    assert sum(int(e.split()[-1]) for e in entries) == 300


def test_the_legend_filters_and_hides(chrome: Chrome, partial_report: str) -> None:
    chrome.open(partial_report)
    button = chrome.find("#legend button")
    count = int(button.text.split()[-1])
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    masked = "rpmlMaps.map((m) => m.mask && m.mask.reduce((a, b) => a + b))"
    assert chrome.js(f"return {masked}") == [count, count]
    button.click()
    assert chrome.js(f"return {masked}") == [None, None]
    chrome.choose("#color-by", "nothing")
    display = "return getComputedStyle(document.getElementById('legend')).display"
    assert chrome.js(display) == "none"


def test_many_classes_name_the_largest_and_group_the_rest(chrome: Chrome, text_report: str) -> None:
    chrome.open(text_report)
    entries = [e.text.replace("\n", " ") for e in chrome.all("#legend button")]
    assert len(entries) == 17
    assert entries[-1] == "44 others 220"
    pairs = "new Set([...rpmlMaps[0].colors].map((c, i) => `${c} ${rpmlMaps[0].shapes[i]}`)).size"
    assert chrome.js(f"return {pairs}") == 17


def test_text_cards_are_not_cut_through_a_line(chrome: Chrome, text_report: str) -> None:
    chrome.open(text_report)
    cut = chrome.js(
        "return [...document.querySelectorAll('.item .text')].filter((box) => {"
        "const text = box.firstElementChild, style = getComputedStyle(text);"
        "const lines = text.clientHeight / parseFloat(style.lineHeight);"
        "const gap = box.getBoundingClientRect().bottom - text.getBoundingClientRect().bottom;"
        "return Math.abs(lines - Math.round(lines)) > 0.05 || gap < 4 }).length"
    )
    assert chrome.js("return document.querySelectorAll('.item .text').length") > 50
    assert cut == 0


def test_labels_of_axes_are_inside_their_charts(chrome: Chrome, report: str) -> None:
    chrome.open(report)
    outside = chrome.js(
        "return [...document.querySelectorAll('svg.chart')].flatMap((svg) => {"
        "const box = svg.getBoundingClientRect();"
        "return [...svg.querySelectorAll('text')].filter((t) => {"
        "const b = t.getBoundingClientRect();"
        "return b.left < box.left - 1 || b.right > box.right + 1 }).map((t) => t.textContent) })"
    )
    assert outside == []


def test_zoom_goes_to_the_selected_item(chrome: Chrome, report: str) -> None:
    chrome.open(report)
    row = chrome.js("return rpmlMaps[0].x.indexOf(Math.min(...rpmlMaps[0].x))")
    chrome.js("rpmlMaps[0].options.onPick(arguments[0])", row)
    for _ in range(5):
        chrome.find("[data-map=raw] [data-act=in]").click()
    x, y = chrome.js(
        "const m = rpmlMaps[0], i = arguments[0]; return m.toScreen(m.x[i], m.y[i])", row
    )
    width, height = chrome.js("return [rpmlMaps[0].width, rpmlMaps[0].height]")
    assert 0 <= x <= width
    assert 0 <= y <= height


def test_find_counts_its_matches(chrome: Chrome, report: str, sample: Sample) -> None:
    from selenium.webdriver.common.keys import Keys

    chrome.open(report)
    wanted = sample.ids[0].rpartition("-")[0]
    count = sum(wanted in name for name in sample.ids)
    chrome.find("#find").send_keys(wanted)
    assert chrome.text("#find-status") == f"1 of {count} matches"
    assert chrome.js("return rpmlMaps[1].rings[0].rows.length") == count
    chrome.press(Keys.ENTER)
    assert chrome.text("#find-status") == f"2 of {count} matches"
    chrome.find("#find-next").click()
    assert chrome.text("#find-status") == f"3 of {count} matches"


def test_folded_settings_are_printed(chrome: Chrome, report: str) -> None:
    chrome.open(report)
    visible = "document.querySelector('#settings details table').checkVisibility()"
    assert not chrome.js(f"return {visible}")
    chrome.media(kind="print")
    chrome.until(visible)
    chrome.media()
    chrome.until(f"!{visible}")


def test_the_focus_stays_with_the_report_card(chrome: Chrome, report: str, sample: Sample) -> None:
    from selenium.webdriver.common.keys import Keys

    chrome.open(report)
    chrome.find("#find").send_keys(sample.ids[33])
    chrome.js("document.querySelector('#card .lists button').focus()")
    chrome.press(Keys.ENTER)
    chrome.until("rpmlMaps[0].selected !== 33")
    assert chrome.js("return document.activeElement.closest('#card') !== null")


def test_bold_marks_only_what_is_beyond_chance(chrome: Chrome, report: str) -> None:
    """Every bold value has an interval, and no other value of its line reaches into it."""
    chrome.open(report)
    for cell in chrome.all("#table td.best"):
        low, high = map(float, re.findall(r"[\d.]+", cell.text.split("\n")[1]))
        assert low <= high
    lines = chrome.js("return [...document.querySelectorAll('#table tr')].map((r) => r.innerText)")
    recall = [line for line in lines if line.startswith("Recall")]
    assert len(recall) == 4
    assert all(len(re.findall(r"[\d.]+ – [\d.]+", line)) == 3 for line in recall)


def test_the_explorers_legend_hides(chrome: Chrome, explorer: str) -> None:
    look(chrome, explorer)
    shown = "getComputedStyle(document.getElementById('legend')).display"
    chrome.until(f"{shown} === 'flex'")
    chrome.choose("#color", "nothing")
    chrome.until(f"{shown} === 'none'")


def test_shortcuts_work_on_the_map_toggle(chrome: Chrome, explorer: str) -> None:
    look(chrome, explorer)
    chrome.js("document.querySelector('input[name=map][value=raw]').focus()")
    chrome.press("c")
    chrome.until("!document.getElementById('panel-clusters').hidden")


def test_an_unknown_tab_falls_back(chrome: Chrome, explorer: str) -> None:
    look(chrome, explorer, tab="zzz", map="zzz", sort="zzz", k="zzz")
    assert not chrome.js("return document.getElementById('panel-neighbors').hidden")
    assert "What is near what?" in chrome.text("#asked")


def test_results_are_in_view_on_a_phone(chrome: Chrome, explorer: str, sample: Sample) -> None:
    chrome.size(390, 844, touch=True)
    look(chrome, explorer)
    row = chrome.js("return rpmlMap.cells.order[150]")
    x, y = chrome.js(
        "const i = arguments[0]; return rpmlMap.toScreen(rpmlMap.x[i], rpmlMap.y[i])", row
    )
    chrome.tap("#map", x, y)
    chrome.until(f"{HITS} === 40")
    top = "document.querySelector('#asked h2').getBoundingClientRect().top"
    chrome.until(f"{top} >= 0 && {top} < 500")
    look(chrome, explorer, id=sample.ids[3])  # a link to an item
    chrome.until(f"{HITS} === 40 && {top} >= 0 && {top} < 500")


def test_interpolated_rows_are_said(
    chrome: Chrome, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "MAX_ROWS", 200)
    monkeypatch.setattr(layout, "LANDMARKS", 120)
    catalog = make_catalog(sample.model, sample.X, make_items(300))
    start_work(catalog, sample.X).join()
    with running(make_app(catalog)) as port:
        look(chrome, f"http://127.0.0.1:{port}")
        note = chrome.text("#map-note")
    assert "120 items, chosen at random, were laid out" in note
    assert "other 180" in note


def test_density_at_200000_points(chrome: Chrome, explorer: str) -> None:
    """Crowded pixels are darker than single points, so that density can be seen."""
    look(chrome, explorer)
    chrome.choose("#color", "nothing")
    levels = chrome.js(
        "const n = 200000, x = new Float32Array(n), y = new Float32Array(n);"
        "for (let i = 0; i < n; i++) { const s = i % 2 ? 0.02 : 0.5;"
        "x[i] = 0.5 + s * (Math.random() - 0.5); y[i] = 0.5 + s * (Math.random() - 0.5) }"
        "const canvas = document.createElement('canvas'); canvas.width = canvas.height = 400;"
        "canvas.style.cssText = 'width:400px;height:400px'; document.body.append(canvas);"
        "const map = new rpml.Scatter(canvas, x, y); map.paint();"
        "const p = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "const set = new Set(); for (let i = 0; i < p.length; i += 4) set.add(p[i]);"
        "canvas.remove(); return set.size"
    )
    assert levels > 3


def test_unlabeled_neighbors_are_neither_right_nor_wrong(chrome: Chrome, sample: Sample) -> None:
    labels = np.where(np.arange(300) % 2 == 0, sample.labels, "")
    catalog = make_catalog(sample.model, sample.X, make_items(300, sample.ids, labels))
    start_work(catalog, sample.X).join()  # or the page would ask for the map of a closed server
    with running(make_app(catalog)) as port:
        chrome.open(f"http://127.0.0.1:{port}/?id={sample.ids[0]}")
        chrome.until(f"{HITS} === 40")
        kinds = chrome.js("return [...document.querySelectorAll('.hit')].map((h) => h.className)")
    plain = sum(not re.search("right|wrong", kind) for kind in kinds)
    assert 0 < plain < 40


def test_a_search_in_the_texts_marks_every_match(chrome: Chrome, sample: Sample) -> None:
    from selenium.webdriver.common.keys import Keys

    texts = ["card was lost" if i % 10 == 0 else "other question" for i in range(300)]
    items = make_items(300, texts=texts)
    catalog = make_catalog(sample.model, sample.X, items)
    start_work(catalog, sample.X).join()
    with running(make_app(catalog)) as port:
        look(chrome, f"http://127.0.0.1:{port}")
        chrome.find("#query").send_keys("card WAS")
        chrome.until("document.querySelectorAll('#suggestions [role=option]').length === 11")
        assert "Show all 30 matches" in chrome.text("#suggestions .all")
        chrome.press(Keys.ARROW_UP, Keys.ENTER)
        chrome.until("rpmlMap.mask && rpmlMap.mask.reduce((a, b) => a + b) === 30")
        assert "30 items contain" in chrome.text("#matches")
        chrome.find("#matches button:last-child").click()
        chrome.until("rpmlMap.mask === null")


def test_texts_are_shown_and_found_in_the_report(
    chrome: Chrome, sample: Sample, write_report: WriteReport
) -> None:
    texts = ["card was lost" if i % 10 == 0 else "other question" for i in range(300)]
    chrome.open(write_report("said", make_items(300, texts=texts)))
    chrome.find("#find").send_keys("was lost")
    assert chrome.text("#find-status") == "1 of 30 matches"
    assert "card was lost" in chrome.text("#card .name")
    assert "id 0" in chrome.text("#card")
