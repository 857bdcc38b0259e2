"""Everything the explorer knows: items, two indices, clusters, maps; what is slow comes later."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.pages.explorer.clusters import Clusters, ascent_tree, find_clusters
from rpml.pages.explorer.index import Index
from rpml.pages.report.items import Items
from rpml.pages.report.layout import layout
from rpml.pages.report.mapdata import coded, quantized
from rpml.pages.report.training import fitted_on

logger = logging.getLogger(__name__)

SPACES = {"raw": "Raw features", "rpml": "RPML embedding"}
TREE_ROWS = 30_000  # beyond this many rows the ascent is not run again unless asked for


@dataclass
class Later:
    """A result that a thread works on."""

    state: str = "working"
    reason: str = ""
    value: Any = None

    def finish(self, value: Any) -> None:
        """The result is there."""
        self.value, self.state = value, "ready"

    def fail(self, reason: str) -> None:
        """There will be none, for this reason."""
        self.reason, self.state = reason, "missing"


@dataclass
class Catalog:
    """What is explored.

    Attributes
    ----------
    model : RPML
    items : Items
    indices : dict of str to Index
        By space: "raw" and "rpml".
    trained : bool
        Whether the rows are those the model was fitted on.
    clusters, maps : Later
        A `Clusters`; the packed points of each space.
    """

    model: Any
    items: Items
    indices: dict[str, Index]
    trained: bool
    name: str = ""
    clusters: Later = field(default_factory=Later)
    maps: Later = field(default_factory=Later)
    tree_reason: str = ""

    def __post_init__(self) -> None:
        self._rows = {name: row for row, name in enumerate(self.items.ids)}
        self._text = "\n".join(name.replace("\n", " ") for name in self.items.ids).lower()
        lengths = [len(name.replace("\n", " ").lower()) + 1 for name in self.items.ids]
        self._ends = np.cumsum(lengths)

    def __len__(self) -> int:
        return len(self.items)

    def row_of(self, name: str) -> int | None:
        """The row with an id."""
        return self._rows.get(name)

    def find(self, text: str, most: int) -> list[int]:
        """Rows whose id contains the text, in row order, the exact one first."""
        wanted = text.lower().replace("\n", " ")
        found: list[int] = []
        exact = self.row_of(text)
        if exact is not None:
            found.append(exact)
        at = self._text.find(wanted) if wanted else -1
        while at >= 0 and len(found) < most:
            row = int(np.searchsorted(self._ends, at, side="right"))
            if row != exact:
                found.append(row)
            if row + 1 >= len(self):
                break
            at = self._text.find(wanted, int(self._ends[row]))
        return found[:most]

    @cached_property
    def categories(self) -> dict[str, dict[str, Any]]:
        """Labels and pseudo-clusters as names and codes, by what they are called."""
        found = {}
        if self.items.labels is not None:
            found["label"] = coded(self.items.labels)
        if self.trained:
            names = ["none" if c < 0 else str(c) for c in self.model.labels_.tolist()]
            found["cluster"] = coded(names)
        return found

    def cluster_of(self, row: int) -> int | None:
        """The pseudo-cluster of a row, if the rows are the training rows and it is in one."""
        if not self.trained or self.model.labels_[row] < 0:
            return None
        return int(self.model.labels_[row])


def make_catalog(model: Any, X: Any, items: Items, name: str = "") -> Catalog:
    """Normalise and embed the rows; maps and clusters are left to `start_work`."""
    indices = {"raw": Index(X), "rpml": Index(model.transform(X))}
    return Catalog(model, items, indices, fitted_on(model, X), name)


def start_work(
    catalog: Catalog, X: Any, seed: int = 0, tree: bool | None = None
) -> threading.Thread:
    """Find clusters and draw the maps in a thread, so that searching does not wait for them."""
    thread = threading.Thread(target=_work, args=(catalog, X, seed, tree), daemon=True)
    thread.start()
    return thread


def _work(catalog: Catalog, X: Any, seed: int, tree: bool | None) -> None:
    for job, later in ((_find_clusters, catalog.clusters), (_draw_maps, catalog.maps)):
        try:
            job(catalog, X, np.random.default_rng(seed), tree)
        except Exception as error:  # the page says so; searching goes on
            logger.exception("the explorer could not prepare a part of the page")
            later.fail(f"this could not be computed: {type(error).__name__}")


def _find_clusters(catalog: Catalog, X: Any, rng: np.random.Generator, tree: bool | None) -> None:
    if not catalog.trained:
        catalog.clusters.fail("these features are not the rows the model was fitted on")
        return
    parents = None
    if tree is False or (tree is None and len(catalog) > TREE_ROWS):
        catalog.tree_reason = "not computed for so many rows; start with --tree to have it"
    else:
        parents = ascent_tree(catalog.model, X)
        if parents is None:
            catalog.tree_reason = "the clusters of this model do not come from one ascent"
    labels = np.asarray(catalog.model.labels_)
    catalog.clusters.finish(find_clusters(labels, catalog.indices["rpml"], parents, rng))


def _draw_maps(catalog: Catalog, X: Any, rng: np.random.Generator, tree: bool | None) -> None:
    """Packed points; the second map starts from the first, so that the two compare."""
    before = layout(catalog.indices["raw"].rows, rng)
    after = layout(catalog.indices["rpml"].rows, rng, start=before)
    catalog.maps.finish({key: pack(v) for key, v in (("raw", before), ("rpml", after))})


def pack(points: NDArray[np.floating]) -> bytes:
    """Points of the unit square as little-endian 16-bit pairs."""
    return quantized(points).tobytes()


def get_clusters(catalog: Catalog) -> Clusters | None:
    """The clusters if they are ready."""
    value: Clusters | None = catalog.clusters.value
    return value
