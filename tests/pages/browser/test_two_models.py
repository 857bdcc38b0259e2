"""Two models in a real browser: linked maps and three lists, in both pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpml import RPML
from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import Catalog, make_catalog, start_work
from rpml.pages.explorer.index import ExactIndex
from rpml.pages.items import make_items
from rpml.pages.report.measurements import Measurements, Source
from rpml.pages.report.page import build_report
from tests.drawings import Sample
from tests.pages.browser.chrome import Chrome
from tests.pages.browser.test_explorer import HITS, look
from tests.pages.explorer.client import running


@pytest.fixture(scope="module")
def second(sample: Sample) -> RPML:
    return RPML(8, n_neighbors=15, max_iter=3, tol=1e-3, random_state=1).fit(sample.X)


@pytest.fixture(scope="module")
def both(sample: Sample, second: RPML) -> Catalog:
    catalog = make_catalog(sample.model, sample.X, make_items(300, sample.ids, sample.labels))
    catalog.titles["rpml"] = "old.rpml"
    catalog.add_model("second", "new.rpml", second, ExactIndex(second.transform(sample.X)))
    start_work(catalog, sample.X, tree=False).join()
    return catalog


@pytest.fixture(scope="module")
def explorer(both: Catalog) -> Iterator[str]:
    with running(make_app(both)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def report(sample: Sample, second: RPML) -> str:
    items = make_items(300, sample.ids, sample.labels)
    source = Source("old.rpml", "x.npy", second="new.rpml")
    page = build_report(Measurements([sample.model, second], sample.X, items, source))
    path = sample.folder / "two.html"
    path.write_text(page, encoding="utf8")
    return path.as_uri()


def test_linked_maps_and_three_lists(
    chrome: Chrome, explorer: str, both: Catalog, sample: Sample
) -> None:
    look(chrome, explorer, id=sample.ids[9], k=10)
    chrome.until(f"{HITS} === 30 && rpmlMaps.length === 2")
    titles = [e.text.split("\n")[0] for e in chrome.all(".list h2")]
    assert titles == ["Raw features", "old.rpml", "new.rpml"]
    shown = "return [...document.querySelectorAll('[data-space=second] .name')]"
    found = both.indices["second"].near_row(9, 10)[0]
    assert chrome.js(f"{shown}.map((n) => n.textContent)") == [sample.ids[r] for r in found]
    assert [e.text for e in chrome.all(".map-title")] == ["old.rpml", "new.rpml"]
    chrome.until("rpmlMaps.every((map) => map.selected === 9 && map.rings.length === 3)")
    x, y = chrome.js("return rpmlMaps[1].toScreen(rpmlMaps[1].x[100], rpmlMaps[1].y[100])")
    chrome.move_to("#map-other", x, y)
    chrome.until("rpmlMaps[1].hover >= 0 && rpmlMaps[0].hover === rpmlMaps[1].hover")
    chrome.find("input[name=tool][value=box]").click()
    chrome.drag("#map-other", (5, 5), (200, 300))
    chrome.until("rpmlMaps[0].selection?.some(Boolean)")
    assert chrome.js("return rpmlMaps[0].selection === rpmlMaps[1].selection")
    chrome.choose("#other", "")
    chrome.until("rpmlMaps.length === 1")
    assert not chrome.find("#map-other").is_displayed()


def test_the_report_compares_both(chrome: Chrome, report: str) -> None:
    chrome.open(report)
    heads = [e.text for e in chrome.all("#table thead tr:first-child th")][1:5]
    assert heads == ["raw features", "PCA, 16 dimensions", "old.rpml, 16 dimensions",
                     "new.rpml, 8 dimensions"]  # fmt: skip
    cells = chrome.all("#table tbody tr:first-child td .interval")
    assert len([cell for cell in cells if " – " in cell.text]) >= 4
    assert "new.rpml" in chrome.text("#verdict .lead")
    assert "nearest neighbors in common (95% interval" in chrome.text("#verdict")
    (gain,) = (e for e in chrome.all("#table tr") if e.text.startswith("Gain in Recall@1"))
    assert (
        len([cell for cell in gain.find_elements("css selector", "td") if " to " in cell.text]) == 3
    )
    captions = [e.text for e in chrome.all(".map > figcaption > [id]")]
    assert captions == ["Raw features", "old.rpml", "new.rpml"]
    chrome.js("rpmlMaps[2].options.onPick(7)")
    chrome.until("rpmlMaps.every((map) => map.selected === 7)")
    assert [e.text for e in chrome.all("#card h3")] == captions
    assert [e.text for e in chrome.all("#changed .pair h3")][:3] == captions


def test_accessible(screen: Chrome, explorer: str, report: str, axe: str) -> None:
    look(screen, explorer, id="Armenian/000-03.png")
    screen.until(f"{HITS} === 60")
    assert screen.overflow() <= 0
    assert screen.violations(axe) == []
    screen.open(report)
    screen.js("rpmlMaps[2].options.onPick(7)")
    assert screen.overflow() <= 0
    assert screen.violations(axe) == []
