"""DaskRPML, the estimator for rows on a cluster."""

import inspect
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.source import PartitionedRows, open_rows
from rpml.distributed.stages import DaskStages, check_available
from rpml.distributed.take import take
from rpml.distributed.whiten import row_spectrum
from rpml.estimator import RPML, Embedding
from rpml.estimator.fit_inputs import (
    as_classes,
    as_groups,
    check_clustering,
    check_init,
)
from rpml.estimator.parameters import check_size
from rpml.method.pipeline import learn
from rpml.method.settings import FitInputs
from rpml.method.supervision.constraints import gather
from rpml.runtime.context import Context, Json, Store
from rpml.runtime.rows import Array, divided, divisor, extent, float_dtype, scale_of

logger = logging.getLogger(__name__)


class LazyEmbedding(Embedding):
    """`transform` of rows on a cluster; a separate base for the same reason as `Embedding`."""

    to_local: Callable[[], RPML]

    def transform(self, X: Any, n_components: int | None = None, output: str = "float") -> Any:
        """Embed rows: an array at once, a Dask array lazily by partition.

        Files are embedded by `rpml.distributed.embed`.
        """
        check_is_fitted(self)
        if not (hasattr(X, "dask") and hasattr(X, "map_blocks")):
            return super().transform(X, n_components, output)
        chunks = X.rechunk({1: -1})
        local = self.to_local()
        one = local.transform(np.zeros((1, X.shape[1]), X.dtype), n_components, output)
        blocks = {"chunks": (chunks.chunks[0], one.shape[1:]), "meta": one[:0]}
        return chunks.map_blocks(local.transform, n_components, output, dtype=one.dtype, **blocks)


class DaskRPML(LazyEmbedding, RPML):
    """`RPML` for rows that are distributed over the workers of a Dask cluster.

    Parameters, fitted attributes, `save` and `load` are those of `RPML`; `fit` takes a Dask array
    or the path of shards instead of an array in memory. Whatever needs all rows in one place
    raises an error: clustering objects other than AAS, a directed graph, given neighbors, a
    sampler of hard negatives, pairs, and constraints between rows. The cluster limits the memory
    of each worker, and all rows are used: `memory_limit` and `subsample` are ignored.

    Examples
    --------
    >>> from rpml.distributed import Cluster, DaskRPML
    >>> with Cluster(workers=2) as cluster:  # doctest: +SKIP
    ...     model = DaskRPML(64, random_state=0).fit("vectors/", cluster=cluster)
    >>> model.to_local().transform(X_new)  # doctest: +SKIP
    """

    def fit(
        self,
        X: object,
        y: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        store: Store | None = None,
        cluster: object = None,
        **unavailable: object,
    ) -> Self:
        """Learn the embedding from partitioned rows.

        Parameters
        ----------
        X : Dask array, str, Path or PartitionedRows
            See `rpml.distributed.open_rows`.
        y, groups : array-like of shape (n_samples,), default=None
            One value per row, as in `RPML`; y is ignored unless use_labels=True.
        store : Checkpoint, default=None
            Where finished stages are saved, and found by a repeated fit; neighbors are saved by
            the workers, one file per partition, if they can access the folder.
        cluster : Cluster, Client or str, default=None
            Where to run; None starts worker processes on this machine for the fit.
        **unavailable
            Other arguments of `RPML.fit` (neighbors and constraints) raise an error.
        """
        self._validate_params()
        self._refuse(unavailable)
        check_available(self._settings())
        if isinstance(cluster, Cluster):
            return self._fit(X, y, groups, store, cluster)
        with Cluster(cluster) as started:
            logger.info("Dask dashboard: %s", started.dashboard)
            return self._fit(X, y, groups, store, started)

    def _refuse(self, unavailable: Json) -> None:
        parameters = set(inspect.signature(RPML.fit).parameters)
        for name, value in unavailable.items():
            if name not in parameters:
                raise TypeError(f"DaskRPML.fit() has no argument {name!r}")
            if value is not None and name != "conflicts":
                raise ValueError(f"{name} is not available on Dask: use RPML, or leave it out.")

    def _fit(
        self,
        X: object,
        y: ArrayLike | None,
        groups: ArrayLike | None,
        store: Store | None,
        cluster: Cluster,
    ) -> Self:
        rows = open_rows(X, cluster)
        self._check_rows(rows)
        labels = as_classes(y, rows.count) if self.use_labels else None
        inputs = FitInputs(as_groups(groups, rows.count), gather(labels, rows.count))
        check_clustering(self.clustering, rows.count)
        settings, context = self._settings(), self._context(store)
        with cluster.failures():
            learned, scale = self._to_common_scale(rows, cluster, context)
            self._check_init(learned, cluster, context)
            stages = DaskStages(cluster, settings, context)
            result = learn(stages, learned, inputs, settings, context)

            def taken(which: NDArray[np.intp]) -> Array:
                vectors = cluster.value(take(cluster, rows.parts, rows.edges, which))
                return np.asarray(vectors, float_dtype(vectors))

            self._set_fitted(result.of_rows_times(scale), rows.count, taken)
        self._calibrate(result.sample)
        self._warn()
        return self

    def _to_common_scale(
        self, rows: PartitionedRows, cluster: Cluster, context: Context
    ) -> tuple[PartitionedRows, float]:
        """Divide the rows on the workers, as `RPML.fit` does in memory."""
        cluster.wait(rows.parts, context, "read")
        extents = cluster.values(cluster.each(extent, rows.parts))
        as_they_are = self.normalize_input or self.whiten is None
        scale = divisor(scale_of(extents, rows.count), as_they_are)
        if scale == 1:
            return rows, scale

        def read() -> list[Task]:
            return cluster.each(divided, rows.read(), scale)

        rows.release()
        return replace(rows, read=read, _parts=[]), scale

    def _check_rows(self, rows: PartitionedRows) -> None:
        if rows.count < 2:
            raise ValueError(f"X has {rows.count} row: at least 2 are needed.")
        self.n_features_in_ = rows.n_features
        if rows.feature_names is not None:
            self.feature_names_in_ = np.array(rows.feature_names, dtype=object)
        check_size(self.n_components, rows.n_features)

    def _check_init(self, rows: PartitionedRows, cluster: Cluster, context: Context) -> None:
        """Refuse a wrong initial L before any work, as `RPML.fit` does."""

        def head(size: int) -> Array:
            return np.asarray(cluster.value(cluster.submit(_head, rows.parts[0], size)))

        def count() -> int:
            return len(row_spectrum(cluster, rows, self.normalize_input, context).variances)

        check_init(self._settings(), rows.shape, head, count)

    def to_local(self) -> RPML:
        """Return the fitted model as a plain `RPML`, which does not need Dask."""
        check_is_fitted(self)
        local = RPML(**{**self.get_params(deep=False), "callback": None})
        for name, value in vars(self).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(local, name, value)
        return local


def _head(part: Array, size: int) -> Array:
    return part[:size]
