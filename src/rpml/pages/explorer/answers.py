"""Answers to the page's requests, without HTTP except statuses."""

import csv
import io
import operator
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

import rpml
from rpml.io.features.text_files import spreadsheet_safe
from rpml.pages.explorer.catalog import Catalog, Pending
from rpml.pages.explorer.clusters import SORTS, Clusters
from rpml.pages.explorer.index import NearestRows
from rpml.pages.explorer.uploads import Upload
from rpml.pages.layout import layout_note
from rpml.runtime.context import Json
from rpml.runtime.rows import Indices, Mask

Query = Mapping[str, str]
T = TypeVar("T")
LARGEST = 10**9
MAX_K = 200
MAX_UPLOADS = 256
MAX_QUERIES = 1000  # listed in the page
MAX_MEMBERS = 300  # shown of a cluster
_PAGE = 50  # clusters
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


class RequestError(Exception):
    """A request that cannot be answered, with an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def is_digits(text: str) -> bool:
    """Whether a text is a non-negative integer of at most ten ASCII digits."""
    return text.isascii() and text.isdigit() and len(text) <= 10


def integer(query: Query, name: str, default: int, low: int = 0, high: int = LARGEST) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not (is_digits(text) and low <= int(text) <= high):
        raise RequestError(400, f"{name} must be a whole number from {low} to {high}")
    return int(text)


def choice(query: Query, name: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words, by default the first."""
    value = query.get(name, allowed[0])
    if value not in allowed:
        raise RequestError(400, f"{name} must be one of {', '.join(allowed)}")
    return value


def ready(pending: Pending[T], noun: str) -> T:
    """Return a result; RequestError if it is not there yet, or with the reason why it never is."""
    if pending.value is not None:
        return pending.value
    if pending.state == "working":
        raise RequestError(503, f"{noun} not ready: ask again in a moment")
    raise RequestError(404, f"there is nothing to show: {pending.reason}")


def write_csv(header: list[str], rows: Iterable[Json], end: str = "\r\n") -> str:
    """Return these fields of the rows as a CSV table without formulas, for spreadsheets."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end)
    writer.writerow(header)
    for row in rows:
        cells = ("" if row[name] is None else str(row[name]) for name in header)
        writer.writerow(map(spreadsheet_safe, cells))
    return out.getvalue()


class Answers:
    """Items, neighbors, maps, categories, clusters and the table as plain values."""

    def __init__(
        self, catalog: Catalog, abilities: Mapping[str, bool] | None = None, scaled: bool = False
    ) -> None:
        self.catalog, self.abilities, self.scaled = catalog, abilities or {}, scaled
        self.uploads: dict[str, Upload] = {}
        given = catalog.items.queries
        vectors = () if given is None else given[:MAX_QUERIES].astype(np.float64)
        queries = [Upload(f"query {i}", vector) for i, vector in enumerate(vectors)]
        self.queries = {query.token: query for query in queries}
        self._sorted: dict[str, NDArray[np.float64]] = {}

    def add_upload(self, upload: Upload) -> None:
        """Store an upload, so that its results have an address; the oldest of many expires."""
        self.uploads.pop(upload.token, None)
        self.uploads[upload.token] = upload
        if len(self.uploads) > MAX_UPLOADS:
            del self.uploads[next(iter(self.uploads))]

    def about(self, query: Query) -> Json:
        catalog = self.catalog
        spaces = {
            key: {"title": catalog.titles[key], "n_dims": index.n_dims}
            for key, index in catalog.indices.items()
        }
        return {
            "name": catalog.name,
            "version": rpml.__version__,
            "rows": len(catalog),
            "spaces": spaces,
            "categories": list(catalog.category_names),
            "nuisance": list(catalog.items.nuisance),
            "queries": {token: query.name for token, query in self.queries.items()},
            "map_note": layout_note(len(catalog)),
            **self.abilities,
        }

    def status(self, query: Query) -> Json:
        maps, clusters = self.catalog.maps, self.catalog.clusters
        return {
            "map": {"state": maps.state, "reason": maps.reason},
            "clusters": {"state": clusters.state, "reason": clusters.reason},
        }

    def item(self, query: Query) -> Json:
        target = self.target(query)
        if isinstance(target, Upload):
            raise RequestError(400, "an item is named by its id or its row")
        return self.catalog.item(target)

    def find(self, query: Query) -> Json:
        """Return the first items that contain a text in any column, and their number."""
        rows = self.catalog.find(query.get("q", ""))
        shown = rows[: integer(query, "most", 10, 1, 50)].tolist()
        return {"items": [self.catalog.item(row) for row in shown], "total": len(rows)}

    def random_item(self, query: Query) -> Json:
        return self.catalog.item(int(np.random.default_rng().integers(len(self.catalog))))

    def target(self, query: Query) -> int | Upload:
        if "row" in query:
            return integer(query, "row", 0, 0, len(self.catalog) - 1)
        if "id" in query:
            name = query["id"]
            match = self.catalog.rows.get(name)
            if match is None:
                short = name if len(name) <= 80 else name[:80] + "…"
                raise RequestError(404, f"there is no item with the id {short!r}")
            return match
        if "upload" in query:
            upload = self.queries.get(query["upload"]) or self.uploads.get(query["upload"])
            if upload is None:
                raise RequestError(404, "this upload has expired: upload the query again")
            return upload
        raise RequestError(400, "a search needs an id, a row or an upload")

    def search(self, target: int | Upload, space: str, query: Query) -> NearestRows:
        """Return the k nearest rows in a space; `across` a nuisance only those of other values."""
        index, k = self.catalog.indices[space], integer(query, "k", 20, 1, MAX_K)
        across = choice(query, "across", ("", *self.catalog.items.nuisance))
        if not isinstance(target, Upload):
            among = self.catalog.across(across, target) if across else None
            return index.near_row(target, k, among)
        return index.near_vector(self.catalog.embedded(target.vector, space), k)

    def neighbors(self, query: Query) -> Json:
        target = self.target(query)
        space = choice(query, "space", tuple(self.catalog.indices))
        rows, similarity = self.search(target, space, query)
        pairs = zip(rows.tolist(), similarity.tolist(), strict=True)
        item = self.catalog.item
        items = [{**item(row), "similarity": round(score, 4)} for row, score in pairs]
        if self.scaled:
            scale = self.catalog.indices[space].similarity_scale
            for found, share in zip(items, scale.quantile(similarity), strict=True):
                found["scale"] = round(float(share), 6)
        if isinstance(target, Upload):
            shown: Json = {"title": target.name, "row": None, "upload": target.token}
            shown["picture"] = target.picture is not None
        else:
            columns = self.catalog.items.metadata.items()
            metadata = [[name, values[target]] for name, values in columns]
            shown = {"title": self.catalog.items.ids[target], **item(target), "metadata": metadata}
        return {"query": shown, "space": space, "items": items}

    def map_points(self, query: Query) -> bytes:
        maps = ready(self.catalog.maps, "the map is")
        return maps[choice(query, "space", tuple(maps))]

    def category(self, query: Query) -> Json:
        """Return the names of a category, most frequent first, and the code of every row."""
        return self.catalog.category(choice(query, "name", ("", *self.catalog.category_names)))

    def export_neighbors(self, query: Query) -> str:
        target = self.target(query)
        title = target.name if isinstance(target, Upload) else self.catalog.items.ids[target]
        lines = []
        for space in self.catalog.indices:
            rows, similarity = self.search(target, space, query)
            pairs = zip(rows.tolist(), similarity.tolist(), strict=True)
            for rank, (row, score) in enumerate(pairs, start=1):
                place = {"query": title, "space": space, "rank": rank, "similarity": f"{score:.6f}"}
                lines.append(place | self.catalog.item(row))
        header = ["query", "space", "rank", "similarity", "row", "id", "label", "cluster"]
        return write_csv(header, lines)

    def _clusters(self) -> Clusters:
        return ready(self.catalog.clusters, "the clusters are")

    def _chosen(self, query: Query) -> tuple[Clusters, int, Indices]:
        """Return the clusters, the position of the requested one, and its rows."""
        clusters, name = self._clusters(), integer(query, "cluster", -1)
        position = clusters.position(name)
        if position is None:
            raise RequestError(404, f"there is no cluster {name}")
        return clusters, position, clusters.members(name)

    def list_clusters(self, query: Query) -> Json:
        clusters = self._clusters()
        order = clusters.ordered(choice(query, "sort", SORTS))
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

    def cluster(self, query: Query) -> Json:
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

    def cluster_rows(self, query: Query) -> bytes:
        """Return all rows of a cluster as little-endian 32-bit integers, for the map."""
        return self._chosen(query)[2].astype("<u4").tobytes()

    def export_cluster(self, query: Query) -> str:
        rows = self._chosen(query)[2].tolist()
        return write_csv(["cluster", "row", "id", "label"], map(self.catalog.item, rows))

    def table(self, query: Query) -> Json:
        """Return the names of the columns, and which of them are numeric."""
        names = list(self.catalog.columns)
        return {"columns": [{"name": n, "numeric": self._numbers(n) is not None} for n in names]}

    def table_rows(self, query: Query) -> bytes:
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

    def table_cells(self, query: Query) -> Json:
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
        if name not in self._sorted or name == "label":
            keys = self._numbers(name)
            if keys is None:
                folded = [value.casefold() for value in self._values(name)]
                rank = {value: place for place, value in enumerate(sorted(set(folded)))}
                keys = np.array([rank[v] if v else np.nan for v in folded], np.float64)
            self._sorted[name] = keys
        return self._sorted[name]

    def _passes(self, name: str, condition: str) -> Mask:
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


def _shown_parent(parents: Indices, row: int, shown: set[int]) -> int:
    """Return the nearest ancestor that is shown; the row itself at the root."""
    at = int(parents[row])
    while at not in shown and parents[at] != at:
        at = int(parents[at])
    return at
