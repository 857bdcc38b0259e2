"""An index of codes with one byte per dimension, and the model that encodes queries."""

from os import PathLike
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.estimator import RPML
from rpml.estimator.fitted import model_arrays, model_metadata, rebuild_model
from rpml.io.container import Arrays, check_content, read_container, write_container
from rpml.io.features.source import as_ids, check_unique_ids
from rpml.io.model_file import check_model
from rpml.method.codes import Codes
from rpml.method.similarity import MAX_ROWS as SCALE_ROWS
from rpml.method.similarity import SimilarityScale
from rpml.runtime.blas import times
from rpml.runtime.errors import InputError, ModelFormatError
from rpml.runtime.rows import BLOCK_BYTES, slices, top_columns
from rpml.runtime.schema import ArraySpec, Schema
from rpml.runtime.validation import as_matrix
from rpml.runtime.wording import counted

FORMAT_VERSION = 1
SCHEMA = Schema(
    arrays={
        "codes": ArraySpec("i", ("rows", "components")),
        "ids": ArraySpec("iu", ("numbers or text",), optional=True),
    },
    metadata={"model": {}},
)
_QUERIES = 256  # scored at a time
Floats = NDArray[np.float32]
Rows = NDArray[np.intp]


class Hits(NamedTuple):
    """The results of each query, best first."""

    scores: NDArray[np.float32]
    """(n_queries, k) dot products of query and decoded row: cosine similarities, in [-1, 1]."""
    ids: NDArray[np.generic]
    """(n_queries, k) ids passed to `add`, or row numbers."""


class Index:
    """Search embedded vectors by their codes.

    Every int8 code is decoded and ranked, a block of rows at a time.

    Parameters
    ----------
    model : RPML
        A fitted model, which embeds the rows that are added and the queries.
    n_components : int, default=None
        Use only the first components.

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

    def __init__(self, model: RPML, n_components: int | None = None) -> None:
        self.model = model.map_only(n_components)
        self._int8 = self.model.codec("int8")
        self._parts: list[Codes] = [np.empty((0, self._int8.width), np.int8)]
        self._named: list[NDArray[np.object_]] = []
        self._known: set[object] = set()

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def bytes_per_row(self) -> int:
        """Bytes per row, without its id."""
        return self._int8.width

    @property
    def ids(self) -> NDArray[np.generic]:
        """The id or number of each row."""
        if not self._named:
            return np.arange(len(self))
        self._named = [np.concatenate(self._named)]
        return self._named[0]

    @property
    def _codes(self) -> Codes:
        """The codes of all rows; parts are joined when they are needed, not at each `add`."""
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def add(self, X: ArrayLike, ids: ArrayLike | None = None) -> Self:
        """Embed rows and store their codes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_)
        ids : array-like of shape (n_samples,), default=None
            Strings or integers, unique in the index; None numbers the rows.
        """
        codes = self.model.transform(X, output="int8")
        names = None if ids is None else as_ids(np.asarray(ids))
        if names is not None and len(names) != len(codes):
            raise ValueError(f"Got {counted(len(names), 'id')} for {counted(len(codes), 'row')}.")
        if len(self) and (names is None) == bool(self._named):
            raise ValueError("Either all rows of an index have ids, or none.")
        if names is not None:
            if len(set(names)) < len(names) or not self._known.isdisjoint(names):
                check_unique_ids(np.concatenate([*self._named, names]), "the index")
            self._known.update(names)
            self._named.append(names)
        self._parts.append(codes)
        return self

    def search(self, X: ArrayLike, k: int = 10) -> Hits:
        """Find the nearest rows of each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features_in_) or (n_features_in_,)
            Vectors in the space that the model was fitted on, not embedded.
        k : int, default=10
            Rows per query; fewer if the index is smaller.

        Returns
        -------
        Hits
            `scores` and `ids` of shape (n_queries, k).
        """
        if k < 1:
            raise ValueError(f"k={k} must be at least 1.")
        if not len(self):
            raise ValueError("The index is empty: add rows first.")
        asked = as_matrix(X)
        asked = np.asarray(asked)[None] if np.ndim(asked) == 1 else asked
        queries = np.asarray(self.model.transform(asked), np.float32)
        ranked = [
            self._rank(queries[part], min(k, len(self))) for part in slices(len(queries), _QUERIES)
        ]
        scores, rows = (np.concatenate(parts) for parts in zip(*ranked, strict=True))
        if self.model.normalize:  # decoded rows do not have exactly unit norm
            scores = np.clip(scores, -1, 1)
        return Hits(scores, self.ids[rows])

    def similarity_quantile(self, similarity: ArrayLike) -> NDArray[np.float64]:
        """Return the share of random pairs that are less similar, in [0, 1].

        They are pairs of training rows, or of rows of the index if it uses only the first
        components of the model.
        """
        scale = self.model.similarity_scale_
        if scale is None and len(self) < 2:
            raise ValueError("The share of random pairs needs an index of 2 rows or more.")
        if scale is None:
            sample = self._codes[:: -(-len(self) // SCALE_ROWS)]
            scale = SimilarityScale.of(self._int8.decode(sample))
        return np.asarray(scale.quantile(similarity))

    def _rank(self, queries: Floats, k: int) -> tuple[Floats, Rows]:
        """Return scores and rows of the best among all codes, decoded a block at a time."""
        scores: Floats = np.empty((len(queries), 0), np.float32)
        rows: Rows = np.empty((len(queries), 0), np.intp)
        for part in slices(len(self), max(k, BLOCK_BYTES // (4 * max(self._int8.width, _QUERIES)))):
            block = times(queries, self._int8.decode(self._codes[part]).T)
            best = top_columns(block, k)
            scores = np.hstack([scores, np.take_along_axis(block, best, axis=1)])
            rows = np.hstack([rows, part.start + best])
            best = top_columns(scores, k)
            scores = np.take_along_axis(scores, best, axis=1)
            rows = np.take_along_axis(rows, best, axis=1)
        return scores, rows

    def save(self, path: str | PathLike[str], overwrite: bool = True) -> None:
        """Write the codes, the ids and the model to one file, without pickle.

        A file of that name is replaced, by one rename when the new one is complete; with
        ``overwrite=False`` it is an error.
        """
        arrays: Arrays = {"codes": self._codes}
        metadata = {"model": model_metadata(self.model)}
        if self._named and all(isinstance(i, int) for i in self.ids):
            arrays["ids"] = self.ids.astype(np.int64)
        elif self._named:
            if (bad := next((i for i in map(str, self.ids) if "\0" in i), None)) is not None:
                raise InputError(f"the id {bad!r} holds a zero byte: rename it")
            arrays["ids"] = np.frombuffer("\0".join(map(str, self.ids)).encode(), np.uint8)
        arrays |= {f"model.{name}": array for name, array in model_arrays(self.model).items()}
        write_container(Path(path), arrays, metadata, "index", FORMAT_VERSION, overwrite)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read an index written by `save`; the file need not be trusted."""
        arrays, fields = read_container(Path(path), "index", FORMAT_VERSION)
        check_content(path, SCHEMA, arrays, fields["metadata"])
        mine = {n.removeprefix("model."): a for n, a in arrays.items() if n.startswith("model.")}
        stored = fields["metadata"]["model"]
        check_model(path, mine, stored)
        index = cls(rebuild_model(RPML, mine, stored, path))
        try:
            index._parts = [index._int8.check(arrays["codes"])]
        except ValueError as error:
            raise ModelFormatError(f"{path} is damaged: wrong codes") from error
        if "ids" in arrays:
            ids = arrays["ids"]
            is_text = ids.dtype == np.uint8
            names = as_ids(ids.tobytes().decode(errors="replace").split("\0") if is_text else ids)
            index._named, index._known = [names], set(names)
        if len(index.ids) != len(index):
            raise ModelFormatError(f"{path} is damaged: codes and ids of different numbers of rows")
        return index
