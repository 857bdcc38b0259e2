"""What the explorer writes beside the user's files, under every fault at every moment."""

import os
import shutil
import warnings
from itertools import count
from pathlib import Path

import pytest

from rpml import RPML
from rpml.pages.explorer.catalog import cache_key, make_catalog, save_cache, start_work
from rpml.pages.explorer.labeling import LabelStore
from rpml.pages.items import make_items
from tests.cli.conftest import make_vectors
from tests.faults.shim import FAULTS, NOT_REACHED, run_forked

X = make_vectors(60, 8, 4)[0]


@pytest.fixture(scope="module")
def catalog():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RPML(4, n_neighbors=8, random_state=0, training="always", max_iter=5).fit(X)
    made = make_catalog(model, X, make_items(60), "x.npy")
    start_work(made, X).join()
    return made


def assign(catalog):
    LabelStore(make_items(60), "labels.csv").assign([2, 3], "dog")


def cache(catalog):
    """The file of another seed is replaced."""
    save_cache(catalog, Path("m.explorer"), cache_key(catalog, X, 1, True))


def start(folder, catalog):
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    LabelStore(make_items(60), folder / "labels.csv").assign([1], "cat")
    save_cache(catalog, folder / "m.explorer", cache_key(catalog, X, 0, True))


def content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name[0] != "."}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("write", [assign, cache])
def test_old_or_new_and_nothing_else(catalog, tmp_path, monkeypatch, write, fault):
    place, whole = tmp_path / "place", tmp_path / "whole"
    start(whole, catalog)

    def fresh():
        os.chdir("/")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(whole, place)
        monkeypatch.chdir(place)

    fresh()
    write(catalog)
    old, new = content(whole), content(place)
    assert old != new
    for moment in count():
        fresh()
        if run_forked(lambda: write(catalog), place, moment, fault) == NOT_REACHED:
            break
        assert content(place) in (old, new), moment
        write(catalog)
        assert content(place) == new, moment
        hidden = [p.name for p in place.glob(".*/**/*") if p.is_file() and p.name != "lock"]
        assert hidden == []
    print(f"{write.__name__} {fault} {moment}")
    assert moment >= 5
