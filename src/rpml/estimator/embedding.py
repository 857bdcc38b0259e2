"""Methods of a fitted model: embed rows, predict clusters, suggest labels, save and load."""

import warnings
from copy import copy
from numbers import Integral
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_is_fitted

from rpml.estimator.fitted import load_model, save_model
from rpml.method.clustering.exemplars import nearest_exemplar
from rpml.method.codes import AxisRanges, Codec, make_codec
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.settings import FitResult
from rpml.method.similarity import SimilarityScale
from rpml.method.supervision.suggest import rank_candidates
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.errors import WeightCollapseWarning
from rpml.runtime.rows import Array, float_dtype, row_blocks, unit_rows
from rpml.runtime.threads import using_jobs
from rpml.runtime.validation import as_matrix, check_rows
from rpml.runtime.wording import counted

OLDER = ", being from an older rpml: fit it again."
COLLAPSED = 0.05  # mean triplet weight below which the weights are called collapsed


class Embedding:
    """Base of the estimators.

    A separate class, because scikit-learn would name the output columns of a `transform` that a
    transformer defines itself after all components, whatever its size.
    """

    preprocessing_: Preprocessing
    components_: Array
    exemplars_: Any
    exemplar_vectors_: Any
    code_ranges_: AxisRanges | None
    similarity_scale_: SimilarityScale | None
    normalize: bool
    n_jobs: int | None
    weight: str
    solver: str
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    def transform(
        self, X: ArrayLike, n_components: int | None = None, output: str = "float"
    ) -> Any:
        """Embed rows; the result of a row depends on that row only.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_)
            As in `fit`.
        n_components : int, default=None
            Size of the embedding, from its leading components. One fit serves all smaller sizes.
        output : {"float", "int8", "binary", "binary-rotated"}, default="float"
            Return codes instead of floats: one byte per component, or one sign bit per component,
            packed as by `numpy.packbits`. See `codec`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Unit-norm rows unless normalize=False. int8 codes have the same shape, sign bits
            one byte (uint8) per 8 components.
        """
        check_is_fitted(self)
        model = self if n_components is None else self._first(n_components)
        codec = None if output == "float" else model.codec(output)
        rows = check_rows(self, X, reset=False, finite=False)
        with using_jobs(self.n_jobs):
            if codec is None:
                Y = self.preprocessing_.embed(rows, model.components_, self.normalize)
                return _wrap_data_with_container("transform", Y, X, model)
            codes = np.empty((len(rows), codec.width), codec.dtype)
            for part, block in row_blocks(rows):
                # double precision: rounding, which varies with the batch, must not change a code
                Y = self.preprocessing_.embed(block, model.components_, self.normalize, np.float64)
                codes[part] = codec.encode(Y)
        return codes

    def transform_one(
        self, x: ArrayLike, n_components: int | None = None, output: str = "float"
    ) -> NDArray[np.generic]:
        """Embed a single vector, such as a query: (n_features_in_,) to (n_components,).

        Like `transform`, which by scikit-learn's rules rejects one-dimensional input.
        """
        row = np.asarray(as_matrix(x))
        if row.ndim != 1:
            raise ValueError(f"transform_one takes one vector, got the shape {row.shape}.")
        embedded = np.asarray(self.transform(row[None], n_components, output))
        return np.asarray(embedded[0])

    def inverse_transform(self, Y: ArrayLike) -> Array:
        """Return the least-squares preimages of embedded rows, which is lossy.

        The result lies on the plane through the mean that the components span. Rows learned with
        normalize_input=True come back with unit norm.

        Parameters
        ----------
        Y : array-like of shape (n_samples, n_components)
            May have fewer columns than the model has components: a prefix.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
        """
        check_is_fitted(self)
        rows = check_array(as_matrix(Y), dtype=(np.float64, np.float32))
        components = self._first(rows.shape[1]).components_
        return self.preprocessing_.invert(rows, components, self.normalize)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return Recall@1: the share of rows whose nearest other row has the same label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_in_)
        y : array-like of shape (n_samples,)
        """
        Y = np.asarray(self.transform(X))
        labels = column_or_1d(y)
        check_consistent_length(Y, labels)
        nearest = nearest_neighbors(Y, 1, metric="cosine").indices[:, 0]
        return float(np.mean(labels[nearest] == labels))

    def codec(self, output: str) -> Codec:
        """Return the codec of the embedding, which encodes rows and decodes codes.

        Parameters
        ----------
        output : {"int8", "binary", "binary-rotated"}

        Returns
        -------
        Codec
            ``transform(queries) @ codec.decode(codes).T`` scores float queries against codes.
        """
        check_is_fitted(self)
        return make_codec(output, len(self.components_), self.code_ranges_)

    def similarity_quantile(self, similarity: ArrayLike, pairs: str = "random") -> Any:
        """Return the share of pairs of training rows that are less similar, in [0, 1].

        Parameters
        ----------
        similarity : float or array-like
            Cosine similarities of rows embedded in all dimensions; in the first few alone, pairs
            are more similar.
        pairs : {"random", "nearest"}, default="random"
            Random pairs of a sample of at most 2000 rows, or its rows and their nearest neighbor
            in the sample; in more rows, nearest neighbors are more similar.
        """
        check_is_fitted(self)
        if self.similarity_scale_ is None:
            raise ValueError(f"This model has no similarity quantiles{OLDER}")
        return self.similarity_scale_.quantile(similarity, pairs)

    def _first(self, size: int) -> Self:
        """Return the model with only its first components."""
        most = len(self.components_)
        if not isinstance(size, Integral) or not 1 <= size <= most:
            raise ValueError(
                f"n_components={size!r}: the model has 1 to {counted(most, 'component')}."
            )
        model = copy(self)
        model.components_ = self.components_[:size]
        return model

    def map_only(self, n_components: int | None = None) -> Self:
        """Return a copy that embeds and encodes rows, without anything about training rows."""
        check_is_fitted(self)
        model = copy(self) if n_components is None else self._first(n_components)
        if model.code_ranges_ is not None:
            if len(model.code_ranges_.low) > len(model.components_):
                model.similarity_scale_ = None  # pairs are more similar in fewer dimensions
            model.code_ranges_ = model.code_ranges_.first(len(model.components_))
        model.exemplars_ = model.exemplar_vectors_ = model.theta_ = None
        model.labels_, model.triplets_ = np.empty(0, np.intp), np.empty((0, 3), np.intp)
        model.triplet_weights_ = model.triplet_probabilities_ = np.empty(0)
        model.labeled_mask_ = np.empty(0, bool)
        return model

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """Predict the labels of new rows, as in `labels_`: that of the nearest exemplar."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        self._check_exemplars()
        Y, exemplars = (
            self.preprocessing_.embed(rows, self.components_, unit=True)
            for rows in (X, self.exemplar_vectors_.astype(float_dtype(X)))
        )
        return np.asarray(self.exemplars_.labels[nearest_exemplar(Y, exemplars)])

    def _check_exemplars(self, otherwise: str = "fit it again") -> None:
        if self.exemplars_ is None or self.exemplar_vectors_ is None:
            raise ValueError(
                "This model was saved without its exemplars, which are training rows: save it "
                f"with exemplars=True (rpml fit --keep-exemplars), or {otherwise}."
            )

    def suggest_labels(self, n: int = 10, X: ArrayLike | None = None) -> NDArray[np.intp]:
        """Suggest rows to label next, most informative first, as indices of training rows.

        These are rows in dense regions, far from every labeled row and from each other.

        Parameters
        ----------
        n : int, default=10
            Number of rows.
        X : array-like of shape (n_rows, n_features_in_), default=None
            The training rows. Without them only exemplars are ranked, followed by uncertain rows.
        """
        check_is_fitted(self)
        if self.exemplars_ is None:
            self._check_exemplars()
        if X is None:
            self._check_exemplars("pass the training rows (rpml suggest --features)")
        else:
            X = check_rows(self, X, reset=False)
            if len(X) != len(self.labels_):
                raise ValueError(
                    f"X has {counted(len(X), 'row')}, the model learned from "
                    f"{len(self.labels_)}: pass these."
                )
        return rank_candidates(n, self, X)

    def save(self, path: str | PathLike[str], exemplars: bool = False) -> None:
        """Write the model to one file (safetensors and JSON, no pickle).

        A file of that name is replaced, by one rename when the new one is complete.

        Parameters
        ----------
        path : str or Path
        exemplars : bool, default=False
            Store the exemplars, which are rows of the training data. `predict` and `update` need
            them, and `suggest_labels` if it is not given the rows.
        """
        check_is_fitted(self)
        save_model(self, path, exemplars=exemplars)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load a model written by `save`; the file need not be trusted."""
        return load_model(cls, path)

    def _set_fitted(
        self, result: FitResult, exemplar_vectors: Array | None = None, drift: float = 0.0
    ) -> None:
        self.preprocessing_ = result.whitening.preprocessing
        self.whitening_ = result.whitening.choice
        self.components_ = np.ascontiguousarray(result.L.T)
        self.labels_ = result.labels
        self.exemplars_ = result.exemplars  # None for an older model
        self.exemplar_vectors_ = exemplar_vectors
        self.labeled_mask_ = result.labeled_mask
        self.n_classes_ = result.n_classes
        self.triplets_ = result.triplets
        self.triplet_weights_ = result.weights
        self.triplet_probabilities_ = result.probabilities
        self.theta_ = result.theta
        self.history_ = result.optimum.history
        self.n_iter_ = result.optimum.n_iter
        self.converged_ = result.optimum.converged
        self.message_ = result.optimum.message
        self.drift_ = drift

    def _calibrate(self, sample: Array) -> None:
        """Set the ranges of the codes and the quantiles of the similarities from projections."""
        rows = unit_rows(sample) if self.normalize else sample
        self.code_ranges_ = AxisRanges.of(rows, self.normalize)
        self.similarity_scale_ = SimilarityScale.of(sample)

    def _warn(self) -> None:
        if not self.converged_:
            advice = "" if "callback" in self.message_ else ": raise max_iter or tol"
            if self.solver == "gd" and advice:
                advice += ", or lower learning_rate if the loss in history_ grows"
            warnings.warn(
                f"RPML stopped before it converged ({self.message_}) after "
                f"{counted(self.n_iter_, 'iteration')}{advice}.",
                ConvergenceWarning,
                stacklevel=3,
            )
        weights = self.triplet_weights_
        if self.weight != "constant" and len(weights) and weights.mean() < COLLAPSED:
            warnings.warn(
                f"The triplet weights have collapsed (mean {weights.mean():.2g}): the objective "
                "was lowered by ignoring the triplets, so the embedding is hardly trained. Set "
                "weight_ridge=0.01 or weight='constant'.",
                WeightCollapseWarning,
                stacklevel=3,
            )
