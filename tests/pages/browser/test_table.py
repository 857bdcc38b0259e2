"""The table of all items in a real browser: scrolled, sorted, filtered, linked to the map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import Catalog
from tests.drawings import Sample
from tests.pages.browser.chrome import Chrome
from tests.pages.browser.test_explorer import HITS, READY, look
from tests.pages.explorer.client import running

SELECTED = "(rpmlMap.selection ? rpmlMap.selection.reduce((a, b) => a + b) : 0)"
FILLED = "document.querySelector('#table-body td')?.innerText.length > 1"
STANDING_OUT = "(rpmlMap.mask ? rpmlMap.mask.reduce((a, b) => a + b) : 0)"


@pytest.fixture(scope="module")
def table(catalog: Catalog, sample: Sample) -> Iterator[str]:
    """An explorer of items with a text that repeats, a price and a hostile color."""
    n = len(sample.X)
    items = replace(
        catalog.items,
        images=None,
        texts=[f"why was my card {'declined' if i % 50 == 7 else 'charged'}" for i in range(n)],
        metadata={
            "price": ["" if i % 10 == 0 else str(i) for i in range(n)],
            "ink": ["<b>Crimson</b>" if i % 50 == 0 else "blue" for i in range(n)],
        },
    )
    shown = replace(catalog, items=items)
    with running(make_app(shown)) as port:
        yield f"http://127.0.0.1:{port}"


def column(chrome: Chrome, number: int) -> list[str]:
    script = "return [...document.querySelectorAll(`#table-body td:nth-child(${arguments[0]})`)]"
    found: list[str] = chrome.js(script + ".map((e) => e.innerText)", number)
    return found


def open_table(chrome: Chrome, address: str, **view: object) -> None:
    look(chrome, address, tab="table", **view)
    chrome.until(FILLED)


def test_only_rows_in_view_are_in_the_page(chrome: Chrome, table: str, sample: Sample) -> None:
    open_table(chrome, table)
    heads = [e.text for e in chrome.all("#table-head th button")]
    assert heads == ["id", "text", "label", "cluster", "price", "ink"]
    assert column(chrome, 1)[:3] == sample.ids[:3]
    assert len(chrome.all("#table-body tr")) < 40
    chrome.js("document.getElementById('table-scroll').scrollTop = 1e9")
    chrome.until("document.querySelector('#table-body tr:last-child td').innerText.length > 1")
    chrome.until("document.querySelector('#table-body tr:last-child').ariaRowIndex === '301'")
    assert column(chrome, 1)[-1] == sample.ids[-1]
    assert chrome.text("#table-status") == "300 items"


def test_sort_by_numbers_up_down_and_not(chrome: Chrome, table: str) -> None:
    open_table(chrome, table)
    button = chrome.find("th[data-column=price] button")
    button.click()
    chrome.until("document.querySelector('#table-body td:nth-child(5)')?.innerText === '1'")
    assert column(chrome, 5)[:9] == [str(i) for i in range(1, 10)]  # 10 is missing, "2" is not "11"
    button.click()
    chrome.until("document.querySelector('#table-body td:nth-child(5)')?.innerText === '299'")
    assert chrome.find("th[data-column=price]").get_attribute("aria-sort") == "descending"
    assert "by=-price" in chrome.driver.current_url
    button.click()
    chrome.until("document.querySelector('#table-body td:nth-child(5)')?.innerText === ''")


def test_filters_stand_out_on_the_map(chrome: Chrome, table: str) -> None:
    open_table(chrome, table)
    chrome.find("input[data-column=price]").send_keys("> 250 <= 260")
    chrome.until(f"{STANDING_OUT} === 9")  # 260 has no price
    assert chrome.text("#table-status") == "9 of 300 items"
    chrome.find("input[data-column=ink]").send_keys("crim")
    chrome.until(f"{STANDING_OUT} === 0 && rpmlMap.mask")
    address = chrome.driver.current_url
    chrome.open("about:blank")
    chrome.open(address)
    chrome.until("document.querySelector('input[data-column=price]')?.value === '> 250 <= 260'")
    chrome.until(f"{READY} && rpmlMap.mask")
    chrome.find("#matches button:last-child").click()
    chrome.until("rpmlMap.mask === null")
    assert chrome.text("#table-status") == "300 items"


def test_search_in_all_columns_marks_every_hit_and_counts(chrome: Chrome, table: str) -> None:
    from selenium.webdriver.common.keys import Keys

    look(chrome, table)
    chrome.find("#query").send_keys("CRIMSON", Keys.ENTER)
    chrome.until("!document.getElementById('panel-table').hidden")
    chrome.until(f"{FILLED} && {STANDING_OUT} === 6")
    assert chrome.text("#matches").startswith("6 items contain “CRIMSON”.")
    marks = [e.text for e in chrome.all("#table-body mark")]
    assert marks == ["Crimson"] * 6
    chrome.find("#query").clear()
    chrome.find("#query").send_keys("declined", Keys.ENTER)
    chrome.until(f"{STANDING_OUT} === 6 && document.querySelector('#table-body mark')")
    chrome.until("document.querySelector('#table-body mark')?.innerText === 'declined'")
    first = chrome.find("#table-body mark")
    inside = "const m = arguments[0].getBoundingClientRect(), "
    inside += "c = arguments[0].parentElement.getBoundingClientRect(); return m.right <= c.right"
    assert chrome.js(inside, first)  # although the column is narrower than the text


def test_rows_and_points_select_each_other(chrome: Chrome, table: str) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    open_table(chrome, table)
    lines = chrome.all("#table-body td:nth-child(2)")
    lines[3].click()
    chrome.until(f"{SELECTED} === 1 && rpmlMap.selection[3] === 1 && rpmlMap.hover === 3")
    shift = ActionChains(chrome.driver).key_down(Keys.SHIFT)
    shift.click(chrome.all("#table-body td:nth-child(2)")[6]).key_up(Keys.SHIFT).perform()
    chrome.until(f"{SELECTED} === 4")
    assert chrome.text("#selected span") == "4 items are selected."
    x, y = chrome.js("return rpmlMap.toScreen(rpmlMap.x[250], rpmlMap.y[250])")
    row = chrome.js("return rpmlMap.nearest(arguments[0], arguments[1])", x, y)
    chrome.click_at("#map", x, y)
    chrome.until(f"{SELECTED} === 1 && rpmlMap.selection[{row}] === 1")
    index = "document.querySelector('#table-body [aria-selected=true]')?.ariaRowIndex"
    chrome.until(f"{index} === '{row + 2}'")  # once the rows are drawn again
    chrome.find("#only-selected").click()
    chrome.until("document.querySelectorAll('#table-body tr').length === 1")


def test_keyboard_alone(chrome: Chrome, table: str, sample: Sample) -> None:
    from selenium.webdriver.common.keys import Keys

    look(chrome, table)
    chrome.press("t")
    chrome.until(FILLED)
    chrome.js("document.getElementById('grid').focus()")
    chrome.press(Keys.END)
    chrome.until("document.getElementById('line-299') !== null")
    chrome.press(Keys.ARROW_UP, Keys.SPACE)
    chrome.until(f"{SELECTED} === 1 && rpmlMap.selection[298] === 1")
    assert chrome.find("#grid").get_attribute("aria-activedescendant") == "line-298"
    chrome.until("document.querySelector('#line-298 td').innerText.length > 1")
    chrome.press(Keys.ENTER)
    chrome.until(f"{HITS} === 40")
    assert sample.ids[298] in chrome.text("#asked")


def test_accessible(screen: Chrome, table: str, axe: str) -> None:
    open_table(screen, table, q="crimson", by="-price")
    screen.js("rpmlExplorer.select([50, 100])")
    screen.until("document.querySelector('#table-body [aria-selected=true]')")
    assert screen.overflow() <= 0
    assert screen.violations(axe) == []
