"""The report and the explorer from Python, also in notebooks."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from rpml.estimator import RPML
from rpml.pages.items import Items, make_items, picture_reader
from rpml.runtime.errors import require
from rpml.runtime.files import atomic_output
from rpml.runtime.rows import Array, check_rows

if TYPE_CHECKING:
    import uvicorn

HEIGHT = 800  # pixels of a page in a notebook
SECONDS_TO_STOP = 10


@dataclass(frozen=True)
class Report:
    """A report as one HTML page; a notebook shows it as the result of a cell."""

    html: str

    def save(self, path: str | PathLike[str], overwrite: bool = True) -> Path:
        """Write the page, which can be opened offline; a file of that name is replaced."""
        with atomic_output(path, overwrite) as temporary:
            temporary.write_text(self.html, encoding="utf8")
        return Path(path)

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" '
            f'style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Report({len(self.html.encode()) / 2**20:.1f} MB of HTML; .save(path) writes it)"


class Explorer:
    """A running explorer at `url`, on this machine only; `close` or the process's end stops it."""

    def __init__(self, url: str, server: uvicorn.Server, thread: threading.Thread) -> None:
        self.url, self._server, self._thread = url, server, thread

    def close(self) -> None:
        """Stop the server."""
        self._server.should_exit = True
        self._thread.join(SECONDS_TO_STOP)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank" rel="noopener">explore on {self.url}</a>'

    def __repr__(self) -> str:
        return f"Explorer({self.url})"


def report(
    model: RPML,
    X: ArrayLike,
    y: Iterable[object] | None = None,
    *,
    queries: ArrayLike | None = None,
    **shown: Any,
) -> Report:
    """Build the page of `rpml report`, which shows whether the embedding helped.

    Parameters
    ----------
    model : RPML
        A fitted model.
    X : array-like of shape (n_samples, n_features_in_)
        Training rows or others.
    y : sequence of length n_samples, default=None
        Labels; None, -1 or empty text mean no label.
    ids : sequence of length n_samples, default=None
        Names of the rows; by default they are numbered.
    images : path, default=None
        A folder of pictures, matched by id.
    texts : sequence of length n_samples, default=None
        Texts of the rows.
    nuisance : sequence of length n_samples, array or table of several columns, default=None
        What does not matter, such as a language: shown as colors and in a section of its own.
    queries : array-like of shape (n_queries, n_features_in_), default=None
        Vectors of queries: the section shows what they find before and after.

    Returns
    -------
    Report
        Shown by notebooks, written by `save`.

    Examples
    --------
    >>> import rpml
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> rpml.report(rpml.RPML(16).fit(X), X, y).save("report.html")  # doctest: +SKIP
    """
    require("jinja2", "report", "rpml.report")
    from rpml.pages.report.measurements import Measurements, Source
    from rpml.pages.report.page import build_report

    rows, items = _checked(model, X, y, queries, **shown)
    return Report(build_report(Measurements([model], rows, items, Source("the model", "X"))))


def _checked(
    model: RPML, X: ArrayLike, y: Iterable[object] | None, queries: ArrayLike | None, **shown: Any
) -> tuple[Array, Items]:
    check_is_fitted(model)
    rows = check_rows(model, X, reset=False)
    items = make_items(len(rows), labels=y, **shown)
    if queries is not None:
        items = replace(items, queries=check_rows(model, queries, reset=False))
    return rows, items


def explore(
    model: RPML,
    X: ArrayLike,
    y: Iterable[object] | None = None,
    *,
    queries: ArrayLike | None = None,
    **shown: Any,
) -> Explorer:
    """Start the page of `rpml explore` on a free port of 127.0.0.1 in the background.

    Parameters
    ----------
    model, X, y, ids, images, texts, nuisance, queries
        As in `report`; the page lists the first 1,000 queries and shows what they find.

    Returns
    -------
    Explorer
        `url` is the address of the page, `close` stops it.
    """
    require("starlette", "explore", "rpml.explore")
    require("uvicorn", "explore", "rpml.explore")
    from rpml.pages.explorer.app import address, make_app, open_socket, start
    from rpml.pages.explorer.catalog import make_catalog, start_work

    rows, items = _checked(model, X, y, queries, **shown)
    catalog = make_catalog(model, rows, items, "X")
    images = shown.get("images")
    pictures = None if images is None else picture_reader(items, Path(images))
    listener = open_socket("127.0.0.1", 0)
    server, thread = start(make_app(catalog, pictures), listener)
    start_work(catalog, rows)
    return Explorer(address(listener), server, thread)
