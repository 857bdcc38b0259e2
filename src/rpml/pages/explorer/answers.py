"""What the page is told: plain values from the catalog, every request checked first."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rpml
from rpml.pages.explorer.catalog import SPACES, Catalog, get_clusters
from rpml.pages.explorer.clusters import SORTS, Clusters
from rpml.pages.explorer.index import Found
from rpml.pages.explorer.uploads import Uploads

MAX_K = 200
MAX_MEMBERS = 300
MAX_TEXT = 1000
_PAGE = 50


class Refusal(Exception):
    """A request that cannot be answered: a status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


Query = Mapping[str, str]


def whole(query: Query, name: str, default: int, low: int, high: int) -> int:
    """A whole number within limits."""
    text = query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and low <= int(text) <= high):
        raise Refusal(400, f"{name} must be a whole number from {low} to {high}")
    return int(text)


def choice(query: Query, name: str, allowed: tuple[str, ...]) -> str:
    """One of a few words, the first if none is given."""
    value = query.get(name, allowed[0])
    if value not in allowed:
        raise Refusal(400, f"{name} must be one of {', '.join(allowed)}")
    return value


@dataclass(frozen=True)
class Asked:
    """What is searched for: a row, or an uploaded vector."""

    title: str
    row: int | None
    vector: NDArray[Any] | None = None


class Answers:
    """Turns requests into values; knows nothing of HTTP but statuses."""

    def __init__(self, catalog: Catalog, uploads: Uploads, takes_images: bool, pictures: bool):
        self.catalog, self.uploads = catalog, uploads
        self.takes_images, self.pictures = takes_images, pictures

    def about(self, query: Query) -> dict[str, Any]:
        """What the page needs before anything is asked."""
        catalog = self.catalog
        categories = [*(["label"] if catalog.items.labels is not None else [])]
        categories += ["cluster"] if catalog.trained else []
        return {
            "name": catalog.name,
            "version": rpml.__version__,
            "rows": len(catalog),
            "features": catalog.model.n_features_in_,
            "spaces": {
                key: {"title": title, "size": catalog.indices[key].size}
                for key, title in SPACES.items()
            },
            "pictures": self.pictures,
            "categories": categories,
            "takes_images": self.takes_images,
            "trained": catalog.trained,
        }

    def status(self, query: Query) -> dict[str, Any]:
        """How far maps and clusters are."""
        parts = {"map": self.catalog.maps, "clusters": self.catalog.clusters}
        return {name: {"state": p.state, "reason": p.reason} for name, p in parts.items()}

    def item(self, row: int) -> dict[str, Any]:
        """A row as the page shows it."""
        labels = self.catalog.items.labels
        images = self.catalog.items.images
        return {
            "row": row,
            "id": self.catalog.items.ids[row],
            "label": None if labels is None else labels[row],
            "cluster": self.catalog.cluster_of(row),
            "picture": images is not None and images[row] is not None,
        }

    def one(self, query: Query) -> dict[str, Any]:
        """The item asked for."""
        asked = self.asked(query)
        if asked.row is None:
            raise Refusal(400, "give an id or a row")
        return self.item(asked.row)

    def find(self, query: Query) -> dict[str, Any]:
        """Items whose id contains a text."""
        text = query.get("q", "")
        if len(text) > MAX_TEXT:
            raise Refusal(400, f"q must not be longer than {MAX_TEXT} characters")
        most = whole(query, "most", 10, 1, 50)
        return {"items": [self.item(row) for row in self.catalog.find(text, most)]}

    def chance(self, query: Query) -> dict[str, Any]:
        """Some item, another one each time."""
        return self.item(int(np.random.default_rng().integers(len(self.catalog))))

    def asked(self, query: Query) -> Asked:
        """The row or upload that a request names."""
        if "row" in query:
            row = whole(query, "row", 0, 0, len(self.catalog) - 1)
            return Asked(self.catalog.items.ids[row], row)
        if "id" in query:
            name = query["id"]
            found = self.catalog.row_of(name)
            if found is None:
                short = name if len(name) <= 80 else name[:80] + "…"
                raise Refusal(404, f"there is no item with the id {short!r}")
            return Asked(name, found)
        if "upload" in query:
            kept = self.uploads.get(query["upload"][:64])
            if kept is None:
                raise Refusal(404, "this uploaded query is gone: upload it again")
            return Asked(kept[0], None, kept[1])
        raise Refusal(400, "give an id, a row or an upload to search for")

    def near(self, asked: Asked, space: str, k: int) -> Found:
        """The nearest rows in a space."""
        index = self.catalog.indices[space]
        if asked.row is not None:
            return index.near_row(asked.row, k)
        assert asked.vector is not None
        if space == "raw":
            return index.near_vector(asked.vector, k)
        embedded = self.catalog.model.transform(asked.vector[None].astype(np.float64))
        return index.near_vector(embedded[0], k)

    def neighbors(self, query: Query) -> dict[str, Any]:
        """The nearest items of a row or an upload in one space."""
        asked = self.asked(query)
        space = choice(query, "space", tuple(SPACES))
        k = whole(query, "k", 20, 1, MAX_K)
        start = time.perf_counter()
        found = self.near(asked, space, k)
        seconds = time.perf_counter() - start
        items = [
            {**self.item(row), "similarity": round(score, 4)}
            for row, score in zip(found.rows.tolist(), found.similarities.tolist(), strict=True)
        ]
        shown = {"title": asked.title, "row": None}
        if asked.row is not None:
            shown = {"title": asked.title, **self.item(asked.row)}
        return {"query": shown, "space": space, "items": items, "ms": round(1e3 * seconds, 2)}

    def clusters(self) -> Clusters:
        """The clusters, or why there are none."""
        ready = get_clusters(self.catalog)
        if ready is None:
            later = self.catalog.clusters
            if later.state == "working":
                raise Refusal(503, "the clusters are being prepared: ask again in a moment")
            raise Refusal(404, f"there are no clusters to show: {later.reason}")
        return ready

    def cluster_list(self, query: Query) -> dict[str, Any]:
        """A page of the clusters."""
        clusters = self.clusters()
        sort = choice(query, "sort", SORTS)
        start = whole(query, "start", 0, 0, 10**9)
        least = whole(query, "least", 1, 1, 10**9)
        order = clusters.ordered(sort)
        order = order[clusters.sizes[order] >= least]
        page = order[start : start + whole(query, "most", _PAGE, 1, 500)]
        return {
            "total": len(order),
            "clusters": [self._cluster(clusters, int(place)) for place in page],
        }

    def _cluster(self, clusters: Clusters, place: int) -> dict[str, Any]:
        suspicion = float(clusters.suspicion[place])
        return {
            "cluster": int(clusters.names[place]),
            "size": int(clusters.sizes[place]),
            "suspicion": None if np.isnan(suspicion) else round(suspicion, 3),
            "mode": self.item(int(clusters.modes[place])),
        }

    def cluster(self, query: Query) -> dict[str, Any]:
        """One cluster: its mode, its members nearest to it first, its tree."""
        clusters = self.clusters()
        name = whole(query, "cluster", -1, 0, 10**9)
        place = clusters.place(name)
        if place is None:
            raise Refusal(404, f"there is no cluster {name}")
        mode = int(clusters.modes[place])
        rows = clusters.members(name)
        vectors = self.catalog.indices["rpml"].rows
        scores = vectors[rows] @ vectors[mode]
        order = np.lexsort((rows, -scores, rows != mode))[:MAX_MEMBERS]
        members = [
            {**self.item(int(rows[i])), "similarity": round(float(scores[i]), 4)} for i in order
        ]
        tree = None
        if clusters.parents is not None:
            shown = {m["row"] for m in members}
            tree = {str(r): _shown_parent(clusters.parents, r, shown) for r in shown}
        return {
            **self._cluster(clusters, place),
            "members": members,
            "tree": tree,
            "tree_reason": self.catalog.tree_reason,
        }

    def cluster_rows(self, query: Query) -> bytes:
        """All rows of a cluster as little-endian 32-bit integers, for the map."""
        clusters = self.clusters()
        name = whole(query, "cluster", -1, 0, 10**9)
        if clusters.place(name) is None:
            raise Refusal(404, f"there is no cluster {name}")
        return clusters.members(name).astype("<u4").tobytes()

    def map_points(self, query: Query) -> bytes:
        """The points of a map."""
        space = choice(query, "space", tuple(SPACES))
        maps = self.catalog.maps
        if maps.state == "working":
            raise Refusal(503, "the map is being drawn: ask again in a moment")
        if maps.state != "ready":
            raise Refusal(404, f"there is no map: {maps.reason}")
        points: bytes = maps.value[space]
        return points

    def category(self, query: Query) -> dict[str, Any]:
        """Names of a category, most frequent first, and the code of every row."""
        known = self.catalog.categories
        name = query.get("name", "")
        if name not in known:
            raise Refusal(
                404, "there is no such category; known are: " + (", ".join(known) or "none")
            )
        return known[name]

    def export(self, query: Query) -> str:
        """The current result as CSV: both neighbour lists, or a cluster's members."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n")
        if "cluster" in query:
            clusters = self.clusters()
            name = whole(query, "cluster", -1, 0, 10**9)
            if clusters.place(name) is None:
                raise Refusal(404, f"there is no cluster {name}")
            writer.writerow(["cluster", "row", "id", "label"])
            for row in clusters.members(name).tolist():
                writer.writerow([name, *self._cells(row)[:3]])
            return out.getvalue()
        asked = self.asked(query)
        k = whole(query, "k", 20, 1, MAX_K)
        writer.writerow(["query", "space", "rank", "similarity", "row", "id", "label", "cluster"])
        for space in SPACES:
            found = self.near(asked, space, k)
            pairs = zip(found.rows.tolist(), found.similarities.tolist(), strict=True)
            for rank, (row, score) in enumerate(pairs, start=1):
                writer.writerow([asked.title, space, rank, f"{score:.6f}", *self._cells(row)])
        return out.getvalue()

    def _cells(self, row: int) -> list[Any]:
        item = self.item(row)
        return [
            row,
            item["id"],
            item["label"] or "",
            "" if item["cluster"] is None else item["cluster"],
        ]


def _shown_parent(parents: NDArray[np.intp], row: int, shown: set[int]) -> int:
    """The nearest ancestor that is shown; the row itself at the root."""
    at = row
    for _ in range(len(parents)):
        up = int(parents[at])
        if up == at:
            return row if at == row else at
        if up in shown:
            return up
        at = up
    return row
