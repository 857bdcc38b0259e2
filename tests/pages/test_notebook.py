"""The report and the explorer from Python."""

import html
import json
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import rpml
from rpml.runtime.errors import InputError
from tests.problems import blobs


@pytest.fixture(scope="module")
def data():
    return blobs(classes=5, per_class=20, d=8, dtype=np.float32)


@pytest.fixture(scope="module")
def model(data):
    return rpml.RPML(4, n_neighbors=10, random_state=0).fit(data[0])


def test_the_report(model, data, tmp_path):
    X, y = data
    page = rpml.report(model, pd.DataFrame({"v": list(X)}), y, texts=[f"<b>{c}" for c in y])
    assert page.html.startswith("<!doctype html>")
    assert "<b>3" not in page.html
    shown = page._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    inside = shown.split('srcdoc="')[1].split('"')[0]
    assert html.unescape(inside) == page.html
    assert page.save(tmp_path / "report.html").read_text(encoding="utf8") == page.html
    with pytest.raises(InputError, match="exists"):
        page.save(tmp_path / "report.html", overwrite=False)
    page.save(tmp_path / "report.html")
    assert "MB of HTML" in repr(page)


def test_the_explorer(model, data):
    X, y = data
    with rpml.explore(model, X, y, ids=[f"item {i}" for i in range(len(X))]) as explorer:
        assert explorer.url.startswith("http://127.0.0.1:")
        assert explorer.url in explorer._repr_html_()
        with urllib.request.urlopen(f"{explorer.url}api/item?row=7") as answer:
            assert "item 7" in json.dumps(json.load(answer))
    with pytest.raises(OSError, match=r"refused|closed"):
        urllib.request.urlopen(explorer.url, timeout=5)


@pytest.mark.parametrize("show", [rpml.report, rpml.explore])
def test_refusals(model, data, show):
    X, _ = data
    with pytest.raises(NotFittedError):
        show(rpml.RPML(), X)
    with pytest.raises(ValueError, match="8 features"):
        show(model, X[:, :3])
    with pytest.raises(InputError, match="2 ids"):
        show(model, X, ids=["a", "b"])
    with pytest.raises(InputError, match="no such folder"):
        show(model, X, images=Path("absent"))
