"""Everything the explorer shows: items and indices at once, clusters and maps by a thread."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar

import numpy as np

import rpml
from rpml.estimator import RPML
from rpml.io.container import Arrays, read_container, write_container
from rpml.pages.explorer.clusters import Clusters, ascent_tree, find_clusters
from rpml.pages.explorer.index import ExactIndex
from rpml.pages.items import Category, Items, encode_category, fitted_on
from rpml.pages.layout import linked_maps, quantized
from rpml.runtime.context import Json, data_digest
from rpml.runtime.errors import InputError, ModelFormatError
from rpml.runtime.rows import Array, Indices, Labels, Mask
from rpml.runtime.threads import single_blas_thread, using_threads

logger = logging.getLogger(__name__)
T = TypeVar("T")
TREE_ROWS = 30_000  # beyond, the ascent is only repeated on request
MIN_ROWS = 2_000  # fewer rows are drawn in a moment and not cached
KIND, VERSION = "explorer cache", 3
POINTS = np.dtype("<u2")
_MAP = "map_"


@dataclass
class Pending(Generic[T]):
    """A result that is computed in a thread."""

    state: Literal["working", "ready", "missing"] = "working"
    reason: str = ""
    value: T | None = None

    def finish(self, value: T) -> None:
        self.value, self.state = value, "ready"

    def fail(self, reason: str) -> None:
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
        self.rows = {name: row for row, name in enumerate(self.items.ids)}
        columns = [self.items.ids, self.items.texts, *self.items.metadata.values()]
        rows = zip(*(column for column in columns if column is not None), strict=True)
        self._searched = ["\n".join(row).casefold() for row in rows]

    def __len__(self) -> int:
        return len(self.items)

    def add_model(self, space: str, title: str, model: RPML, index: ExactIndex) -> None:
        self.titles[space], self.models[space], self.indices[space] = title, model, index

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

    def find(self, text: str) -> Indices:
        """Return rows that contain the text in any column but the cluster, an exact id first."""
        wanted = text.casefold()
        if not wanted:
            return np.empty(0, np.intp)
        matches = np.array([wanted in searched for searched in self._searched])
        if self.items.labels is not None:
            matches |= [wanted in (label or "").casefold() for label in self.items.labels]
        rows = np.flatnonzero(matches)
        exact = self.rows.get(text)
        return rows if exact is None else np.append(exact, rows[rows != exact])

    @property
    def category_names(self) -> tuple[str, ...]:
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
        if labels is None or name != "cluster":
            return encode_category([None] * len(self))
        titles = {c: clusters.title(c) if clusters else str(c) for c in np.unique(labels).tolist()}
        return encode_category([None if c < 0 else titles[c] for c in labels.tolist()])

    def across(self, name: str, row: int) -> Mask:
        """Return the rows with another known value of a nuisance than a row has."""
        values = np.array(self.items.metadata[name])
        return np.asarray((values != values[row]) & (values != ""))

    def item(self, row: int) -> Json:
        items, labels = self.items, self.labels
        return {
            "row": row,
            "id": items.ids[row],
            "text": items.text(row),
            "label": items.label(row),
            "cluster": None if labels is None or labels[row] < 0 else int(labels[row]),
            "picture": items.images is not None and items.images[row] is not None,
        }

    def embedded(self, vector: Array, space: str) -> Array:
        if space == "raw":
            return vector
        return np.asarray(self.models[space].transform(vector[None].astype(np.float64))[0])


def make_catalog(model: RPML, X: Array, items: Items, name: str = "") -> Catalog:
    """Index the raw and the embedded rows; `start_work` computes maps and clusters."""
    indices = {"raw": ExactIndex(X), "rpml": ExactIndex(model.transform(X))}
    catalog = Catalog(model, items, indices, None, name)
    if hasattr(model, "labels_"):
        if fitted_on(model, X):
            catalog.labels = model.labels_
        else:
            catalog.clusters.fail("these features are not the rows the model was fitted on")
    return catalog


def start_work(
    catalog: Catalog, X: Array, seed: int = 0, tree: bool | None = None, cache: Path | None = None
) -> threading.Thread:
    """Compute the catalog's clusters and maps in a thread, so that searching need not wait.

    `tree` computes the ascent tree, by default for up to 30,000 rows. A result in the file `cache`
    is not computed again for the same input.
    """
    tree = len(catalog) <= TREE_ROWS if tree is None else tree
    thread = threading.Thread(target=_work, args=(catalog, X, seed, tree, cache), daemon=True)
    thread.start()
    return thread


def _work(catalog: Catalog, X: Array, seed: int, tree: bool, cache: Path | None) -> None:
    key = "" if cache is None else cache_key(catalog, X, seed, tree)
    if cache is not None and load_cache(catalog, cache, key):
        return
    with using_threads(1), single_blas_thread():  # leaves the other cores for searching
        if catalog.clusters.state == "working":
            _attempt(catalog.clusters, lambda: _prepare_clusters(catalog, X, seed, tree))
        _attempt(catalog.maps, lambda: _draw_maps(catalog, seed))
    if cache is not None:
        save_cache(catalog, cache, key)


def _attempt(pending: Pending[T], compute: Callable[[], T]) -> None:
    try:
        pending.finish(compute())
    except InputError as error:  # the reason why there is nothing to show
        pending.fail(str(error))
    except Exception as error:  # reported by the page; searching still works
        logger.exception("the explorer could not prepare a part of the page")
        pending.fail(f"this could not be computed: {type(error).__name__}")


def _prepare_clusters(catalog: Catalog, X: Array, seed: int, tree: bool) -> Clusters:
    parents = None
    if tree:
        catalog.labels, parents = ascent_tree(catalog.model, X, catalog.labels)
        if parents is None:
            catalog.tree_reason = "the clusters of this model do not come from a single ascent"
    elif catalog.labels is None:
        raise InputError(
            "the fit made none, and so many rows are clustered only if started with --tree"
        )
    else:
        catalog.tree_reason = "it is not computed for so many rows unless started with --tree"
    rng = np.random.default_rng(seed)
    embedding, texts = catalog.indices["rpml"], catalog.items.texts
    return find_clusters(catalog.labels, embedding, parents, rng, texts)


def _draw_maps(catalog: Catalog, seed: int) -> dict[str, bytes]:
    spaces = {key: index.rows for key, index in catalog.indices.items()}
    maps = linked_maps(spaces, np.random.default_rng(seed))
    return {key: quantized(points).tobytes() for key, points in maps.items()}


def cache_key(catalog: Catalog, X: Array, seed: int, tree: bool) -> str:
    """Return a digest of everything that the maps and clusters depend on."""
    model = catalog.model
    settings = {k: v for k, v in model.get_params(deep=False).items() if k != "callback"}
    embeddings = [index.rows for space, index in catalog.indices.items() if space != "raw"]
    texts = catalog.items.texts
    plain = (VERSION, rpml.__version__, tuple(catalog.indices), seed, tree, settings, texts)
    labels = np.empty(0, np.intp) if catalog.labels is None else catalog.labels
    return data_digest(np.asarray(X), *embeddings, labels, plain)


def load_cache(catalog: Catalog, path: Path, key: str) -> bool:
    """Set the maps and clusters from the file; False if it does not have those of this key."""
    try:
        arrays, fields = read_container(path, KIND, VERSION)
        metadata, points = fields["metadata"], {s: arrays[_MAP + s] for s in catalog.indices}
        if metadata["key"] != key:
            return False
        if any(p.dtype != POINTS or p.shape != (len(catalog), 2) for p in points.values()):
            return False
        if "labels" in arrays:
            parts = {
                name: arrays[name] for name in ("labels", "names", "sizes", "modes", "impurity")
            }
            found = Clusters(**parts, parents=arrays.get("parents"), words=metadata["words"])
            catalog.labels = found.labels
            catalog.clusters.finish(found)
        else:
            catalog.clusters.fail(metadata["reason"])
    except (ModelFormatError, KeyError):
        return False
    catalog.tree_reason = metadata["tree_reason"]
    catalog.maps.finish({space: p.tobytes() for space, p in points.items()})
    return True


def save_cache(catalog: Catalog, path: Path, key: str) -> None:
    """Write the file if maps and clusters are known; errors are only logged.

    A file that is not a cache is not replaced.
    """
    clusters, maps = catalog.clusters.value, catalog.maps.value
    if maps is None or (clusters is None and catalog.labels is not None):
        return
    arrays: Arrays = {
        _MAP + space: np.frombuffer(points, POINTS).reshape(-1, 2) for space, points in maps.items()
    }
    if clusters is not None:
        arrays |= {k: v for k, v in vars(clusters).items() if isinstance(v, np.ndarray)}
    words = [] if clusters is None else clusters.words
    found = {"reason": catalog.clusters.reason, "tree_reason": catalog.tree_reason, "words": words}
    try:
        if path.exists():
            read_container(path, KIND, VERSION)
        write_container(path, arrays, {"key": key, **found}, KIND, VERSION)
    except (ModelFormatError, InputError, OSError) as error:  # or another file has this name
        logger.warning("the map is drawn again at the next start: %s", error)
