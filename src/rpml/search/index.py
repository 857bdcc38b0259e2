"""An index that scans codes, and the model that embeds queries."""

from __future__ import annotations

import os
import warnings
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.estimator import RPML
from rpml.estimator.description import decisions, describe_arrays, map_fingerprint
from rpml.estimator.fitted import model_arrays, model_metadata, rebuild_model
from rpml.io.container import Arrays, check_content, check_model, read_container, write_container
from rpml.io.features.source import as_ids, check_text, check_unique_ids
from rpml.method.calibration import SCALE_ROWS, SimilarityScale
from rpml.method.codes import Codes
from rpml.runtime.context import Json
from rpml.runtime.errors import InputError, ModelFormatError, counted
from rpml.runtime.rows import BLOCK_BYTES, AnyArray, Floats, Indices, Mask, as_matrix, slices
from rpml.runtime.schema import ArraySpec, Number, Schema
from rpml.search.scan import MIN_CHUNK, CodeScan, RecallProbe

FORMAT_VERSION = 3  # 1: sign bits and int8 codes; 2: product codes of rotated axes
FINER_CODES = ("int8", "int4", "int2")
OVERSAMPLE = 4
LOW_RECALL = 0.9
SCHEMA = Schema(
    arrays={
        "codes": ArraySpec("iu", ("rows", "bytes")),
        "fine": ArraySpec("iu", ("rows", "finer bytes"), optional=True),
        "ids": ArraySpec("iu", ("numbers or text",), optional=True),
    },
    metadata={"model": {}, "output": str, "rescore": (None, str), "recall": (None, Number(0, 1))},
)


class Hits(NamedTuple):
    """The results of each query, best first."""

    scores: Floats
    """(n_queries, k) dot products of query and decoded row: cosine similarities, in [-1, 1]."""
    ids: AnyArray
    """(n_queries, k) ids passed to `add`, or row numbers."""


class Index:
    """Search embedded vectors by their codes.

    The float query is scored against every code: what is found is the exact ranking of the codes.
    How many of the nearest rows by the float embedding it contains is measured while rows are
    added (`recall`), and a first search below 0.9 warns.

    Parameters
    ----------
    model : RPML
        A fitted model, which embeds the rows that are added and the queries.
    n_components : int, default=None
        Use only the first components.
    output : {"int8", "int4", "int2", "binary", "pq"}, default=None
        The code that is scanned; None means "pq" if the model has codebooks, else "int8".
    rescore : {"int8", "int4", "int2"}, default=None
        A finer code, stored too, which ranks the best rows of the scan again.

    See Also
    --------
    RPML.transform : Returns the codes themselves, for the index of a database.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rpml import RPML
    >>> from rpml.search import Index
    >>> X, _ = load_digits(return_X_y=True)
    >>> index = Index(RPML(16, random_state=0).fit(X)).add(X)
    >>> index.search(X[:2], k=3).ids[:, 0].tolist()
    [0, 1]
    """

    def __init__(
        self,
        model: RPML,
        n_components: int | None = None,
        output: str | None = None,
        rescore: str | None = None,
    ) -> None:
        self.model = model.map_only(n_components)
        self.output = output or ("int8" if self.model.codebooks_ is None else "pq")
        if rescore not in (None, *FINER_CODES):
            raise ValueError(f"rescore={rescore!r}: choose from {', '.join(FINER_CODES)}.")
        self.rescore = rescore
        self.codec = self.model.codec(self.output)
        self._finer = None if rescore is None else self.model.codec(rescore)
        self._parts: list[Codes] = [np.empty((0, self.codec.width), self.codec.dtype)]
        self._fine: list[Codes] = []
        self._named: list[NDArray[np.object_]] = []
        self._known: set[object] = set()
        self._probe: RecallProbe | None = RecallProbe()
        self._recall: float | None = None
        self._scan: CodeScan | None = None
        self._warned = False

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def codes(self) -> Codes:
        """The codes that are scanned, one row each."""
        return _joined(self._parts)

    @property
    def bytes_per_row(self) -> int:
        """Bytes per row, without its id."""
        return self.codec.width + (0 if self._finer is None else self._finer.width)

    @property
    def ids(self) -> AnyArray:
        """The id or number of each row."""
        return _joined(self._named) if self._named else np.arange(len(self))

    @property
    def recall(self) -> float | None:
        """Share of the 10 nearest rows by the float embedding that a search for 10 returns.

        Measured for up to 100 of the added rows as queries, among all rows; None if rows were
        added to a loaded index or removed, so that it is no longer known.
        """
        if self._recall is None and self._probe is not None and len(self) > 1:
            probe, k = self._probe, min(len(self) - 1, 10)
            found = self._ranked(probe.queries, k + 1, None, OVERSAMPLE)[1]
            self._recall = probe.recall(found, k)
        return self._recall

    def add(self, X: ArrayLike, ids: ArrayLike | None = None) -> Self:
        """Embed rows and store their codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_)
        ids : array-like of shape (n_samples,), default=None
            Integers or strings, unique in the index; others become strings. None numbers the rows.
        """
        Y = np.asarray(self.model.transform(X))
        names = None if ids is None else _as_names(ids)
        if names is not None and len(names) != len(Y):
            raise ValueError(f"Got {counted(len(names), 'id')} for {counted(len(Y), 'row')}.")
        if not len(self):  # all named rows may have been removed
            self._named.clear()
        elif (names is None) == bool(self._named):
            raise ValueError("Either all rows of an index have ids, or none.")
        elif names is not None and type(names[0]) is not type(self._named[0][0]):
            raise ValueError("The ids of an index are either all integers or all text.")
        if names is not None:
            if len(set(names)) < len(names) or not self._known.isdisjoint(names):
                check_unique_ids(np.concatenate([*self._named, names]), "the index")
            self._known.update(names)
            self._named.append(names)
        if self._probe is not None:
            self._probe.see(Y.astype(np.float32, copy=False), len(self))
        self._parts.append(self.codec.encode(Y))
        if self._finer is not None:
            self._fine.append(self._finer.encode(Y))
        self._scan = self._recall = None
        return self

    def remove(self, ids: ArrayLike) -> Self:
        """Remove rows by id, or by row number if the rows have no ids; later rows move up.

        Parameters
        ----------
        ids : array-like
            InputError if one of them is not in the index.
        """
        gone = set(np.asarray(ids, object).ravel().tolist())
        own = self.ids.tolist()
        if missing := gone - set(own):
            raise InputError(f"the index has no row with the id {min(missing, key=str)!r}")
        kept = np.array([name not in gone for name in own], bool)
        self._parts = [_joined(self._parts)[kept]]
        self._fine = [_joined(self._fine)[kept]] if self._fine else []
        self._named = [_joined(self._named)[kept]] if self._named else []
        self._known -= gone
        self._scan = self._probe = self._recall = None
        return self

    def search(
        self,
        X: ArrayLike,
        k: int = 10,
        where: ArrayLike | None = None,
        oversample: int = OVERSAMPLE,
    ) -> Hits:
        """Find the nearest rows of each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features_in_) or (n_features_in_,)
            Vectors in the space that the model was fitted on, not embedded.
        k : int, default=10
            Rows per query; fewer if there are not as many.
        where : bool array of shape (n_rows,), default=None
            Rows that may be returned.
        oversample : int, default=4
            With `rescore`, the best k * oversample rows of the scan are ranked again.

        Returns
        -------
        Hits
            `scores` and `ids` of shape (n_queries, k).
        """
        if not all(isinstance(count, Integral) and count >= 1 for count in (k, oversample)):
            raise ValueError(f"{k=} and {oversample=} must be integers of at least 1.")
        if not len(self):
            raise ValueError("The index is empty: add rows first.")
        mask = None if where is None else np.asarray(where)
        if mask is not None and (mask.dtype != bool or mask.shape != (len(self),)):
            raise ValueError(
                f"where must hold True or False for each of the {counted(len(self), 'row')}."
            )
        self._warn()
        asked = as_matrix(X)
        asked = np.asarray(asked)[None] if np.ndim(asked) == 1 else asked
        queries = np.asarray(self.model.transform(asked), np.float32)
        scores, rows = self._ranked(queries, k, mask, oversample)
        if self.model.normalize:
            scores = np.clip(scores, -1, 1)
        return Hits(scores, self.ids[rows])

    def _ranked(
        self, queries: Floats, k: int, mask: Mask | None, oversample: int
    ) -> tuple[Floats, Indices]:
        """Return scores and rows of the best, rescored if there are finer codes."""
        allowed = len(self) if mask is None else int(mask.sum())
        k = min(k, allowed)
        if not k:  # the filter admits no row
            none = (len(queries), 0)
            return np.empty(none, np.float32), np.empty(none, np.intp)
        first = k if self._finer is None else min(k * oversample, allowed)
        if self._scan is None:
            self._scan = CodeScan(self.codec, self.codes)
        block = max(1, BLOCK_BYTES // (4 * min(len(self), MIN_CHUNK)))
        parts = [
            self._scan.best(queries[part], first, mask) for part in slices(len(queries), block)
        ]
        scores, rows = (np.concatenate(a) for a in zip(*parts, strict=True))
        if self._finer is not None:
            fine = _joined(self._fine)
            for number, query in enumerate(queries):
                values = self._finer.decode(fine[rows[number]]) @ query
                order = np.argsort(-values, kind="stable")
                scores[number], rows[number] = values[order], rows[number, order]
        return scores[:, :k], rows[:, :k]

    def _warn(self) -> None:
        if self._warned:
            return
        self._warned = True
        if self.recall is not None and self.recall < LOW_RECALL:
            finer = "" if self.rescore == "int8" else "rescore='int8', or with "
            warnings.warn(
                f"This index returns {self.recall:.0%} of the 10 nearest rows by the float "
                f"embedding: one with {finer}more bytes would return more.",
                stacklevel=3,
            )

    def similarity_quantile(self, similarity: ArrayLike) -> NDArray[np.float64]:
        """Return the share of random pairs that are less similar, in [0, 1].

        They are pairs of training rows, or of rows of the index if it uses only the first
        components of the model.
        """
        scale = self.model.similarity_scale_
        if scale is None and len(self) < 2:
            raise ValueError("The share of random pairs needs an index of 2 rows or more.")
        if scale is None:
            codes = self.codes if self._finer is None else _joined(self._fine)
            sample = codes[:: -(-len(self) // SCALE_ROWS)]
            scale = SimilarityScale.from_rows((self._finer or self.codec).decode(sample))
        return np.asarray(scale.quantile(similarity))

    def save(self, path: str | PathLike[str], overwrite: bool = True) -> None:
        """Write the codes, the ids and the model to one file, without pickle.

        A file of that name is replaced, by one rename when the new one is complete; with
        ``overwrite=False`` it is an error.
        """
        arrays: Arrays = {"codes": self.codes}
        if self._finer is not None:
            arrays["fine"] = _joined(self._fine)
        metadata: Json = {"model": model_metadata(self.model), "output": self.output}
        metadata |= {"rescore": self.rescore, "recall": self.recall}
        if self._named and len(self):
            arrays["ids"] = _stored(self.ids)
        arrays |= {f"model.{name}": array for name, array in model_arrays(self.model).items()}
        write_container(Path(path), arrays, metadata, "index", FORMAT_VERSION, overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read an index written by `save`; the file need not be trusted."""
        arrays, fields = read_container(Path(path), "index", FORMAT_VERSION)
        if fields["format_version"] < FORMAT_VERSION:
            raise ModelFormatError(f"{path} is an index of an older rpml: build it again")
        check_content(path, SCHEMA, arrays, fields["metadata"])
        mine = {n.removeprefix("model."): a for n, a in arrays.items() if n.startswith("model.")}
        stored = fields["metadata"]
        check_model(path, mine, stored["model"])
        model = rebuild_model(RPML, mine, stored["model"], path)
        try:
            index = cls(model, None, stored["output"], stored["rescore"])
            index._parts = [index.codec.check(arrays["codes"])]
            if index._finer is not None:
                index._fine = [index._finer.check(arrays["fine"])]
        except (ValueError, KeyError) as error:
            raise ModelFormatError(f"{path} is damaged: wrong codes") from error
        if "ids" in arrays:
            ids = arrays["ids"]
            is_text = ids.dtype == np.uint8
            names = as_ids(ids.tobytes().decode(errors="replace").split("\0") if is_text else ids)
            index._named, index._known = [names], set(names)
        if len(index.ids) != len(index) or any(len(part) != len(index) for part in index._fine):
            raise ModelFormatError(f"{path} is damaged: codes and ids of different numbers of rows")
        index._probe, index._recall = None, stored["recall"]
        return index


def _joined(parts: list[NDArray]) -> NDArray:  # type: ignore[type-arg]
    """Return the rows of all parts, joined in place when they are needed, not at each `add`."""
    if len(parts) > 1:
        parts[:] = [np.concatenate(parts)]
    return parts[0]


def _as_names(ids: ArrayLike) -> NDArray[np.object_]:
    """Return ids as integers of 64 bits or, if they are others, as text."""
    names = as_ids(np.asarray(ids, object))
    if any(repr(name) in ("None", "<NA>") or name != name for name in names):
        raise ValueError("An id is missing: give every row one, or none.")
    whole = all(isinstance(name, Integral) and not isinstance(name, bool) for name in names)
    fits = whole and min(names) >= -(2**63) and max(names) < 2 ** (64 if min(names) >= 0 else 63)
    return as_ids(list(map(int if fits else str, names)))


def _stored(ids: AnyArray) -> AnyArray:
    """Return ids as an array of integers, or of the bytes of text."""
    if isinstance(ids[0], int):
        return ids.astype(np.uint64 if max(ids) >= 2**63 else np.int64)
    if (bad := next((i for i in ids if "\0" in i), None)) is not None:
        raise InputError(f"the id {bad!r} holds a zero byte: rename it")
    check_text(ids, "the index")
    return np.frombuffer("\0".join(ids).encode(), np.uint8)


def describe_index(path: str | PathLike[str]) -> dict[str, object]:
    """Describe the rows and codes of an index, and the model that it belongs to."""
    index = Index.load(path)
    arrays, fields = read_container(Path(path), "index", FORMAT_VERSION)
    ids = arrays.get("ids")
    return {
        "kind": "index",
        "path": str(path),
        "format_version": fields["format_version"],
        "rpml_version": str(fields.get("rpml_version")),
        "rows": len(index),
        "features": index.model.n_features_in_,
        "dim": len(index.model.components_),
        "codes": index.output,
        "rescore": index.rescore,
        "recall": index.recall,
        "bytes_per_row": index.bytes_per_row,
        "bytes": os.path.getsize(path),
        "ids": None if ids is None else "text" if ids.dtype.kind == "u" else "numbers",
        "fingerprint": map_fingerprint(index.model),
        "arrays": describe_arrays(arrays),
        "feature_names": list(getattr(index.model, "feature_names_in_", [])),
        "settings": fields["metadata"]["model"]["settings"],
        "decisions": decisions(index.model),
    }
