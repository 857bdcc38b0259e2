"""A model and files of vectors: fits that write a model and can resume, embedding in batches."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from rpml.estimator.fitted import describe_settings, save_model
from rpml.estimator.rpml import RPML
from rpml.io.checkpoint import Checkpoint, ResumableRun, check_directory, fingerprint
from rpml.io.container import check_model_output, read_model
from rpml.io.features import Batch, Features, FeatureSource, Layout, write_batches
from rpml.io.features.source import as_ids
from rpml.method.clustering.pseudo_labels import is_array
from rpml.runtime.context import Context, Json, Progress, data_digest
from rpml.runtime.errors import InputError, ModelFormatError, counted
from rpml.runtime.files import check_apart

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FitOutcome:
    """How a resumable fit ended.

    Attributes
    ----------
    model : RPML
        The fitted estimator, as it is in the file.
    state : {"fitted", "stopped", "complete"}
        "stopped": the callback stopped the solver; the file holds the best model so far and the
        fit can be resumed. "complete": an earlier run had written the model.
    """

    model: RPML
    state: Literal["fitted", "stopped", "complete"]


@dataclass(frozen=True)
class ResumableFit(ResumableRun):
    """Fit an estimator and write its model file; a killed fit can resume.

    Finished stages and the state of the solver are kept in the folder ``<path>.ckpt`` until the
    model is written. The resumed fit gives the same model as an uninterrupted one.

    Parameters
    ----------
    path : str or Path
        The model file to write.
    resume : bool, default=False
        Continue an interrupted fit of the same rows, settings and file, or start if there is none.
        Without it an existing folder of finished stages is an error, so that forgetting the option
        loses nothing.
    overwrite : bool, default=False
        Replace an existing file; without `resume` also discard finished stages.
    checkpoint : bool, default=True
        Keep finished stages.
    notes : mapping, default={}
        JSON values that the model file stores under "run", such as the name of the data.
    exemplars, training : bool, default=False
        As in `RPML.save`.
    code_bytes : int, default=None
        Learn the codebooks of ``output="pq"`` with this many bytes per vector.
    code_rows : array-like, default=None
        Rows to learn them from; None means those of the fit, which must be in memory.

    Examples
    --------
    >>> from rpml import RPML
    >>> from rpml.estimator import ResumableFit
    >>> run = ResumableFit("birds.rpml", resume=True)
    >>> model = run.fit(RPML(64, random_state=0), X).model  # doctest: +SKIP
    """

    checkpoint: bool = True
    notes: Mapping[str, object] = field(default_factory=dict)
    exemplars: bool = False
    training: bool = False
    code_bytes: int | None = None
    code_rows: ArrayLike | None = None
    _suffix: ClassVar[str] = ".ckpt"

    def fit(self, model: RPML, X: ArrayLike | Features, **inputs: Any) -> FitOutcome:
        """Fit the model and write it.

        Parameters
        ----------
        model : RPML or DaskRPML
        X : array-like of shape (n_samples, n_features), Features or PartitionedRows
            The rows; `Features` have the names of their columns. `DaskRPML` takes the result of
            `rpml.distributed.open_rows`.
        **inputs
            The other arguments of the estimator's `fit`: y, groups, constraints, cluster.

        Raises
        ------
        InputError
            If the file exists and may not be replaced, if the finished stages are of other rows or
            settings, or if `resume` was forgotten.
        """
        data = X if isinstance(X, Features) else Features(X)  # type: ignore[arg-type]
        with self._running():
            digest, settings = _digest(model, data.values, inputs), describe_settings(model)
            extra = {} if self.code_bytes is None else {"code_bytes": self.code_bytes}
            key = fingerprint(digest, settings | extra)
            if self.resume and self._is_complete(key):
                self.discard()
                return FitOutcome(type(model).load(self.path), "complete")
            # what is there now is the best model so far of this fit
            replaces = self.overwrite or (self.resume and os.path.lexists(self.path))
            if self.resume and not self.directory.exists() and not os.path.lexists(self.path):
                logger.info("nothing to resume in %s: starting from the beginning", self.directory)
            if self.checkpoint:
                inputs["store"] = Checkpoint(self.directory, digest, settings, self.resume)
            model.fit(data.values, **inputs)
            stopped = "on request" in model.message_
            if self.code_bytes is not None:
                rows = data.values if self.code_rows is None else self.code_rows
                seed = model.random_state if isinstance(model.random_state, int) else 0
                model.learn_codebooks(rows, self.code_bytes, random_state=seed)
            if data.feature_names is not None:
                model.feature_names_in_ = as_ids(data.feature_names)
            data.check_unchanged()
            run: Json = {"command": "fit", "options": dict(self.notes), "fingerprint": key}
            run["interrupted"] = stopped
            save_model(model, self.path, run, self.exemplars, self.training, replaces)
            if not stopped:
                self.discard()
            return FitOutcome(model, "stopped" if stopped else "fitted")

    def check(self, inputs: Sequence[str | Path | None] = ()) -> None:
        check_model_output(self.path, self.overwrite or self.resume, inputs)
        if self.checkpoint:
            check_apart([self.directory], inputs)
            check_directory(self.directory)

    def _is_complete(self, key: str) -> bool:
        """Whether the file is the finished model of this fit; InputError if it is another one."""
        if not os.path.lexists(self.path):
            return False
        try:
            run = read_model(self.path)[1].get("run", {})
        except ModelFormatError:
            run = {}
        if isinstance(run, dict) and run.get("fingerprint") == key:
            return not run.get("interrupted")
        if not self.overwrite:
            raise InputError(
                f"{self.path} exists and is not from this fit: choose another name or pass "
                "--force (overwrite=True) to replace it"
            )
        return False


def _digest(model: RPML, X: ArrayLike, inputs: Mapping[str, object]) -> str:
    """Return a hash of the rows and of all other inputs."""
    known = {name: v for name, v in inputs.items() if name != "cluster" and v is not None}
    if is_array(model.clustering):
        known["clustering"] = model.clustering
    values = [v if isinstance(v, str) else np.asarray(v) for _, v in sorted(known.items())]
    rows: str = X.digest() if hasattr(X, "digest") else data_digest(np.asanyarray(X))
    return rows + data_digest(*sorted(known), *values)


def check_features(model: RPML, source: Any, path: str | PathLike[str]) -> RPML:
    """Raise InputError if the vectors have another size or other names than the training data.

    `source` is an open file of vectors, or rows on a cluster, `path` the model's file, for the
    message. Returns the model for arrays, which have no feature names to check again.
    """
    if source.n_features != model.n_features_in_:
        raise InputError(
            f"{path} was fitted on {counted(model.n_features_in_, 'feature')}, "
            f"{source.name} has {source.n_features}"
            + (": choose them with --columns" if source.feature_names else "")
        )
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return model
    for i, (fitted, name) in enumerate(zip(names, source.feature_names or names, strict=True)):
        if fitted != name:
            raise InputError(
                f"feature {i} of {source.name} is {name!r}, {path} was fitted on {fitted!r} there: "
                "name the columns in that order with --columns"
            )
    unnamed = copy(model)
    del unnamed.feature_names_in_
    return unnamed


def embed_batches(model: RPML, source: FeatureSource, output: str = "float") -> Iterator[Batch]:
    """Yield the embedding of an open file in batches; ids are copied."""
    for batch in source.batches():
        yield replace(batch, values=model.transform(batch.values, output=output))


def load_embedded(model: RPML, source: FeatureSource) -> Features:
    """Return the embedding of an open file, in memory."""
    batches = list(embed_batches(model, source))
    ids = [batch.ids for batch in batches if batch.ids is not None]
    values = np.concatenate([batch.values for batch in batches])
    return Features(values, np.concatenate(ids) if ids else None, source.id_name, None, source.name)


def column_names(model: RPML, output: str) -> list[str]:
    """Return the names of the columns of an output: components, or bytes of packed codes."""
    if output in ("float", "int8"):
        return [str(name) for name in model.get_feature_names_out()]
    return [f"byte{i}" for i in range(model.codec(output).width)]


def embed_file(
    model: RPML,
    source: FeatureSource,
    path: str,
    overwrite: bool = False,
    context: Context | None = None,
    output: str = "float",
) -> int:
    """Write the embedding of an open file in bounded memory.

    Parameters
    ----------
    model : RPML
        Fitted on the features of `source` (see `check_features`).
    source : FeatureSource
        What `rpml.io.features.open_features` returns.
    path : str
        The suffix sets the format; NAME/ writes a folder of shards, - to standard output.
    overwrite : bool, default=False
        Replace an existing output.
    context : Context, default=None
        Receives progress.
    output : {"float", "int8", "int4", "int2", "binary", "pq"}, default="float"
        As in `RPML.transform`.

    Returns
    -------
    int
        The number of rows.
    """
    report, rows = (context or Context()).report, 0
    names = column_names(model, output)
    id_name = source.id_name if source.has_ids else None
    layout = Layout("embedding", names, id_name, kept=source.kept_names)

    def embedded() -> Iterator[Batch]:
        nonlocal rows
        for batch in embed_batches(model, source, output):
            yield batch
            rows = batch.start + len(batch.values)
            report(Progress("embed", rows, source.n_rows or 0))

    write_batches(path, layout, embedded(), overwrite)
    return rows
