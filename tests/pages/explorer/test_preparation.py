"""The file next to the model that holds the maps and the clusters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rpml.io.container import Arrays, read_container, write_container
from rpml.pages.explorer import catalog as preparation
from rpml.pages.explorer.catalog import KIND, VERSION, Catalog, Pending, start_work
from tests.drawings import Sample


def fresh(catalog: Catalog) -> Catalog:
    """The same rows, before anything is prepared."""
    return replace(catalog, clusters=Pending(), maps=Pending(), tree_reason="")


@pytest.fixture
def no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(preparation, "linked_maps", refuse)
    monkeypatch.setattr(preparation, "find_clusters", refuse)


@pytest.fixture(scope="module")
def kept(catalog: Catalog, sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the sample."""
    path = tmp_path_factory.mktemp("cache") / "model.rpml.explorer"
    start_work(fresh(catalog), sample.X, cache=path).join()
    return path


@pytest.mark.usefixtures("no_layout")
def test_a_second_start_computes_nothing(catalog: Catalog, sample: Sample, kept: Path) -> None:
    again = fresh(catalog)
    start_work(again, sample.X, cache=kept).join()
    assert again.maps.value == catalog.maps.value
    ours, theirs = again.clusters.value, catalog.clusters.value
    assert ours is not None
    assert theirs is not None
    for name in ("names", "sizes", "modes", "impurity", "parents"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize("change", ["seed", "rows", "tree"])
def test_other_input_is_computed(
    catalog: Catalog, sample: Sample, kept: Path, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "model.rpml.explorer"
    path.write_bytes(kept.read_bytes())
    again, seed, tree = fresh(catalog), int(change == "seed"), change != "tree"
    X = sample.X.copy()
    X[0, 0] += float(change == "rows")
    start_work(again, X, seed, tree, path).join()
    assert path.read_bytes() != kept.read_bytes()
    assert again.maps.state == again.clusters.state == "ready"
    assert (again.maps.value == catalog.maps.value) == (change != "seed")


@pytest.mark.parametrize("content", [b"my own notes", b"", b"\x93NUMPY"])
def test_a_foreign_file_is_left_alone(
    catalog: Catalog,
    sample: Sample,
    tmp_path: Path,
    content: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "model.rpml.explorer"
    path.write_bytes(content)
    again = fresh(catalog)
    with caplog.at_level(logging.WARNING):
        start_work(again, sample.X, tree=False, cache=path).join()
    assert path.read_bytes() == content
    assert again.maps.value == catalog.maps.value
    assert "the map is drawn again at the next start" in caplog.text


def test_a_model_is_no_cache(catalog: Catalog, sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / "model.rpml.explorer"
    sample.model.save(path)
    before = path.read_bytes()
    start_work(fresh(catalog), sample.X, tree=False, cache=path).join()
    assert path.read_bytes() == before


def test_a_damaged_cache_is_not_used(
    catalog: Catalog, sample: Sample, kept: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model.rpml.explorer"
    data = bytearray(kept.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    again = fresh(catalog)
    start_work(again, sample.X, cache=path).join()
    assert again.maps.value == catalog.maps.value


def shorter_points(arrays: Arrays) -> Arrays:
    return {**arrays, "map_rpml": arrays["map_rpml"].astype(np.uint8)}


def no_impurity(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if name != "impurity"}


@pytest.mark.parametrize("forge", [shorter_points, no_impurity])
def test_a_forged_cache_is_not_used(
    catalog: Catalog,
    sample: Sample,
    kept: Path,
    tmp_path: Path,
    forge: Callable[[Arrays], Arrays],
) -> None:
    path = tmp_path / "model.rpml.explorer"
    arrays, fields = read_container(kept, KIND, VERSION)
    write_container(path, forge(arrays), fields["metadata"], KIND, VERSION)
    again = fresh(catalog)
    start_work(again, sample.X, cache=path).join()
    assert again.maps.value == catalog.maps.value
    assert again.clusters.state == "ready"
    assert path.read_bytes() == kept.read_bytes()  # written anew


def test_where_nothing_can_be_written_the_page_works(catalog: Catalog, sample: Sample) -> None:
    again = fresh(catalog)
    path = sample.folder / "no such folder" / "model.rpml.explorer"
    start_work(again, sample.X, tree=False, cache=path).join()
    assert again.maps.state == "ready"
