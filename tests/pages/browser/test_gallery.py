"""Large pictures of the neighbors, an uploaded image, and names of clusters, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import Catalog, make_catalog, start_work
from rpml.pages.items import picture_reader
from tests.drawings import Sample
from tests.pages.browser.chrome import Chrome
from tests.pages.browser.test_explorer import look
from tests.pages.explorer.client import running

TILES = "document.querySelectorAll('.tile').length"


@pytest.fixture(scope="module")
def named(sample: Sample) -> Catalog:
    """Items whose texts say what they are."""
    texts = [f"a drawing of {label.replace(' ', ' sign')} number" for label in sample.labels]
    words = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    for number, word in reversed(list(enumerate(words.split()))):
        texts = [text.replace(f"sign{number} ", f"{word} ") for text in texts]
    catalog = make_catalog(sample.model, sample.X, replace(sample.items, texts=texts))
    start_work(catalog, sample.X, tree=False).join()
    return catalog


@pytest.fixture(scope="module")
def gallery(named: Catalog, sample: Sample) -> Iterator[str]:
    """An explorer that takes every uploaded image for the drawing 21."""
    pictures = picture_reader(named.items, sample.images)
    with running(
        make_app(named, pictures, lambda data: (sample.X[21], pictures(21, True)))
    ) as port:
        yield f"http://127.0.0.1:{port}"


def mixed_row(catalog: Catalog) -> int:
    """An item with neighbors of its own and of another label."""
    index, labels = catalog.indices["rpml"], catalog.items.labels or []
    for row in range(len(catalog)):
        right = [labels[near] == labels[row] for near in index.near_row(row, 10)[0]]
        if 2 < sum(right) < 8:
            return row
    raise AssertionError("every item has neighbors of one kind")


def test_neighbors_as_a_gallery(chrome: Chrome, gallery: str, named: Catalog) -> None:
    row = mixed_row(named)
    look(chrome, gallery, id=named.items.ids[row], k=10)
    chrome.until("document.querySelectorAll('.hit').length === 20")
    chrome.find("#show").click()
    chrome.until(f"{TILES} === 20")
    assert "show=gallery" in chrome.driver.current_url
    assert chrome.js("return document.activeElement.id") == "show"
    assert chrome.js("return document.querySelector('.tile img').clientWidth") >= 110
    marks = [e.text for e in chrome.all("[data-space=rpml] .mark")]
    near = named.indices["rpml"].near_row(row, 10)[0]
    right = [named.items.label(int(i)) == named.items.label(row) for i in near]
    assert marks == ["✓" if same else "✗" for same in right]
    chrome.find(".tile").click()
    chrome.until("rpmlMap.selected !== arguments[0]", row)
    chrome.until(f"{TILES} === 20")


def test_an_uploaded_image_is_shown_and_placed(
    chrome: Chrome, gallery: str, sample: Sample
) -> None:
    look(chrome, gallery, show="gallery", other="raw")
    chrome.find("#upload").send_keys(str(sample.images / sample.ids[21]))
    chrome.until(f"{TILES} === 40")
    chrome.until("document.querySelector('#asked img')?.naturalWidth > 10")
    assert "/picture/upload/" in chrome.find("#asked img").get_attribute("src")
    for map_number in (0, 1):  # the drawing itself is the nearest, and weighs most
        place, x, y = chrome.until(
            "(([m]) => m?.query && [m.query, m.x[21], m.y[21]])([rpmlMaps[arguments[0]]])",
            map_number,
        )
        assert place == pytest.approx([x, y], abs=0.12)
    chrome.find("#random").click()
    chrome.until("rpmlMap.query === null")


def test_clusters_are_named_by_their_words(chrome: Chrome, gallery: str, named: Catalog) -> None:
    look(chrome, gallery, tab="clusters")
    chrome.until("document.querySelectorAll('.cluster-list tbody tr').length > 3")
    names = [e.text for e in chrome.all(".cluster-list .pick span")]
    clusters = named.clusters.value
    assert clusters is not None
    assert names[0] == f"Cluster {clusters.title(clusters.names[clusters.ordered('size')[0]])}"
    assert all("drawing" not in name for name in names)
    assert len(chrome.all(".cluster-list .pick img")) == len(names)
    chrome.choose("#color", "cluster")
    chrome.until("document.querySelector('#legend .name')?.textContent.includes(': ')")


def test_accessible(screen: Chrome, gallery: str, sample: Sample, axe: str) -> None:
    look(screen, gallery, id=sample.ids[8], show="gallery")
    screen.until(f"{TILES} === 40")
    assert screen.overflow() <= 0
    assert screen.violations(axe) == []
