"""Everything the explorer shows: items, indices, clusters and maps; slow parts come later."""

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.pages.explorer.clusters import Clusters
from rpml.pages.explorer.index import ExactIndex
from rpml.pages.items import Category, Items, encode_category, fitted_on
from rpml.runtime.rows import Array, Labels

T = TypeVar("T")


@dataclass
class Pending(Generic[T]):
    """A result that is computed in a thread."""

    state: Literal["working", "ready", "missing"] = "working"
    reason: str = ""
    value: T | None = None

    def finish(self, value: T) -> None:
        """Set the result."""
        self.value, self.state = value, "ready"

    def fail(self, reason: str) -> None:
        """Set the reason why there is no result."""
        self.reason, self.state = reason, "missing"


@dataclass
class Catalog:
    """The items and spaces that are explored."""

    model: RPML
    items: Items
    indices: dict[str, ExactIndex]
    """By space: "raw", "rpml" and those of `add_model`."""
    labels: Labels | None = None
    """(n_rows,) the clusters; None if they are not known yet, or of other rows."""
    name: str = ""
    clusters: Pending[Clusters] = field(default_factory=Pending)
    maps: Pending[dict[str, bytes]] = field(default_factory=Pending)
    """The packed points of each space."""
    tree_reason: str = ""

    def __post_init__(self) -> None:
        self.models = {"rpml": self.model}
        self.titles = {"raw": "Raw features", "rpml": "RPML embedding"}
        self._rows = {name: row for row, name in enumerate(self.items.ids)}
        columns = [self.items.ids, self.items.texts, *self.items.metadata.values()]
        rows = zip(*(column for column in columns if column is not None), strict=True)
        self._searched = ["\n".join(row).casefold() for row in rows]

    def __len__(self) -> int:
        return len(self.items)

    def add_model(self, space: str, title: str, model: RPML, index: ExactIndex) -> None:
        """Add another embedding of the rows."""
        self.titles[space], self.models[space], self.indices[space] = title, model, index

    @property
    def n_features(self) -> int:
        """Dimensions of the raw vectors."""
        return self.indices["raw"].n_dims

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns of the table; cells without a value are empty."""
        items = self.items
        columns = {"id": items.ids}
        if items.texts is not None:
            columns["text"] = items.texts
        if items.labels is not None:
            columns["label"] = [label or "" for label in items.labels]
        if self.labels is not None:
            columns["cluster"] = ["" if c < 0 else str(c) for c in self.labels.tolist()]
        for name, column in items.metadata.items():
            columns[f"{name} (metadata)" if name in columns else name] = column
        return columns

    def row_of(self, name: str) -> int | None:
        """Return the row with an id, if any."""
        return self._rows.get(name)

    def find(self, text: str) -> NDArray[np.intp]:
        """Return rows that contain the text in any column but the cluster, an exact id first."""
        wanted = text.casefold()
        if not wanted:
            return np.empty(0, np.intp)
        matches = np.array([wanted in searched for searched in self._searched])
        if self.items.labels is not None:
            matches |= [wanted in (label or "").casefold() for label in self.items.labels]
        rows = np.flatnonzero(matches)
        exact = self.row_of(text)
        return rows if exact is None else np.append(exact, rows[rows != exact])

    @property
    def category_names(self) -> tuple[str, ...]:
        """The columns that can color the map."""
        labels = ("label",) if self.items.labeled_mask.any() else ()
        expected = self.labels is not None or self.clusters.state == "working"
        return (*self.items.nuisance, *labels, *(("cluster",) if expected else ()))

    def category(self, name: str) -> Category:
        """Return a nuisance, labels or pseudo-clusters as names and codes."""
        if name in self.items.nuisance:
            return encode_category([value or None for value in self.items.metadata[name]])
        if name == "label":
            return encode_category(self.items.labels or [])
        labels, clusters = self.labels, self.clusters.value
        if labels is None:
            return encode_category([None] * len(self))
        titles = {c: clusters.title(c) if clusters else str(c) for c in np.unique(labels).tolist()}
        return encode_category([None if c < 0 else titles[c] for c in labels.tolist()])

    def across(self, name: str, row: int) -> NDArray[np.bool_]:
        """Return the rows with another known value of a nuisance than a row has."""
        values = np.array(self.items.metadata[name])
        return np.asarray((values != values[row]) & (values != ""))

    def cluster_of(self, row: int) -> int | None:
        """Return the cluster of a row; None for noise and where clusters are not known."""
        if self.labels is None or self.labels[row] < 0:
            return None
        return int(self.labels[row])


def make_catalog(model: RPML, X: Array, items: Items, name: str = "") -> Catalog:
    """Index the raw and the embedded rows; `preparation` computes maps and clusters."""
    indices = {"raw": ExactIndex(X), "rpml": ExactIndex(model.transform(X))}
    catalog = Catalog(model, items, indices, None, name)
    if hasattr(model, "labels_"):
        if fitted_on(model, X):
            catalog.labels = model.labels_
        else:
            catalog.clusters.fail("these features are not the rows the model was fitted on")
    return catalog
