"""Answers to the page's requests about clusters and the table of the items."""

import operator
import re

import numpy as np
from numpy.typing import NDArray

from rpml.pages.explorer.answers import (
    Query,
    RequestError,
    choice,
    integer,
    is_digits,
    ready,
    write_csv,
)
from rpml.pages.explorer.catalog import Catalog
from rpml.pages.explorer.clusters import SORTS, Clusters
from rpml.runtime.context import Json

MAX_MEMBERS = 300
_PAGE = 50


class ClusterAnswers:
    """Lists of clusters, single clusters, their rows and their export."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def _clusters(self) -> Clusters:
        return ready(self.catalog.clusters, "the clusters are")

    def _chosen(self, query: Query) -> tuple[Clusters, int, NDArray[np.intp]]:
        """Return the clusters, the position of the requested one, and its rows."""
        clusters, name = self._clusters(), integer(query, "cluster", -1)
        position = clusters.position(name)
        if position is None:
            raise RequestError(404, f"there is no cluster {name}")
        return clusters, position, clusters.members(name)

    def page(self, query: Query) -> Json:
        clusters = self._clusters()
        order = clusters.ordered(choice(query, "sort", SORTS))
        order = order[clusters.sizes[order] >= integer(query, "least", 1, 1)]
        start = integer(query, "start", 0)
        page = order[start : start + integer(query, "most", _PAGE, 1, 500)]
        return {
            "total": len(order),
            "clusters": [self._summary(clusters, int(position)) for position in page],
        }

    def _summary(self, clusters: Clusters, position: int) -> Json:
        name, impurity = int(clusters.names[position]), float(clusters.impurity[position])
        return {
            "cluster": name,
            "title": clusters.title(name),
            "size": int(clusters.sizes[position]),
            "impurity": None if np.isnan(impurity) else round(impurity, 3),
            "mode": self.catalog.item(int(clusters.modes[position])),
        }

    def one(self, query: Query) -> Json:
        """Return one cluster: its mode, its members by similarity to the mode, and its tree."""
        clusters, position, rows = self._chosen(query)
        mode, vectors = int(clusters.modes[position]), self.catalog.indices["rpml"].rows
        scores = vectors[rows] @ vectors[mode]
        shown = rows[np.lexsort((rows, -scores, rows != mode))[:MAX_MEMBERS]].tolist()
        parents, members = clusters.parents, set(shown)
        tree = None
        if parents is not None:
            tree = {str(row): _shown_parent(parents, row, members) for row in shown}
        return {
            **self._summary(clusters, position),
            "members": [self.catalog.item(row) for row in shown],
            "tree": tree,
            "tree_reason": self.catalog.tree_reason,
        }

    def rows(self, query: Query) -> bytes:
        """Return all rows of a cluster as little-endian 32-bit integers, for the map."""
        return self._chosen(query)[2].astype("<u4").tobytes()

    def export(self, query: Query) -> str:
        rows = self._chosen(query)[2].tolist()
        return write_csv(["cluster", "row", "id", "label"], map(self.catalog.item, rows))


def _shown_parent(parents: NDArray[np.intp], row: int, shown: set[int]) -> int:
    """Return the nearest ancestor that is shown; the row itself at the root."""
    at = int(parents[row])
    while at not in shown and parents[at] != at:
        at = int(parents[at])
    return at


MAX_CELLS = 200  # rows per request
FILTER = "where."  # parameters with this prefix name a column
_CONDITION = re.compile(r"(<=|>=|<|>|=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")
_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}


class TableAnswers:
    """Answers to the page's requests about its table."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._keys: dict[str, NDArray[np.float64]] = {}

    def columns(self, query: Query) -> Json:
        """Return the names of the columns, and which of them are numeric."""
        names = list(self.catalog.columns)
        return {"columns": [{"name": n, "numeric": self._numbers(n) is not None} for n in names]}

    def rows(self, query: Query) -> bytes:
        """Return the rows that match the search and all filters, sorted, as 32-bit integers."""
        rows = np.arange(len(self.catalog))
        if query.get("q"):
            rows = np.sort(self.catalog.find(query["q"]))
        for parameter, condition in query.items():
            if parameter.startswith(FILTER) and condition.strip():
                rows = rows[self._passes(parameter.removeprefix(FILTER), condition)[rows]]
        by = query.get("by", "")
        if by:
            keys = self._sort_keys(by.removeprefix("-"))[rows]
            rows = rows[np.argsort(-keys if by.startswith("-") else keys, kind="stable")]
        return rows.astype("<u4").tobytes()

    def cells(self, query: Query) -> Json:
        """Return the values of some rows, in the order of the columns."""
        asked = query.get("rows", "").split(",")
        if len(asked) > MAX_CELLS or not all(
            is_digits(row) and int(row) < len(self.catalog) for row in asked
        ):
            raise RequestError(400, f"rows must be up to {MAX_CELLS} row numbers")
        columns = self.catalog.columns.values()
        return {"cells": [[column[int(row)] for column in columns] for row in asked]}

    def _values(self, name: str) -> list[str]:
        values = self.catalog.columns.get(name)
        if values is None:
            raise RequestError(404, f"there is no column {name[:80]!r}")
        return values

    def _numbers(self, name: str) -> NDArray[np.float64] | None:
        """Return a column as numbers, NaN where empty; None if it has other values."""
        values = self._values(name)
        try:
            numbers = np.array([value or "nan" for value in values], np.float64)
        except ValueError:
            return None
        return None if np.isnan(numbers).all() else numbers

    def _sort_keys(self, name: str) -> NDArray[np.float64]:
        """Return numbers that sort like the column, NaN for empty cells; labels may change."""
        if name not in self._keys or name == "label":
            keys = self._numbers(name)
            if keys is None:
                folded = [value.casefold() for value in self._values(name)]
                rank = {value: place for place, value in enumerate(sorted(set(folded)))}
                keys = np.array([rank[v] if v else np.nan for v in folded], np.float64)
            self._keys[name] = keys
        return self._keys[name]

    def _passes(self, name: str, condition: str) -> NDArray[np.bool_]:
        """Return which rows pass a filter: comparisons of numbers, else a substring."""
        values = self._values(name)
        compared = _CONDITION.findall(condition)
        numbers = self._numbers(name) if compared else None
        if numbers is not None:
            tests = [_COMPARE[sign](numbers, float(bound)) for sign, bound in compared]
            return np.asarray(np.logical_and.reduce(tests))
        wanted = condition.strip().casefold()
        if wanted.startswith("="):
            return np.array([value.casefold() == wanted[1:].strip() for value in values])
        return np.array([wanted in value.casefold() for value in values])
