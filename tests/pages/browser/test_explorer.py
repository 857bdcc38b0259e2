"""The explorer in a real browser, over loopback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

from rpml.pages.explorer.answers import Answers
from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import Catalog, make_catalog, start_work
from rpml.pages.items import make_items
from tests.drawings import Sample
from tests.pages.browser.chrome import SCATTER, Chrome
from tests.pages.explorer.client import running

READY = "window.rpmlMap && document.getElementById('map-state').hidden"
HITS = "document.querySelectorAll('.hit').length"


def look(chrome: Chrome, explorer: str, **view: object) -> None:
    """Open a view and wait for the map."""
    chrome.open(f"{explorer}/?{urlencode(view)}" if view else explorer)
    chrome.until(READY)


def test_starts_with_a_map_and_a_welcome(chrome: Chrome, explorer: str) -> None:
    look(chrome, explorer)
    assert "What is near what?" in chrome.text("#asked")
    drawn = chrome.until(
        "(() => { const c = document.getElementById('map');"
        "const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "let n = 0; for (let i = 3; i < p.length; i += 4) n += p[i] > 0; return n })()"
    )
    assert drawn > 1000


def test_search_an_id_and_share_the_address(chrome: Chrome, explorer: str, sample: Sample) -> None:
    from selenium.webdriver.common.keys import Keys

    look(chrome, explorer)
    chrome.find("#query").send_keys(sample.ids[12][:-4])
    chrome.until("document.querySelectorAll('#suggestions [role=option]').length > 0")
    chrome.press(Keys.ARROW_DOWN, Keys.ENTER)
    chrome.until(f"{HITS} === 40")
    assert sample.ids[12] in chrome.text("#asked")
    address = chrome.driver.current_url
    assert urlencode({"id": sample.ids[12]}) in address
    first = chrome.text("#lists")
    chrome.open("about:blank")
    chrome.open(address)
    chrome.until(f"{HITS} === 40")
    assert chrome.text("#lists") == first


def test_click_a_point_then_a_neighbor_then_back(
    chrome: Chrome, explorer: str, sample: Sample
) -> None:
    look(chrome, explorer)
    x, y = chrome.js("return rpmlMap.toScreen(rpmlMap.x[50], rpmlMap.y[50])")
    row = chrome.js("return rpmlMap.nearest(arguments[0], arguments[1])", x, y)
    chrome.click_at("#map", x, y)
    chrome.until(f"{HITS} === 40")
    assert sample.ids[row] in chrome.text("#asked")
    chrome.until("rpmlMap.selected === arguments[0]", row)
    chrome.find("[data-space=rpml] .hit").click()
    chrome.until("rpmlMap.selected !== arguments[0]", row)
    chrome.driver.back()
    chrome.until("rpmlMap.selected === arguments[0]", row)
    assert sample.ids[row] in chrome.text("#asked")


def test_both_lists_follow_the_server(chrome: Chrome, explorer: str, catalog: Catalog) -> None:
    look(chrome, explorer, id=catalog.items.ids[7], k=10)
    chrome.until(f"{HITS} === 20")
    for space in ("raw", "rpml"):
        shown = chrome.js(
            "return [...document.querySelectorAll('[data-space=' + arguments[0] + '] .name')]"
            ".map((n) => n.textContent)",
            space,
        )
        found = catalog.indices[space].near_row(7, 10)[0]
        assert shown == [catalog.items.ids[r] for r in found]
    csv = chrome.driver.execute_async_script(
        "const done = arguments[0], link = document.querySelector('a[download]');"
        "fetch(link.href).then((answer) => answer.text()).then(done)"
    )
    assert csv.count("\r\n") == 21


def test_the_map_can_be_switched_and_moved(chrome: Chrome, explorer: str) -> None:
    look(chrome, explorer)
    before = chrome.js("return rpmlMap.x[3]")
    chrome.find("input[name=map][value=raw]").click()
    chrome.until("rpmlMap.x[3] !== arguments[0]", before)
    assert "map=raw" in chrome.driver.current_url
    chrome.find("#zoom-in").click()
    chrome.until("location.search.includes('view=')")
    view = chrome.js("return rpmlMap.view")
    look_again = chrome.driver.current_url
    chrome.open("about:blank")
    chrome.open(look_again)
    chrome.until(READY)
    assert chrome.js("return rpmlMap.view.zoom") == pytest.approx(view["zoom"], abs=1e-3)
    chrome.choose("#color", "nothing")
    chrome.until("new Set(rpmlMap.colors).size === 1")


def test_clusters_are_listed_sorted_and_opened(
    chrome: Chrome, explorer: str, catalog: Catalog
) -> None:
    look(chrome, explorer)
    chrome.find("#tab-clusters").click()
    chrome.until("document.querySelectorAll('.cluster-list tbody tr').length > 3")
    sizes = [int(e.text) for e in chrome.all(".cluster-list td:nth-child(2)")]
    assert sizes == sorted(sizes, reverse=True)
    chrome.find(".cluster-list button.pick").click()
    chrome.until("document.querySelector('#cluster h2')")
    name = int(chrome.text("#cluster h2").split()[-1])
    members = catalog.clusters.value.members(name)
    chrome.until(
        "rpmlMap.mask && rpmlMap.mask.reduce((a, b) => a + b) === arguments[0]", len(members)
    )
    chrome.until("rpmlMap.rings[0]?.rows.length === arguments[0]", len(members))
    assert len(chrome.all("#cluster .tree button")) == len(members)
    chrome.choose("#sort", "impurity")
    chrome.until("location.search.includes('sort=impurity')")
    chrome.until("document.querySelector('.cluster-list td:nth-child(3)').textContent !== '–'")
    chrome.find("#cluster .members:last-of-type button").click()
    chrome.until(f"{HITS} === 40")
    assert chrome.js("return rpmlMap.mask") is None


def test_upload_a_vector(chrome: Chrome, explorer: str, sample: Sample, tmp_path: Path) -> None:
    np.save(tmp_path / "query.npy", sample.X[21])
    look(chrome, explorer)
    chrome.find("#upload").send_keys(str(tmp_path / "query.npy"))
    chrome.until(f"{HITS} === 40")
    assert "query.npy" in chrome.text("#asked")
    assert chrome.text("[data-space=raw] .name") == sample.ids[21]
    assert "upload=" in chrome.driver.current_url


def test_a_wrong_upload_is_explained(chrome: Chrome, explorer: str, tmp_path: Path) -> None:
    np.save(tmp_path / "short.npy", np.zeros(3))
    look(chrome, explorer)
    chrome.find("#upload").send_keys(str(tmp_path / "short.npy"))
    chrome.until("!document.getElementById('alert').hidden")
    assert "shape (3,)" in chrome.text("#alert")
    assert any("422" in c for c in chrome.complaints())  # the browser's own note of the status


def test_an_unknown_id_is_explained(chrome: Chrome, explorer: str) -> None:
    look(chrome, explorer, id="nobody <b>")
    chrome.until("document.querySelector('#asked .empty h2')?.textContent === 'Nothing found'")
    assert "'nobody <b>'" in chrome.text("#asked")
    assert all("404" in c for c in chrome.complaints())


def test_keyboard_alone(chrome: Chrome, explorer: str, sample: Sample) -> None:
    from selenium.webdriver.common.keys import Keys

    look(chrome, explorer)
    chrome.press("?")
    chrome.until("document.getElementById('help').open")
    chrome.press(Keys.ESCAPE)
    chrome.until("!document.getElementById('help').open")
    chrome.press("/")
    chrome.until("document.activeElement.id === 'query'")
    chrome.press(*sample.ids[5], Keys.ENTER)
    chrome.until(f"{HITS} === 40")
    chrome.js("document.activeElement.blur()")
    chrome.press("m")
    chrome.until("document.activeElement.id === 'map'")
    chrome.press(Keys.ARROW_RIGHT)
    chrome.until("rpmlMap.hover >= 0 && !document.getElementById('map-hover').hidden")
    hovered = chrome.js("return rpmlMap.hover")
    chrome.press(Keys.ENTER)
    chrome.until("rpmlMap.selected === arguments[0]", hovered)
    chrome.press("c")
    chrome.until("!document.getElementById('panel-clusters').hidden")
    chrome.until("document.activeElement.id === 'tab-clusters'")
    chrome.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    chrome.until("!document.getElementById('panel-neighbors').hidden")
    chrome.press(Keys.TAB, Keys.TAB)
    assert chrome.js("return document.activeElement.closest('#asked') !== null")


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_fits_the_window(chrome: Chrome, explorer: str, sample: Sample, width: int) -> None:
    chrome.size(width, 844, touch=width < 500)
    for view in (
        {},
        {"id": sample.ids[3]},
        {"tab": "clusters", "cluster": sample.model.labels_[0]},
    ):
        look(chrome, explorer, **view)
        assert chrome.overflow() <= 0
        assert chrome.js("return document.getElementById('map').clientHeight") > 200


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", ["explorer", "report"])
def test_nothing_lies_on_the_points(
    chrome: Chrome, explorer: str, report: str, page: str, width: int
) -> None:
    chrome.size(width, 844)
    chrome.open(report if page == "report" else f"{explorer}/?other=raw")
    chrome.until("window.rpmlMaps && rpmlMaps.length === 2")
    covered = chrome.js(
        "return rpmlMaps.flatMap((map) => { const { canvas, width, height } = map;"
        "canvas.scrollIntoView({ block: 'center', behavior: 'instant' });"
        "const box = canvas.getBoundingClientRect(), over = [];"
        "for (let i = 1; i < 20; i++) for (let j = 1; j < 20; j++) {"
        "const place = [box.left + width * i / 20, box.top + height * j / 20];"
        "if (document.elementFromPoint(...place) !== canvas) over.push([i, j]) } return over })"
    )
    assert covered == []


def test_dark_mode(chrome: Chrome, explorer: str) -> None:
    chrome.media(dark=True)
    look(chrome, explorer)
    assert chrome.js("return getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 23)"


def test_search_works_while_the_map_is_drawn(chrome: Chrome, sample: Sample) -> None:
    catalog = make_catalog(sample.model, sample.X, make_items(len(sample.X)))
    with running(make_app(catalog)) as port:
        chrome.open(f"http://127.0.0.1:{port}/?id=3&tab=neighbors")
        chrome.until(f"{HITS} === 40")
        chrome.until(
            "document.getElementById('map-state').innerText.includes('Drawing the map of 300')"
        )
        start_work(catalog, sample.X)
        chrome.until(READY)
        chrome.find("#tab-clusters").click()
        chrome.until("document.querySelectorAll('.cluster-list tbody tr').length > 3")


def test_rows_the_model_has_not_seen_have_no_clusters(chrome: Chrome, sample: Sample) -> None:
    catalog = make_catalog(sample.model, sample.X[:100], make_items(100))
    start_work(catalog, sample.X[:100]).join()
    with running(make_app(catalog)) as port:
        look(chrome, f"http://127.0.0.1:{port}", tab="clusters", cluster=3)
        chrome.until("document.querySelector('#cluster-list .empty') !== null")
        assert "not the rows the model was fitted on" in chrome.text("#cluster-list")


@pytest.mark.parametrize("scale", [True, False])
def test_the_share_of_random_pairs_is_explained(
    chrome: Chrome, sample: Sample, scale: bool
) -> None:
    catalog = make_catalog(sample.model, sample.X, make_items(len(sample.X)))
    start_work(catalog, sample.X).join()
    with running(make_app(catalog, scale=scale)) as port:
        look(chrome, f"http://127.0.0.1:{port}", id=3)
        chrome.until(f"{HITS} === 40")
        assert ("share of random pairs" in chrome.text("#asked .note")) is scale
        assert ("%)" in chrome.text("#lists")) is scale


def test_a_server_that_is_gone_is_said(chrome: Chrome, catalog: Catalog) -> None:
    with running(make_app(catalog)) as port:
        look(chrome, f"http://127.0.0.1:{port}")
    chrome.find("#random").click()
    chrome.until("!document.getElementById('alert').hidden")
    assert "does not answer" in chrome.text("#alert")
    assert chrome.all("#alert button")
    assert all("ERR_CONNECTION_REFUSED" in c for c in chrome.complaints())


def test_hostile_ids_are_text(chrome: Chrome, sample: Sample, hostile: list[str]) -> None:
    labels = [f"<b onclick=alert(1)>{label}" for label in sample.labels]
    catalog = make_catalog(sample.model, sample.X, make_items(len(hostile), hostile, labels))
    start_work(catalog, sample.X).join()
    with running(make_app(catalog)) as port:
        look(chrome, f"http://127.0.0.1:{port}", id=hostile[4])
        chrome.until(f"{HITS} === 40")
        assert chrome.text("#asked h2") == hostile[4]
        chrome.find("#query").clear()
        chrome.find("#query").send_keys("onerror=alert(12)")
        chrome.until("document.querySelectorAll('#suggestions [role=option]').length === 1")
        chrome.find("#tab-clusters").click()
        chrome.until("document.querySelectorAll('.cluster-list tbody tr').length > 3")
        chrome.find(".cluster-list button.pick").click()
        chrome.until("document.querySelector('#cluster .tree button')")
        assert chrome.js("return document.querySelectorAll('img[src=x], b').length") == 0


def test_metadata_are_shown_and_searched(chrome: Chrome, sample: Sample) -> None:
    colors = ["<b>Crimson</b>" if row % 50 == 0 else "" for row in range(len(sample.X))]
    items = replace(make_items(len(sample.X), sample.ids), metadata={"ink": colors})
    catalog = make_catalog(sample.model, sample.X, items)
    start_work(catalog, sample.X, tree=False).join()
    with running(make_app(catalog)) as port:
        look(chrome, f"http://127.0.0.1:{port}", id=sample.ids[50])
        chrome.until(f"{HITS} === 40")
        assert chrome.text(".metadata") == "ink\n<b>Crimson</b>"
        chrome.find("#query").clear()
        chrome.find("#query").send_keys("crimson")
        chrome.until("document.querySelectorAll('#suggestions [role=option]').length === 7")
        assert chrome.text("#suggestions .all") == "Show all 6 matches"
        chrome.find("#suggestions .all").click()
        chrome.until("!document.getElementById('matches').hidden")
        assert chrome.text("#matches").startswith("6 items contain “crimson”.")


def test_accessible(screen: Chrome, explorer: str, sample: Sample, axe: str) -> None:
    views = ({}, {"id": sample.ids[3]}, {"tab": "clusters", "cluster": sample.model.labels_[0]})
    for view, seen in zip(views, (".empty", ".hit", ".tree button"), strict=True):
        look(screen, explorer, **view)
        screen.until("document.querySelector(arguments[0]) !== null", seen)
        assert screen.violations(axe) == []


def test_marks_do_not_draw_a_crowd_again(chrome: Chrome, explorer: str) -> None:
    """Pointing, rings and a lasso being drawn leave 20,000 points as they are; colors do not."""
    look(chrome, explorer)
    counts = chrome.js(
        SCATTER + "const n = 20000, random = () => Float32Array.from({length: n}, Math.random);"
        "const map = scatter(random(), random(), 400), canvas = map.canvas, counts = [];"
        "let blends = 0; const blend = map.blend;"
        "map.blend = function (...given) { blends++; blend.apply(this, given) };"
        "const pixels = () => canvas.getContext('2d').getImageData(0, 0, 400, 400).data.join();"
        "const step = (act) => { act(); map.paint(); counts.push(blends) };"
        "map.paint(); const before = pixels();"
        "step(() => map.mark({ hover: 5, rings: [{ rows: [1, 2], color: 'red' }] }));"
        "counts.push(pixels() === before);"
        "step(() => map.mark({ hover: -1, rings: [] })); counts.push(pixels() === before);"
        "step(() => map.filter('none', null)); step(() => map.setSelection(null));"
        "step(() => map.setColors(new Uint32Array(n).fill(0xff0000ff), 0xffcccccc));"
        "step(() => map.setSelection(new Uint8Array(n).fill(1)));"
        "step(() => map.filter('some', new Uint8Array(n))); step(() => map.pan(5, 5));"
        "canvas.remove(); return counts"
    )
    assert counts == [0, False, 0, True, 0, 0, 1, 2, 3, 4]


def test_a_query_is_chosen_from_the_list(chrome: Chrome, sample: Sample) -> None:
    items = replace(make_items(300, sample.ids), queries=sample.X[[7, 9]] + 1e-3)
    catalog = make_catalog(sample.model, sample.X, items)
    start_work(catalog, sample.X).join()
    with running(make_app(catalog)) as port:
        look(chrome, f"http://127.0.0.1:{port}")
        chrome.choose("#queries", next(reversed(Answers(catalog).queries)))
        chrome.until("document.querySelectorAll('.hit').length === 40")
        assert chrome.text("#asked h2") == "query 1"
        assert sample.ids[9] in chrome.text(".hit")
        chrome.until("rpmlMap.query !== null")
        chrome.open("about:blank")
