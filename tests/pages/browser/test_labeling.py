"""Select, label, undo, suggest, learn again, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import make_catalog, start_work
from rpml.pages.explorer.labeling import Labeling, LabelStore
from rpml.pages.items import make_items, picture_reader
from tests.drawings import Sample
from tests.pages.browser.chrome import Chrome
from tests.pages.browser.test_explorer import HITS, look
from tests.pages.explorer.client import running

SELECTED = "(rpmlMap.selection ? rpmlMap.selection.reduce((a, b) => a + b) : 0)"


@dataclass(frozen=True)
class Served:
    """An explorer that labels."""

    address: str
    store: LabelStore
    learner: Labeling


@pytest.fixture
def labeling(chrome: Chrome, sample: Sample, tmp_path: Path) -> Iterator[Served]:
    """The page is left before the server stops, so that no picture is asked of a dead one."""
    items = make_items(len(sample.X), sample.ids, images=sample.images)
    store = LabelStore(items, tmp_path / "labels.csv")
    catalog = make_catalog(sample.model, sample.X, store.items)
    start_work(catalog, sample.X).join()
    learner = Labeling(catalog, sample.X, store)
    pictures = picture_reader(items, sample.images)
    with running(make_app(catalog, pictures, labeling=learner)) as port:
        yield Served(f"http://127.0.0.1:{port}", store, learner)
        chrome.open("about:blank")


def test_nothing_is_suggested_once_all_items_have_labels(chrome: Chrome, labeling: Served) -> None:
    labeling.store.assign(range(300), "cat")
    look(chrome, labeling.address, tab="labels")
    chrome.find("#suggest").click()
    chrome.until("document.getElementById('queue').innerText !== ''")
    assert chrome.text("#queue") == "There is no item left to suggest: learn again."


def inside(chrome: Chrome, x: float, y: float, right: float, bottom: float) -> int:
    """How many points of the map lie in a box of pixels."""
    script = (
        "const [x, y, r, b] = arguments, m = rpmlMap; let n = 0;"
        "for (let i = 0; i < m.n; i++) { const [px, py] = m.toScreen(m.x[i], m.y[i]);"
        "n += px > x && px < r && py > y && py < b } return n"
    )
    return int(chrome.js(script, x, y, right, bottom))


def use(chrome: Chrome, tool: str) -> None:
    script = "document.querySelector(`input[name=tool][value=${arguments[0]}]`).click()"
    chrome.js(script, tool)


def test_select_with_a_box_label_and_undo(chrome: Chrome, labeling: Served) -> None:
    from selenium.webdriver.common.keys import Keys

    look(chrome, labeling.address, tab="labels")
    use(chrome, "box")
    chrome.drag("#map", (60, 60), (200, 150), (420, 400))
    count = inside(chrome, 60, 60, 420, 400)
    assert count > 10
    assert abs(chrome.js(f"return {SELECTED}") - count) <= 2
    count = chrome.js(f"return {SELECTED}")
    assert f"{count} items are selected" in chrome.text("#selection")
    chrome.find("#label").send_keys("a cat", Keys.ENTER)
    chrome.until(f"document.getElementById('label-status').innerText.startsWith('{count} items')")
    assert labeling.store.counts() == [("a cat", count)]
    assert len(labeling.store.path.read_text(encoding="utf8").splitlines()) == count + 1
    chrome.until("document.querySelector('#legend .name')?.textContent === 'a cat'")
    chrome.find("#undo").click()
    chrome.until("document.getElementById('label-status').innerText.startsWith('No item')")
    assert labeling.store.counts() == []


def test_the_lasso_adds_with_shift_and_labels_select_their_items(
    chrome: Chrome, labeling: Served
) -> None:
    look(chrome, labeling.address, tab="labels")
    use(chrome, "lasso")
    chrome.drag("#map", (20, 20), (500, 20), (500, 600), (20, 600))
    first = chrome.js(f"return {SELECTED}")
    assert first > 10
    assert first == pytest.approx(inside(chrome, 20, 20, 500, 600), abs=3)
    labeling.store.assign([0, 1, 2], "dog")
    look(chrome, labeling.address, tab="labels")
    chrome.until("document.querySelector('#label-list button')").click()
    chrome.until(f"{SELECTED} === 3")


def test_select_neighbors_and_clusters(chrome: Chrome, labeling: Served, sample: Sample) -> None:
    look(chrome, labeling.address, id=sample.ids[5])
    chrome.until(f"{HITS} === 40")
    buttons = {b.text: b for b in chrome.all("#asked .tools button")}
    buttons["Select these"].click()
    selected = chrome.until(f"{SELECTED}")
    assert 20 <= selected <= 40
    look(chrome, labeling.address, tab="clusters", cluster=int(sample.model.labels_[0]))
    chrome.until("document.querySelector('#cluster .tools button') !== null")
    chrome.find("#cluster .tools button").click()
    size = int((sample.model.labels_ == sample.model.labels_[0]).sum())
    chrome.until(f"{SELECTED} === {size}")


def test_answer_suggestions_with_the_keyboard(chrome: Chrome, labeling: Served) -> None:
    from selenium.webdriver.common.keys import Keys

    look(chrome, labeling.address)
    chrome.press("l")
    chrome.until("!document.getElementById('panel-labels').hidden")
    chrome.js("document.getElementById('suggest').focus()")
    chrome.press(Keys.ENTER)
    chrome.until("document.activeElement.closest('.question') !== null")
    name = chrome.text(".question p")
    chrome.press(*"cat", Keys.ENTER)
    chrome.until("document.querySelector('.question p')?.innerText !== arguments[0]", name)
    chrome.until("document.querySelectorAll('#label-list button').length === 1")
    second = chrome.text(".question p")
    chrome.press("1")
    chrome.until("document.querySelector('.question p')?.innerText !== arguments[0]", second)
    row = {labeling.store.items.ids.index(text) for text in (name, second)}
    assert set(labeling.store.rows_of("cat").tolist()) == row


def test_learn_again_shows_before_and_after(
    chrome: Chrome, labeling: Served, sample: Sample
) -> None:
    for label in sorted(set(sample.labels)):
        rows = [i for i, other in enumerate(sample.labels) if other == label][:6]
        labeling.store.assign(rows, label)
    look(chrome, labeling.address, tab="labels")
    chrome.find("#learn").click()
    chrome.until("document.getElementById('learning').innerText.startsWith('Learning')")
    labeling.learner.thread.join()
    chrome.until("document.getElementById('learning').innerText.startsWith('Learned from 90')")
    chrome.until("rpmlMaps.length === 2 && document.getElementById('other').value === 'learned'")
    assert "before" in chrome.text("#learning")
    chrome.find("#tab-neighbors").click()
    chrome.find("#query").send_keys(sample.ids[4] + "\n")
    chrome.until(f"{HITS} === 60")
    assert chrome.js("return !document.querySelector('[data-space=learned]').hidden")


def test_a_changed_file_is_said(chrome: Chrome, labeling: Served) -> None:
    look(chrome, labeling.address, tab="labels")
    labeling.store.path.write_text("id,label\nother,1\n")
    chrome.js("rpmlExplorer.select([1, 2])")
    chrome.find("#label").send_keys("cat\n")
    chrome.until("!document.getElementById('alert').hidden")
    assert "changed by another program" in chrome.text("#alert")
    assert all("422" in c for c in chrome.complaints())


def test_without_a_file_nothing_can_be_labeled(chrome: Chrome, explorer: str) -> None:
    look(chrome, explorer, tab="labels")
    assert chrome.js("return document.getElementById('tab-labels').hidden")
    assert not chrome.js("return document.getElementById('panel-neighbors').hidden")


def test_select_50000_points(chrome: Chrome, labeling: Served) -> None:
    look(chrome, labeling.address, tab="labels")
    count = chrome.js(
        "const n = 200000, x = new Float32Array(n), y = new Float32Array(n);"
        "for (let i = 0; i < n; i++) { x[i] = Math.random(); y[i] = Math.random() }"
        "const canvas = document.createElement('canvas'); document.body.append(canvas);"
        "canvas.style.cssText = 'width:400px;height:400px'; "
        "const map = new rpml.Scatter(canvas, x, y);"
        "const [a, b] = map.toScreen(0.25, 0.25), [c, d] = map.toScreen(0.75, 0.75);"
        "const rows = map.inside([[a, b], [c, b], [c, d], [a, d]]); canvas.remove();"
        "return rows.length"
    )
    assert count == pytest.approx(50_000, rel=0.05)


def test_accessible(screen: Chrome, labeling: Served, axe: str) -> None:
    labeling.store.assign([0, 1], "cat")
    look(screen, labeling.address, tab="labels")
    screen.find("#suggest").click()
    screen.until("document.querySelector('.question') !== null")
    screen.js("rpmlExplorer.select([1, 2, 3])")
    assert screen.overflow() <= 0
    assert screen.violations(axe) == []
