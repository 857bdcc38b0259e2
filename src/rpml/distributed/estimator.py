"""DaskRPML, the estimator for rows on a cluster."""

import inspect
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from rpml.distributed.cluster import Cluster
from rpml.distributed.gather import SampledRows, gather_rows, read_all
from rpml.distributed.source import PartitionedRows, open_rows
from rpml.estimator import RPML, Embedding
from rpml.estimator.fitted import calibrate, set_fitted, warn_of_training
from rpml.estimator.knowledge import fit_inputs
from rpml.io.checkpoint import Checkpoint
from rpml.method.pipeline import learn_in_memory
from rpml.method.settings import FitInputs, FitSettings
from rpml.method.whitening.choice import choose_whitening, scatter_rows
from rpml.runtime.context import Context, Json
from rpml.runtime.rows import Array, common_scale, divided, divisor, float_dtype
from rpml.runtime.threads import using_jobs

logger = logging.getLogger(__name__)


class LazyEmbedding(Embedding):
    """`transform` and `predict` of rows on a cluster; a base for the same reason as `Embedding`."""

    to_local: Callable[[], RPML]

    def transform(self, X: Any, n_components: int | None = None, output: str = "float") -> Any:
        """Embed rows: an array at once, a Dask array lazily by partition.

        Files are embedded by `rpml.distributed.embed`.
        """
        check_is_fitted(self)
        if not _is_dask_array(X):
            return super().transform(X, n_components, output)
        local = self.to_local()
        one = local.transform(np.zeros((1, X.shape[1]), X.dtype), n_components, output)
        chunks = X.rechunk({1: -1})
        blocks = {"chunks": (chunks.chunks[0], one.shape[1:]), "meta": one[:0]}
        return chunks.map_blocks(local.transform, n_components, output, dtype=one.dtype, **blocks)

    def predict(self, X: Any) -> Any:
        """Predict the clusters of rows: of an array at once, of a Dask array lazily."""
        check_is_fitted(self)
        if not _is_dask_array(X):
            return super().predict(X)
        meta = np.empty(0, np.intp)
        return X.rechunk({1: -1}).map_blocks(
            self.to_local().predict, dtype=meta.dtype, drop_axis=1, meta=meta
        )


class DaskRPML(LazyEmbedding, RPML):
    """`RPML` for rows that are distributed over the workers of a Dask cluster.

    Parameters, fitted attributes, `save` and `load` are those of `RPML`; `fit` takes a Dask array,
    a Dask DataFrame or the path of shards instead of an array in memory. The workers read all rows
    once and return their moments and the rows of the `subsample`; the rest of the fit runs in this
    process, as that of `RPML` with the same `subsample` does. `memory_limit` is that of this
    process.

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
        cluster: object = None,
        store: Checkpoint | None = None,
        **inputs: Any,
    ) -> Self:
        """Learn the embedding from partitioned rows.

        Parameters
        ----------
        X : Dask array, Dask DataFrame, str, Path or PartitionedRows
            See `rpml.distributed.open_rows`.
        y : array-like of shape (n_samples,), default=None
            Ignored unless use_labels=True, as in `RPML`.
        cluster : Cluster, Client or str, default=None
            Where to run; None starts worker processes on this machine for the fit.
        store : Checkpoint, default=None
            Where finished stages are saved, and found by a repeated fit.
        **inputs
            The other arguments of `RPML.fit`: groups, pairs, nuisance, queries, constraints and so
            on, in memory. Row numbers count all rows, in the order of the files.
        """
        self._validate_params()
        if unknown := inputs.keys() - inspect.signature(RPML.fit).parameters.keys():
            raise TypeError(f"DaskRPML.fit() has no argument {min(unknown)!r}")
        if isinstance(cluster, Cluster):
            return self._fit(X, y, inputs, store, cluster)
        with Cluster(cluster) as started:
            logger.info("Dask dashboard: %s", started.dashboard)
            return self._fit(X, y, inputs, store, started)

    def _fit(
        self,
        X: object,
        y: ArrayLike | None,
        inputs: Json,
        store: Checkpoint | None,
        cluster: Cluster,
    ) -> Self:
        rows = open_rows(X, cluster)
        n = rows.count
        if n < 2:
            raise ValueError(f"X has {n} row: at least 2 are needed.")
        if self.subsample is None or n <= self.subsample:
            report = Context(report=self.callback or (lambda progress: None))
            super().fit(read_all(cluster, rows, report), y, store=store, **inputs)
        else:
            known = fit_inputs(self, cast("Array", rows), y, **inputs)
            self._fit_sample(rows, known, self._context(store), cluster)
        if rows.feature_names is not None:
            self.feature_names_in_ = np.array(rows.feature_names, dtype=object)
        return self

    def _fit_sample(
        self, rows: PartitionedRows, inputs: FitInputs, context: Context, cluster: Cluster
    ) -> None:
        """Learn from the moments of all rows and a sample of them."""
        settings, (n, d) = self._settings(), rows.shape
        wanted = rows_needed(inputs, settings, self.subsample, context)
        values, moments = gather_rows(cluster, rows, wanted, self.normalize_input, context)
        as_they_are = self.normalize_input or self.whiten is None
        scale = divisor(common_scale(values) if as_they_are else moments.scale, as_they_are)
        sample = cast("Array", SampledRows(divided(values, scale), wanted, (n, d)))
        unit = moments.unit if self.normalize_input else scale
        spectrum = moments.spectrum(unit, float_dtype(rows))
        inputs = inputs.divided(scale)
        with using_jobs(self.n_jobs):
            inputs = replace(
                inputs, whitening=choose_whitening(sample, inputs, settings, context, spectrum)
            )
            result = learn_in_memory(sample, inputs, settings, context, self.subsample)
        self.n_features_in_ = d
        given = SampledRows(values, wanted, (n, d))
        set_fitted(self, result.of_rows_times(scale), n, given.__getitem__)
        calibrate(self, result.sample)
        warn_of_training(self)

    def to_local(self) -> RPML:
        """Return the fitted model as a plain `RPML`, which does not need Dask."""
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        local = RPML(**{**parameters, "callback": None})
        for name in vars(self).keys() - parameters.keys():
            setattr(local, name, getattr(self, name))
        return local


def rows_needed(
    inputs: FitInputs, settings: FitSettings, subsample: int | None, context: Context
) -> NDArray[np.intp]:
    """Return the rows that a fit of a sample reads: the sample, and that of the whitening."""
    rows = inputs.sample(subsample, context.rng("subsample"))
    assert rows is not None
    if not isinstance(settings.whiten, str):
        return rows
    return np.union1d(rows, scatter_rows(inputs, context.rng("whiten")))


def _is_dask_array(X: object) -> bool:
    return hasattr(X, "dask") and hasattr(X, "map_blocks")
