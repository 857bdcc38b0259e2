"""Answers to the page's requests about clusters."""

import numpy as np
from numpy.typing import NDArray

from rpml.pages.explorer.answers import Answers, write_csv
from rpml.pages.explorer.clusters import SORTS, Clusters
from rpml.pages.explorer.parameters import Query, RequestError, choice, integer
from rpml.runtime.context import Json

MAX_MEMBERS = 300
_PAGE = 50


class ClusterAnswers:
    """Lists of clusters, single clusters, their rows and their export."""

    def __init__(self, answers: Answers) -> None:
        self.answers, self.catalog = answers, answers.catalog

    def _clusters(self) -> Clusters:
        """Return the clusters; RequestError with the reason if there are none."""
        pending = self.catalog.clusters
        if pending.value is not None:
            return pending.value
        if pending.state == "working":
            raise RequestError(503, "the clusters are being prepared: ask again in a moment")
        raise RequestError(404, f"there are no clusters to show: {pending.reason}")

    def _chosen(self, query: Query) -> tuple[Clusters, int]:
        """Return the clusters and the position of the requested one."""
        clusters = self._clusters()
        name = integer(query, "cluster", -1)
        position = clusters.position(name)
        if position is None:
            raise RequestError(404, f"there is no cluster {name}")
        return clusters, position

    def page(self, query: Query) -> Json:
        """Return one page of the list."""
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
        impurity = float(clusters.impurity[position])
        return {
            "cluster": int(clusters.names[position]),
            "title": clusters.title(int(clusters.names[position])),
            "size": int(clusters.sizes[position]),
            "impurity": None if np.isnan(impurity) else round(impurity, 3),
            "mode": self.answers.item(int(clusters.modes[position])),
        }

    def one(self, query: Query) -> Json:
        """Return one cluster: its mode, its members by similarity to the mode, and its tree."""
        clusters, position = self._chosen(query)
        mode = int(clusters.modes[position])
        rows = clusters.members(int(clusters.names[position]))
        vectors = self.catalog.indices["rpml"].rows
        scores = vectors[rows] @ vectors[mode]
        order = np.lexsort((rows, -scores, rows != mode))[:MAX_MEMBERS]
        shown = [int(rows[i]) for i in order]
        tree = None
        if clusters.parents is not None:
            members = set(shown)
            tree = {str(r): _shown_parent(clusters.parents, r, members) for r in shown}
        return {
            **self._summary(clusters, position),
            "members": [self.answers.item(row) for row in shown],
            "tree": tree,
            "tree_reason": self.catalog.tree_reason,
        }

    def rows(self, query: Query) -> bytes:
        """Return all rows of a cluster as little-endian 32-bit integers, for the map."""
        clusters, position = self._chosen(query)
        return clusters.members(int(clusters.names[position])).astype("<u4").tobytes()

    def export(self, query: Query) -> str:
        """Return the members of a cluster as CSV."""
        clusters, position = self._chosen(query)
        name = int(clusters.names[position])
        items = [self.answers.item(row) for row in clusters.members(name).tolist()]
        lines = [[name, item["row"], item["id"], item["label"] or ""] for item in items]
        return write_csv(["cluster", "row", "id", "label"], lines)


def _shown_parent(parents: NDArray[np.intp], row: int, shown: set[int]) -> int:
    """Return the nearest ancestor that is shown; the row itself at the root."""
    at = row
    for _ in range(len(parents)):
        up = int(parents[at])
        if up == at:
            return row if at == row else at
        if up in shown:
            return up
        at = up
    return row
