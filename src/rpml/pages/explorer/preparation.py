"""The slow parts of the page, clusters and maps: computed in a thread, cached in a file."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from rpml.estimator.clusters import cluster_rows
from rpml.pages.explorer.cache import Cache, cache_key
from rpml.pages.explorer.catalog import Catalog, Pending
from rpml.pages.explorer.cluster_names import distinctive_words
from rpml.pages.explorer.clusters import Clusters, ascent_tree, find_clusters
from rpml.pages.layout import linked_maps, quantized
from rpml.runtime.blas import single_blas_thread
from rpml.runtime.rows import Array
from rpml.runtime.threads import using_threads

logger = logging.getLogger(__name__)

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
        catalog.labels = cluster_rows(catalog.model, X)[0]
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
