"""Codes of a fitted model."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from rpml.method.codes import CODEBOOK_ROWS, AxisRanges, Codec, learn_codebooks, make_codec
from rpml.runtime.rows import Array, sorted_sample
from rpml.runtime.validation import as_matrix


class Coded(ABC):
    """What a model needs to encode its embedding."""

    components_: Array
    code_ranges_: AxisRanges | None
    codebooks_: NDArray[np.float32] | None = None
    normalize: bool

    @abstractmethod
    def transform(self, X: ArrayLike) -> Any:
        """Embed rows."""

    def codec(self, output: str) -> Codec:
        """Return the codec of the embedding, which encodes rows and decodes codes.

        Parameters
        ----------
        output : {"int8", "int4", "int2", "binary", "pq"}

        Returns
        -------
        Codec
            ``transform(queries) @ codec.decode(codes).T`` scores float queries against codes.
        """
        check_is_fitted(self)
        size = len(self.components_)
        return make_codec(output, size, self.code_ranges_, self.codebooks_, self.normalize)

    def learn_codebooks(self, X: ArrayLike, n_bytes: int, random_state: int = 0) -> Self:
        """Learn the codebooks of ``output="pq"``, by k-means on the embedding of rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_)
            The rows to search, or a sample of them; at most 20,000 are used.
        n_bytes : int
            Bytes per vector, at most the number of components.
        random_state : int, default=0
            Seed of the sample and of k-means.

        Returns
        -------
        self
            With `codebooks_` of shape (n_bytes, 256, components per byte), the layout of faiss.
        """
        rng = np.random.default_rng(random_state)
        rows = as_matrix(X)
        sample = sorted_sample(len(rows), CODEBOOK_ROWS, rng)
        Y = np.asarray(self.transform(rows[sample] if len(sample) < len(rows) else rows))
        self.codebooks_ = learn_codebooks(Y, n_bytes, rng)
        return self
