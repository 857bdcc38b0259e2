"""An index of codes with 9/8 of a byte per dimension, and the model that encodes queries."""

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
from rpml.runtime.rows import slices, top_columns
from rpml.runtime.schema import ArraySpec, Schema
from rpml.runtime.validation import as_matrix
from rpml.runtime.wording import counted
from rpml.search.hamming import BitSearch, bit_search

FORMAT_VERSION = 1
EXACT_ROWS = 10_000
OVERSAMPLE = 4
SCHEMA = Schema(
    arrays={
        "codes": ArraySpec("i", ("rows", "components")),
        "bits": ArraySpec("u", ("rows", "bytes")),
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

    Sign bits select candidates, int8 codes rank them. Up to 10,000 rows all int8 codes are ranked.
    The bits are compared by faiss if it is installed, else by numpy.

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
        self._int8, self._sign = self.model.codec("int8"), self.model.codec("binary")
        self._codes: Codes = np.empty((0, self._int8.width), np.int8)
        self._bits: NDArray[np.uint8] = np.empty((0, self._sign.width), np.uint8)
        self._ids: NDArray[np.object_] | None = None
        self._bit_search: BitSearch | None = None

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def bytes_per_row(self) -> int:
        """Bytes per row, without its id."""
        return self._int8.width + self._sign.width

    @property
    def ids(self) -> NDArray[np.generic]:
        """The id or number of each row."""
        return np.arange(len(self)) if self._ids is None else self._ids

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
        if len(self) and (names is None) != (self._ids is None):
            raise ValueError("Either all rows of an index have ids, or none.")
        if names is not None:
            names = names if self._ids is None else np.concatenate([self._ids, names])
            if len(set(names)) < len(names):
                check_unique_ids(names, "the index")
        self._ids = names
        self._codes = np.concatenate([self._codes, codes])
        self._bits = np.concatenate([self._bits, self.model.transform(X, output="binary")])
        self._bit_search = None
        return self

    def search(self, X: ArrayLike, k: int = 10, oversample: int = OVERSAMPLE) -> Hits:
        """Find the nearest rows of each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features_in_) or (n_features_in_,)
            Vectors in the space that the model was fitted on, not embedded.
        k : int, default=10
            Rows per query; fewer if the index is smaller.
        oversample : int, default=4
            The int8 codes of k * oversample candidates are ranked.

        Returns
        -------
        Hits
            `scores` and `ids` of shape (n_queries, k).
        """
        if k < 1 or oversample < 1:
            raise ValueError(f"k={k} and oversample={oversample} must be at least 1.")
        if not len(self):
            raise ValueError("The index is empty: add rows first.")
        k, candidates = min(k, len(self)), k * oversample
        asked = as_matrix(X)
        asked = np.asarray(asked)[None] if np.ndim(asked) == 1 else asked
        queries = np.asarray(self.model.transform(asked), np.float32)
        blocks = (queries[part] for part in slices(len(queries), _QUERIES))
        if len(self) <= max(EXACT_ROWS, candidates):
            ranked = [self._rank_all(block, k) for block in blocks]
        else:
            self._bit_search = self._bit_search or bit_search(self._bits)
            ranked = [self._rank_candidates(block, k, candidates) for block in blocks]
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

    def _rank_all(self, queries: Floats, k: int) -> tuple[Floats, Rows]:
        """Return scores and rows of the best among all int8 codes."""
        scores = times(queries, self._int8.decode(self._codes).T)
        best = top_columns(scores, k)
        return np.take_along_axis(scores, best, axis=1), best

    def _rank_candidates(self, queries: Floats, k: int, candidates: int) -> tuple[Floats, Rows]:
        """Return scores and rows of the best among the rows with the nearest bits."""
        assert self._bit_search is not None
        near = self._bit_search(self._sign.encode(queries).view(np.uint8), candidates)
        decoded = self._int8.decode(self._codes[near.ravel()]).reshape(*near.shape, -1)
        scores = np.einsum("qcd,qd->qc", decoded, queries)
        best = top_columns(scores, k)
        return tuple(np.take_along_axis(a, best, axis=1) for a in (scores, near))  # type: ignore[return-value]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the codes, the ids and the model to one file, without pickle.

        A file of that name is replaced, by one rename when the new one is complete.
        """
        arrays: Arrays = {"codes": self._codes, "bits": self._bits}
        metadata = {"model": model_metadata(self.model)}
        if self._ids is not None and all(isinstance(i, int) for i in self._ids):
            arrays["ids"] = self._ids.astype(np.int64)
        elif self._ids is not None:
            if (bad := next((i for i in map(str, self._ids) if "\0" in i), None)) is not None:
                raise InputError(f"the id {bad!r} holds a zero byte: rename it")
            arrays["ids"] = np.frombuffer("\0".join(map(str, self._ids)).encode(), np.uint8)
        arrays |= {f"model.{name}": array for name, array in model_arrays(self.model).items()}
        write_container(Path(path), arrays, metadata, "index", FORMAT_VERSION)

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
            index._codes = index._int8.check(arrays["codes"])
            index._bits = index._sign.check(arrays["bits"]).view(np.uint8)
        except ValueError as error:
            raise ModelFormatError(f"{path} is damaged: wrong codes") from error
        if "ids" in arrays:
            ids = arrays["ids"]
            is_text = ids.dtype == np.uint8
            index._ids = as_ids(
                ids.tobytes().decode(errors="replace").split("\0") if is_text else ids
            )
        if len(index.ids) != len(index):
            raise ModelFormatError(f"{path} is damaged: codes and ids of different numbers of rows")
        return index
