"""The whole loop with keys alone: the focus is never lost, and every place can be reached."""

from __future__ import annotations

import pytest

from tests.drawings import Sample
from tests.pages.browser.chrome import Chrome
from tests.pages.browser.test_explorer import HITS, look
from tests.pages.browser.test_labeling import SELECTED, Labeling
from tests.pages.browser.test_labeling import labeling as labeling

Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
ID = "new URLSearchParams(location.search).get('id')"
HEADING = "document.activeElement === document.querySelector('#asked h2')"


def focused(chrome: Chrome, selector: str) -> None:
    chrome.until("document.activeElement.matches(arguments[0])", selector)


def tab_to(chrome: Chrome, selector: str) -> None:
    """Press Tab until an element has the focus; no more often than the page has controls."""
    for _ in range(60):
        chrome.press(Keys.TAB)
        if chrome.js("return document.activeElement.matches(arguments[0])", selector):
            return
    raise AssertionError(f"{selector} cannot be reached with Tab")


def ask_for(chrome: Chrome, text: str) -> None:
    chrome.press("/")
    focused(chrome, "#query")
    chrome.press(*text, Keys.ENTER)


def test_a_search_leads_to_the_results_and_escape_leaves_a_field(
    chrome: Chrome, explorer: str, sample: Sample
) -> None:
    look(chrome, explorer)
    ask_for(chrome, sample.ids[5])
    chrome.until(HEADING)
    ask_for(chrome, "no such id")
    chrome.until("document.querySelector('#asked h2').textContent === 'Nothing found'")
    focused(chrome, "#query")  # to be corrected
    assert len(chrome.complaints()) == 2  # the answers "not found"
    chrome.press(Keys.ESCAPE)
    focused(chrome, "#tab-neighbors")
    ask_for(chrome, sample.ids[0][:2])  # a part of many ids
    focused(chrome, "#grid")
    chrome.press("t")
    tab_to(chrome, "#table-head input")
    chrome.press(Keys.ESCAPE)
    focused(chrome, "#tab-table")


def test_back_and_the_number_of_neighbors_keep_the_focus(
    chrome: Chrome, explorer: str, sample: Sample
) -> None:
    look(chrome, explorer, id=sample.ids[7])
    chrome.until(f"{HITS} === 40")
    chrome.press("n")
    tab_to(chrome, ".hit")
    chrome.press(Keys.ENTER)
    chrome.until(f"{HEADING} && {ID} !== arguments[0]", sample.ids[7])
    chrome.driver.back()
    chrome.until(f"{HEADING} && {ID} === arguments[0]", sample.ids[7])
    tab_to(chrome, "#how-many")
    chrome.press(Keys.ARROW_DOWN)
    chrome.until(f"{HITS} === 100")
    focused(chrome, "#how-many")
    chrome.press(Keys.ARROW_UP)
    chrome.until(f"{HITS} === 40")
    chrome.press(Keys.ESCAPE, "t")
    tab_to(chrome, "#grid")
    chrome.until("document.querySelector('#line-1 td')?.innerText.length > 1")  # read by parts
    chrome.press(Keys.ARROW_DOWN, Keys.ENTER)
    chrome.until(HEADING)
    chrome.driver.back()
    focused(chrome, "#tab-table")


def test_points_are_selected_on_the_map(chrome: Chrome, explorer: str) -> None:
    look(chrome, explorer)
    chrome.press("m", Keys.ARROW_RIGHT, " ")
    chrome.until(f"{SELECTED} === 1")
    chrome.press(Keys.ARROW_LEFT, " ")
    chrome.until(f"{SELECTED} === 2")
    chrome.press("a")
    chrome.until(f"{SELECTED} === 300")
    chrome.press("+", "+", "+", "a")
    chrome.until(f"{SELECTED} < 300 && {SELECTED} > 0")
    tab_to(chrome, "#selected button")
    chrome.press(Keys.ENTER)
    chrome.until(f"{SELECTED} === 0")
    focused(chrome, "#map")


def test_matches_lead_to_the_table(chrome: Chrome, explorer: str, sample: Sample) -> None:
    look(chrome, explorer, q=sample.ids[0][:2])
    chrome.until("!document.getElementById('matches').hidden")
    chrome.press("m")
    tab_to(chrome, "#matches button:nth-of-type(2)")
    chrome.press(Keys.ENTER)
    chrome.until("!document.getElementById('panel-table').hidden")
    focused(chrome, "#tab-table")


def test_the_list_of_clusters_is_one_stop(chrome: Chrome, explorer: str) -> None:
    look(chrome, explorer, tab="clusters")
    chrome.until("document.querySelectorAll('#cluster-list .pick').length > 3")
    chrome.press("c")
    tab_to(chrome, ".pick")
    chrome.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ENTER)
    chrome.until("document.querySelector('#cluster h2') !== null")
    second = "document.activeElement === document.querySelectorAll('.pick')[1]"
    chrome.until(second)
    chrome.press(Keys.END)
    chrome.until("document.activeElement === [...document.querySelectorAll('.pick')].at(-1)")
    for _ in range(2):  # perhaps past "Show more"
        chrome.press(Keys.TAB)
        if chrome.js("return document.activeElement.closest('#cluster') !== null"):
            break
    assert chrome.js("return document.activeElement.closest('#cluster') !== null")


def test_label_undo_and_learn_again(chrome: Chrome, labeling: Labeling, sample: Sample) -> None:
    look(chrome, labeling.address)
    for start, label in ((0, "ones"), (5, "twos")):
        chrome.press("t")
        tab_to(chrome, "#grid")
        chrome.press(Keys.HOME, *[Keys.ARROW_DOWN] * start, " ", Keys.ARROW_DOWN, " ")
        chrome.press(Keys.ARROW_DOWN, " ")
        chrome.until(f"{SELECTED} === 3")
        chrome.press("l")
        tab_to(chrome, "#label")
        chrome.press(*label, Keys.ENTER)
        chrome.until("document.getElementById('label').value === ''")
        tab_to(chrome, ".clear-selection")
        chrome.press(Keys.ENTER)
        chrome.until(f"{SELECTED} === 0")
        focused(chrome, ".clear-selection")
    chrome.press("l")
    tab_to(chrome, "#learn")
    chrome.press(Keys.ENTER)
    focused(chrome, "#cancel-learning, #learn:enabled")
    chrome.until("document.getElementById('learning').textContent.startsWith('Learned from 6')")
    focused(chrome, "#learn")
    assert "95% interval" in chrome.text("#learning")
    chrome.press("l")
    tab_to(chrome, "#undo")
    chrome.press(Keys.ENTER)
    chrome.until("document.getElementById('label-status').textContent.startsWith('3 ')")
    focused(chrome, "#undo")
    chrome.press(Keys.ENTER)
    chrome.until("document.getElementById('undo').disabled")
    focused(chrome, "#label")
