"""DaskRPML, the estimator for rows on a cluster.

The workers read every partition once, in batches, and return the moments of all rows and a sample
of them. The moments of a batch are taken about its own mean, so that the mean of all rows need not
be known before.
"""

import inspect
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.source import PartitionedRows, open_rows
from rpml.estimator import RPML, Embedding
from rpml.estimator.fitted import calibrate, set_fitted, warn_of_training
from rpml.estimator.knowledge import fit_inputs
from rpml.io.checkpoint import Checkpoint
from rpml.io.features.source import Batch, picking
from rpml.method.pipeline import learn_in_memory
from rpml.method.settings import FitInputs
from rpml.method.whitening.choice import choose_whitening, scatter_rows
from rpml.method.whitening.linear_map import (
    Spectrum,
    lost_in_rounding,
    row_sum,
    second_moments,
    spectrum_of,
)
from rpml.runtime.context import Context, Json, data_digest
from rpml.runtime.rows import Array, Indices, common_scale, divided, divisor, float_dtype, unit_rows
from rpml.runtime.threads import using_jobs

logger = logging.getLogger(__name__)
Float = type[np.floating]
_STAGE = "rows"


class LazyEmbedding(Embedding):
    """`transform` and `predict` of rows on a cluster; a base for the same reason as `Embedding`."""

    to_local: Callable[[], RPML]

    def transform(self, X: Any, n_components: int | None = None, output: str = "float") -> Any:
        """Embed rows: an array at once, a Dask array lazily by partition.

        Files are embedded by `rpml.distributed.embed`.
        """
        check_is_fitted(self)
        if not hasattr(X, "map_blocks"):
            return super().transform(X, n_components, output)
        local = self.to_local()
        one = local.transform(np.zeros((1, X.shape[1]), X.dtype), n_components, output)
        chunks = X.rechunk({1: -1})
        blocks = {"chunks": (chunks.chunks[0], one.shape[1:]), "meta": one[:0]}
        return chunks.map_blocks(local.transform, n_components, output, dtype=one.dtype, **blocks)

    def predict(self, X: Any) -> Any:
        """Predict the clusters of rows: of an array at once, of a Dask array lazily."""
        check_is_fitted(self)
        if not hasattr(X, "map_blocks"):
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
            return self._fit(open_rows(X, cluster), y, inputs, store)
        with Cluster(cluster) as started:
            logger.info("Dask dashboard: %s", started.dashboard)
            return self._fit(open_rows(X, started), y, inputs, store)

    def _fit(
        self, rows: PartitionedRows, y: ArrayLike | None, inputs: Json, store: Checkpoint | None
    ) -> Self:
        n = len(rows)
        if n < 2:
            raise ValueError(f"X has {n} row: at least 2 are needed.")
        if self.subsample is None or n <= self.subsample:
            X = rows.read(np.arange(n), self._context(store))
            super().fit(X, y, store=store, **inputs)
        else:
            known = fit_inputs(self, cast("Array", rows), y, **inputs)
            self._fit_sample(rows, known, self._context(store))
        if rows.feature_names is not None:
            self.feature_names_in_ = np.array(rows.feature_names, dtype=object)
        return self

    def _fit_sample(self, rows: PartitionedRows, inputs: FitInputs, context: Context) -> None:
        """Learn from the moments of all rows and a sample of them."""
        n, d = rows.shape
        wanted = inputs.sample(self.subsample, context.rng("subsample"))
        assert wanted is not None  # there are more rows
        if isinstance(self.whiten, str):
            wanted = np.union1d(wanted, scatter_rows(inputs, context.rng("whiten")))
        values, moments = gather_rows(rows, wanted, self.normalize_input, context)
        as_they_are = self.normalize_input or self.whiten is None
        scale = divisor(common_scale(values) if as_they_are else moments.scale, as_they_are)
        sample = cast("Array", SampledRows(divided(values, scale), wanted, (n, d)))
        spectrum = moments.spectrum(1.0 if self.normalize_input else scale, float_dtype(rows))
        inputs = inputs.divided(scale)
        with using_jobs(self.n_jobs):
            inputs = replace(
                inputs, whitening=choose_whitening(sample, inputs, self, context, spectrum)
            )
            result = learn_in_memory(sample, inputs, self, context)
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


class Moments(NamedTuple):
    """Mean of rows, and the sum of the products of their differences to it, (d, d)."""

    n_rows: int
    mean: Array
    products: Array

    @property
    def scale(self) -> float:
        """The power of two nearest to the typical norm of a row, as by `common_scale`."""
        energy = float(np.trace(self.products) / self.n_rows + self.mean @ self.mean)
        return float(2.0 ** min(1023, round(math.log2(energy) / 2))) if energy else 1.0

    def spectrum(self, unit: float, dtype: Float) -> Spectrum:
        """Return the principal axes of the rows of a precision, divided by the unit."""
        return spectrum_of(self.mean / unit, self.products / (self.n_rows * unit**2), dtype)


def combined(parts: Sequence[Moments]) -> Moments:
    """Return the moments of all rows from those of their parts."""
    count = sum(part.n_rows for part in parts)
    mean = np.sum([part.n_rows / max(1, count) * part.mean for part in parts], axis=0)
    products = np.zeros_like(parts[0].products)
    for part in parts:
        away = part.mean - mean
        products += part.products + part.n_rows * np.outer(away, away)
    return Moments(count, mean, products)


@dataclass(frozen=True, repr=False)
class SampledRows:
    """Rows of which some have been read: X[rows] are those, as for an array of all rows."""

    values: Array
    rows: Indices
    """Which rows they are, ascending."""
    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype[np.floating]:
        return self.values.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Indices) -> Array:
        return np.asarray(self.values[np.searchsorted(self.rows, rows)])

    def __repr__(self) -> str:
        """Return a digest, by which a checkpoint knows the rows."""
        return f"SampledRows({data_digest(self.values, self.rows, self.shape)})"


def gather_rows(
    rows: PartitionedRows, wanted: Indices, unit_norm: bool, context: Context
) -> tuple[Array, Moments]:
    """Return the wanted rows, given in ascending order, and the moments of all (unit) rows.

    The pass over the rows is a stage of the checkpoint.
    """
    key = context.key(rows.digest(), wanted, unit_norm)
    if saved := context.load(_STAGE, key):
        arrays, figures = saved
        return arrays["values"], Moments(figures["n_rows"], arrays["mean"], arrays["products"])
    precision, cluster = float_dtype(rows), rows.cluster

    def measure(chosen: Indices, dtype: Float) -> tuple[list[Task], Task]:
        work = partial(_measured, rows.n_features, precision, unit_norm, dtype)
        tasks = rows.each(work, rows.positions(chosen))
        return tasks, cluster.total([cluster.item(task, 0) for task in tasks], combined)

    tasks, total = measure(wanted, precision)
    cluster.wait(tasks, context, "read")
    values = np.concatenate(cluster.values([cluster.item(task, 1) for task in tasks]))
    result: Moments = cluster.value(total)
    if lost_in_rounding(result.spectrum(result.scale, precision), precision):
        result = cluster.value(measure(wanted[:0], np.float64)[1])
    arrays = {"values": values, "mean": result.mean, "products": result.products}
    context.save(_STAGE, arrays, {"n_rows": result.n_rows}, key)
    return values, result


def _measured(
    width: int,
    precision: Float,
    unit_norm: bool,
    dtype: Float,
    batches: Iterator[Batch],
    wanted: Indices,
) -> tuple[Moments, Array]:
    """Return the moments of a partition, from products in `dtype`, and the wanted rows of it."""
    total = Moments(0, np.zeros(width), np.zeros((width, width)))
    picked: list[Array] = [np.empty((0, width), precision)]
    for batch in picking(batches, wanted, picked):
        rows = np.asarray(batch.values, precision)
        unit = 1.0 if unit_norm else common_scale(rows)  # products in single precision may overflow
        rows = unit_rows(rows) if unit_norm else divided(rows, unit)
        mean = row_sum(rows, False) / len(rows)
        products = second_moments(rows, mean, False, dtype)
        total = combined([total, Moments(len(rows), mean * unit, products * unit**2)])
    return total, np.concatenate(picked).astype(precision, copy=False)
