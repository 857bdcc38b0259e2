"""The slow parts of the page, maps and clusters: computed in a thread, cached in a file."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

import rpml
from rpml.io.container import Arrays, check_content, read_container, write_container
from rpml.pages.explorer.catalog import Catalog, Pending
from rpml.pages.explorer.clusters import Clusters, ascent_tree, distinctive_words, find_clusters
from rpml.pages.layout import linked_maps, quantized
from rpml.runtime.blas import single_blas_thread
from rpml.runtime.digest import data_digest
from rpml.runtime.errors import InputError, ModelFormatError
from rpml.runtime.rows import Array
from rpml.runtime.schema import ArraySpec, Schema
from rpml.runtime.threads import using_threads

logger = logging.getLogger(__name__)

MIN_ROWS = 2_000  # fewer rows are drawn in a moment
KIND, VERSION = "explorer cache", 2
POINTS = np.dtype("<u2")
_MAP = "map_"


def cache_file(model: str) -> Path:
    """Return the cache file of a model: birds.rpml.explorer for birds.rpml."""
    return Path(f"{model}.explorer")


def cache_key(catalog: Catalog, X: Array, seed: int, tree: bool) -> str:
    """Return a digest of everything that the maps and clusters depend on."""
    model = catalog.model
    settings = {k: v for k, v in model.get_params(deep=False).items() if k != "callback"}
    embeddings = [index.rows for space, index in catalog.indices.items() if space != "raw"]
    spaces = tuple(catalog.indices)
    plain = (VERSION, rpml.__version__, spaces, seed, tree, settings)
    labels = np.empty(0, np.intp) if catalog.labels is None else catalog.labels
    return data_digest(np.asarray(X), *embeddings, labels, plain)


@dataclass(frozen=True)
class Cache:
    """A file with the maps and clusters of one key; it only replaces an older cache."""

    path: Path
    key: str

    def load(self, catalog: Catalog) -> bool:
        """Set the maps and clusters from the file; False if it does not have them."""
        try:
            arrays, fields = read_container(self.path, KIND, VERSION)
            spec = _schema(catalog)
            metadata = fields["metadata"]
            sizes = check_content(self.path, spec, arrays, metadata)
        except ModelFormatError:
            return False
        if metadata["key"] != self.key or sizes["rows"] != len(catalog):
            return False
        if any(arrays[_MAP + space].dtype != POINTS for space in catalog.indices):
            return False
        if not {"labels", "modes", "impurity"}.isdisjoint(arrays):
            if not {"labels", "modes", "impurity"} <= arrays.keys():
                return False
            clusters = _clusters(arrays)
            if len(clusters.names) != sizes["clusters"]:
                return False
            catalog.labels = clusters.labels
            catalog.clusters.finish(clusters)
        else:
            catalog.clusters.fail(metadata["reason"])
        catalog.tree_reason = metadata["tree_reason"]
        catalog.maps.finish({space: arrays[_MAP + space].tobytes() for space in catalog.indices})
        return True

    def save(self, catalog: Catalog) -> None:
        """Write the file if maps and clusters are known; errors are only logged."""
        clusters, maps = catalog.clusters.value, catalog.maps.value
        if maps is None or (clusters is None and catalog.labels is not None):
            return
        arrays: Arrays = {
            _MAP + space: np.frombuffer(points, POINTS).reshape(-1, 2)
            for space, points in maps.items()
        }
        if clusters is not None:
            arrays["labels"], arrays["modes"] = clusters.labels, clusters.modes
            arrays["impurity"] = np.nan_to_num(clusters.impurity, nan=-1.0)
            if clusters.parents is not None:
                arrays["parents"] = clusters.parents
        reasons = {"reason": catalog.clusters.reason, "tree_reason": catalog.tree_reason}
        try:
            self._check()
            write_container(self.path, arrays, {"key": self.key, **reasons}, KIND, VERSION)
        except (InputError, OSError) as error:
            logger.warning("the map is drawn again at the next start: %s", error)

    def _check(self) -> None:
        if not self.path.exists():
            return
        try:
            read_container(self.path, KIND, VERSION)
        except ModelFormatError as error:
            raise InputError(f"{self.path} exists and is not a cache of this explorer") from error


def _schema(catalog: Catalog) -> Schema:
    maps = {_MAP + space: ArraySpec("u", ("rows", 2)) for space in catalog.indices}
    clusters = {
        "labels": ArraySpec("i", ("rows",), -1, "rows", optional=True),
        "modes": ArraySpec("i", ("clusters",), 0, "rows", optional=True),
        "impurity": ArraySpec("f", ("clusters",), -1.0, 1.0, optional=True),
        "parents": ArraySpec("i", ("rows",), 0, "rows", optional=True),
    }
    return Schema({**maps, **clusters}, {"key": str, "reason": str, "tree_reason": str})


def _clusters(arrays: Arrays) -> Clusters:
    labels = arrays["labels"].astype(np.intp)
    names, sizes = np.unique(labels[labels >= 0], return_counts=True)
    impurity = np.where(arrays["impurity"] < 0, np.nan, arrays["impurity"])
    return Clusters(labels, names, sizes, arrays["modes"], impurity, arrays.get("parents"))


TREE_ROWS = 30_000  # beyond, the ascent is only repeated on request
T = TypeVar("T")


def start_work(
    catalog: Catalog,
    X: Array,
    seed: int = 0,
    tree: bool | None = None,
    cache_path: Path | None = None,
) -> threading.Thread:
    """Compute the catalog's clusters and maps in a thread, so that searching need not wait.

    `tree` computes the ascent tree, by default for up to 30,000 rows. A result in the file
    `cache_path` is not computed again for the same input.
    """
    tree = len(catalog) <= TREE_ROWS if tree is None else tree
    thread = threading.Thread(target=_work, args=(catalog, X, seed, tree, cache_path), daemon=True)
    thread.start()
    return thread


def _work(catalog: Catalog, X: Array, seed: int, tree: bool, cache_path: Path | None) -> None:
    cache = None if cache_path is None else Cache(cache_path, cache_key(catalog, X, seed, tree))
    if cache is None or not cache.load(catalog):
        with using_threads(1), single_blas_thread():  # leaves the other cores for searching
            _attempt(catalog.clusters, lambda: _prepare_clusters(catalog, X, seed, tree))
            _attempt(catalog.maps, lambda: catalog.maps.finish(_draw_maps(catalog, seed)))
        if cache is not None:
            cache.save(catalog)
    elif catalog.clusters.value is not None:
        catalog.clusters.finish(_named(catalog, catalog.clusters.value))


def _attempt(pending: Pending[T], work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # reported by the page; searching still works
        logger.exception("the explorer could not prepare a part of the page")
        pending.fail(f"this could not be computed: {type(error).__name__}")


def _prepare_clusters(catalog: Catalog, X: Array, seed: int, tree: bool) -> None:
    if catalog.clusters.state == "missing":  # of other rows
        return
    if catalog.labels is None:
        if not tree:
            catalog.clusters.fail(
                "the fit made none, and so many rows are clustered only if started with --tree"
            )
            return
        catalog.labels = catalog.model.cluster_rows(X)[0]
    labels, rng = catalog.labels, np.random.default_rng(seed)
    parents = ascent_tree(catalog.model, X, labels) if tree else None
    if not tree:
        catalog.tree_reason = "it is not computed for so many rows unless started with --tree"
    elif parents is None:
        catalog.tree_reason = "the clusters of this model do not come from a single ascent"
    clusters = find_clusters(labels, catalog.indices["rpml"], parents, rng)
    catalog.clusters.finish(_named(catalog, clusters))


def _named(catalog: Catalog, clusters: Clusters) -> Clusters:
    """Add the distinctive words of their texts to the clusters."""
    if catalog.items.texts is None:
        return clusters
    clustered = clusters.labels >= 0
    codes = np.where(clustered, np.searchsorted(clusters.names, clusters.labels), -1)
    return replace(clusters, words=distinctive_words(catalog.items.texts, codes))


def _draw_maps(catalog: Catalog, seed: int) -> dict[str, bytes]:
    """Return the packed points of each space."""
    spaces = {key: index.rows for key, index in catalog.indices.items()}
    maps = linked_maps(spaces, np.random.default_rng(seed))
    return {key: quantized(points).tobytes() for key, points in maps.items()}
