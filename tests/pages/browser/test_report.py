"""The report in a real browser, opened from disk."""

from __future__ import annotations

import base64

import pytest

from tests.drawings import Sample
from tests.pages.browser.chrome import Chrome

LEFT, RIGHT = "[data-map=raw] canvas", "[data-map=rpml] canvas"
WIDTHS = [390, 1280, 1920]
MARKED = "return rpmlMaps.map((map) => [map.hover, map.selected])"


def place_of(chrome: Chrome, map_number: int, row: int) -> tuple[float, float]:
    """Where a point is on its canvas."""
    script = "const [k, i] = arguments, m = rpmlMaps[k]; return m.toScreen(m.x[i], m.y[i])"
    x, y = chrome.js(script, map_number, row)
    return x, y


def lone_row(chrome: Chrome, map_number: int) -> int:
    """The row whose point is farthest from all others: a pixel more or less does not matter."""
    script = """
        const m = rpmlMaps[arguments[0]];
        const points = Array.from(m.x, (x, i) => m.toScreen(x, m.y[i]));
        const apart = points.map((p) => points.map((q) => Math.hypot(p[0] - q[0], p[1] - q[1])));
        const nearest = apart.map((d, i) => Math.min(...d.filter((_, j) => j !== i)));
        return nearest.indexOf(Math.max(...nearest));"""
    return int(chrome.js(script, map_number))


def open_at_a_point(
    chrome: Chrome, report: str, map_number: int
) -> tuple[int, tuple[float, float]]:
    """Open the page; return a row and where its point is on a map."""
    chrome.open(report)
    row = lone_row(chrome, map_number)
    return row, place_of(chrome, map_number, row)


@pytest.mark.parametrize("width", WIDTHS)
def test_fits_the_window_with_the_verdict_first(chrome: Chrome, report: str, width: int) -> None:
    chrome.size(width, 844, touch=width < 500)
    chrome.open(report)
    assert chrome.overflow() <= 0
    bottom = chrome.js("return document.querySelector('.lead').getBoundingClientRect().bottom")
    assert bottom < 844
    assert chrome.text(".answer")
    assert chrome.js("return performance.getEntriesByType('resource').length") == 0


def test_a_click_marks_the_item_in_both_maps(chrome: Chrome, report: str, sample: Sample) -> None:
    row, place = open_at_a_point(chrome, report, 0)
    chrome.click_at(LEFT, *place)
    chrome.until("rpmlMaps.every((map) => map.selected === arguments[0])", row)
    assert sample.ids[row] in chrome.text("#card")
    assert sample.labels[row] in chrome.text("#card")
    assert len(chrome.all("#card .lists button")) == 12


def test_pointing_shows_the_item_in_both_maps(chrome: Chrome, report: str, sample: Sample) -> None:
    row, place = open_at_a_point(chrome, report, 1)
    chrome.move_to(RIGHT, *place)
    chrome.until("rpmlMaps.every((map) => map.hover === arguments[0])", row)
    assert sample.ids[row] in chrome.text("#card")
    chrome.move_to("h2#maps-title", 2, 2)
    chrome.until("rpmlMaps.every((map) => map.hover === -1)")


def test_find_an_id_and_follow_a_neighbor(chrome: Chrome, report: str, sample: Sample) -> None:
    chrome.open(report)
    chrome.find("#find").send_keys(sample.ids[33])
    chrome.until("rpmlMaps[0].selected === 33")
    chrome.find("#card .lists button").click()
    chrome.until("rpmlMaps[0].selected !== 33")
    chosen = chrome.js("return rpmlMaps[0].selected")
    assert sample.ids[chosen] in chrome.text("#card")
    chrome.js("document.getElementById('find').value = ''")
    chrome.find("#find").send_keys("no such id")
    assert "No item" in chrome.text("#find-status")


def test_keyboard_alone(chrome: Chrome, report: str) -> None:
    from selenium.webdriver.common.keys import Keys

    chrome.open(report)
    chrome.press(Keys.TAB)
    assert chrome.js("return document.activeElement.className") == "skip"
    chrome.js("document.querySelector('#find').focus()")
    chrome.press(*[Keys.TAB] * 4)  # past the buttons of the map
    assert chrome.js("return document.activeElement.tagName") == "CANVAS"
    chrome.press(Keys.ARROW_RIGHT)
    first = chrome.until("rpmlMaps[0].hover >= 0 && String(rpmlMaps[0].hover)")
    chrome.press(Keys.ARROW_LEFT, Keys.ARROW_DOWN, Keys.ARROW_LEFT)
    assert chrome.js("return String(rpmlMaps[0].hover)") != first
    chrome.press(Keys.ENTER)
    assert chrome.js(
        "return rpmlMaps[1].selected === rpmlMaps[0].selected && rpmlMaps[1].selected >= 0"
    )
    chrome.press("+", "+")
    assert chrome.js("return rpmlMaps[0].view.zoom") > 1.5
    chrome.press("0")
    assert chrome.js("return rpmlMaps[0].view.zoom") == 1
    chrome.press(Keys.ESCAPE)
    assert chrome.js("return rpmlMaps[0].selected") == -1


def test_zoom_by_button_and_wheel(chrome: Chrome, report: str) -> None:
    chrome.open(report)
    chrome.find("[data-map=raw] [data-act=in]").click()
    zoomed = chrome.js("return rpmlMaps[0].view.zoom")
    assert zoomed > 1
    assert chrome.js("return rpmlMaps[1].view.zoom") == 1
    chrome.js(
        "const c = document.querySelector(arguments[0]); c.focus();"
        "c.dispatchEvent(new WheelEvent('wheel', {deltaY: -300, cancelable: true}))",
        LEFT,
    )
    assert chrome.js("return rpmlMaps[0].view.zoom") > zoomed
    chrome.find("[data-map=raw] [data-act=reset]").click()
    assert chrome.js("return rpmlMaps[0].view.zoom") == 1


def test_colors_can_be_changed(chrome: Chrome, report: str) -> None:
    chrome.open(report)
    kinds = (
        "new Set([...rpmlMaps[0].colors].map((c, i) => [c, rpmlMaps[0].shapes?.[i]].join())).size"
    )
    assert chrome.js(f"return {kinds}") == 15
    assert chrome.js("return new Set(rpmlMaps[0].shapes).size") == 4
    chrome.choose("#color-by", "nothing")
    assert chrome.js(f"return {kinds}") == 1
    shown = "getComputedStyle(document.getElementById('legend')).display"
    assert chrome.js(f"return {shown}") == "none"


def test_a_tap_on_a_phone(chrome: Chrome, report: str, sample: Sample) -> None:
    chrome.size(390, 844, touch=True)
    chrome.open(report)
    row = lone_row(chrome, 0)
    chrome.tap(LEFT, *place_of(chrome, 0, row))
    chosen = chrome.until("rpmlMaps[1].selected >= 0 && String(rpmlMaps[1].selected)")
    assert sample.ids[int(chosen)] in chrome.text("#card")


def test_dark_mode_changes_page_and_points(chrome: Chrome, report: str) -> None:
    chrome.open(report)
    look = "return [getComputedStyle(document.body).backgroundColor, rpmlMaps[0].colors[0]]"
    light = chrome.js(look)
    chrome.media(dark=True)
    chrome.until("getComputedStyle(document.body).backgroundColor === 'rgb(17, 20, 23)'")
    chrome.until("rpmlMaps[0].colors[0] !== arguments[0]", light[1])  # by an event, after the page
    assert chrome.js(look)[0] != light[0]


def test_print_leaves_controls_out(chrome: Chrome, report: str) -> None:
    chrome.open(report)
    chrome.media(kind="print")
    hidden = "getComputedStyle(document.querySelector(arguments[0])).display === 'none'"
    for selector in (".contents", ".controls", ".map-buttons", "#card"):
        chrome.until(hidden, selector)
    pdf = chrome.driver.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert base64.b64decode(pdf).startswith(b"%PDF")


def test_hostile_names_are_text(chrome: Chrome, plain_report: str, hostile: list[str]) -> None:
    chrome.open(plain_report)
    chrome.find("#find").send_keys("alert(5)")
    chrome.until("rpmlMaps[0].selected === 5")
    assert hostile[5] in chrome.text("#card")
    assert chrome.js("return document.querySelectorAll('img[src=x], main script').length") == 0
    assert "<script>" in chrome.text(".source")


def test_accessible(screen: Chrome, report: str, axe: str) -> None:
    screen.open(report)
    screen.js("document.querySelector('details:not(.contents-fold)').open = true")
    screen.js("rpmlMaps[0].options.onPick(3)")
    screen.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    assert screen.violations(axe) == []


def test_accessible_without_pictures(chrome: Chrome, plain_report: str, axe: str) -> None:
    chrome.open(plain_report)
    assert chrome.violations(axe) == []
