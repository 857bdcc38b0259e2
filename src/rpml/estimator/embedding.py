"""Methods of a fitted model: embed rows, predict clusters, suggest labels, save and load."""

from __future__ import annotations

from copy import copy
from numbers import Integral
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils._pprint import _EstimatorPrettyPrinter
from sklearn.utils._set_output import _wrap_data_with_container
from sklearn.utils.validation import check_is_fitted

from rpml.estimator.description import result_line, result_table
from rpml.estimator.fitted import MADE_IF_ASKED, forget_training, rebuild_model, save_model
from rpml.io.container import read_model
from rpml.method.calibration import AxisRanges, SimilarityScale
from rpml.method.clustering.pseudo_labels import (
    Exemplars,
    as_clusterer,
    find_exemplars,
    pseudo_labels,
)
from rpml.method.codes import CODEBOOK_ROWS, Codec, ProductCodec, learn_codebooks, make_codec
from rpml.method.graph.heaps import nearest_rows
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.knowledge.suggest import Candidates, rank_candidates
from rpml.method.settings import FitSettings
from rpml.method.whitening.evidence import ScatterChoice
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.errors import InputError, counted
from rpml.runtime.rows import (
    AnyArray,
    Array,
    Floats,
    Indices,
    Integers,
    Labels,
    Mask,
    as_matrix,
    check_rows,
    float_dtype,
    sorted_sample,
)
from rpml.runtime.threads import using_jobs

OLDER = ", being from an older rpml: fit it again."


class Embedding(FitSettings):
    """Base of the estimators.

    A separate class, because scikit-learn would name the output columns of a `transform` that a
    transformer defines itself after all components, whatever its size.
    """

    preprocessing_: Preprocessing
    whitening_: ScatterChoice | None
    components_: Array
    n_samples_: int
    n_classes_: int
    n_iter_: int
    converged_: bool
    message_: str
    drift_: float
    labels_: Labels
    labeled_mask_: Mask
    exemplars_: Exemplars
    exemplar_vectors_: Array
    triplets_: Integers
    triplet_weights_: Array
    triplet_probabilities_: Array
    theta_: Array | None
    history_: dict[str, list[float]]
    _counts: dict[str, int]
    _sample: dict[str, Any]
    """Training rows of a fit that made no clusters; they are clustered once somebody asks."""
    code_ranges_: AxisRanges | None
    product_codec_: ProductCodec | None = None
    similarity_scale_: SimilarityScale | None
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]

    def __getattr__(self, name: str) -> Any:
        if name not in MADE_IF_ASKED or "components_" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if "triplets_" in vars(self):
            raise AttributeError(
                f"{name} does not exist, because this fit drew its triplets across the values of a "
                "nuisance, not from clusters. Cluster rows with AuthorityAscentShift."
            )
        raise AttributeError(
            f"{name} does not exist, because this fit had no use for clusters and triplets "
            f"({self.outcome_}) or its file holds none. Fit with training='always' to make them, "
            "save with training=True to keep them, or cluster rows with AuthorityAscentShift."
        )

    @property
    def outcome_(self) -> str:
        """What the fit came to; `whitening_.reason` says why."""
        if self.n_iter_ > 0:
            return "learned axes, trained"
        choice = self.whitening_
        if choice is not None and np.isfinite(choice.shrinkage):
            return "learned axes"
        rescaled = bool(self.whiten) if choice is None else choice.whitens
        return "PCA, rescaled" if rescaled else "PCA"

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return scikit-learn's text, of a fitted model with the result as a comment."""
        text = str(super().__repr__(N_CHAR_MAX))  # type: ignore[call-arg]
        return f"{text}  # {result_line(self)}" if "components_" in vars(self) else text

    def _html_repr(self) -> str:
        """Return scikit-learn's diagram, of a fitted model below a table of the result."""
        diagram = str(super()._html_repr())  # type: ignore[misc]
        return result_table(self) + diagram if "components_" in vars(self) else diagram

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
        output : {"float", "int8", "int4", "int2", "binary", "pq"}, default="float"
            Return codes instead of floats: 8, 4, 2 bits or one bit per component, or one byte per
            group of components ("pq", after `learn_codebooks`). See `codec`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Unit-norm rows unless normalize=False. int8 codes have the same shape; all others are
            packed bytes (uint8), the first component in the most significant bits of the first.
        """
        check_is_fitted(self)
        model = self if n_components is None else self._first(n_components)
        codec = None if output == "float" else model.codec(output)
        rows = check_rows(self, X, reset=False, finite=False)
        with using_jobs(self.n_jobs):
            Y = self.preprocessing_.embed(rows, model.components_, self.normalize, codec)
        return Y if codec is not None else _wrap_data_with_container("transform", Y, X, model)

    def transform_one(
        self, x: ArrayLike, n_components: int | None = None, output: str = "float"
    ) -> AnyArray:
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
        output : {"int8", "int4", "int2", "binary", "pq"}

        Returns
        -------
        Codec
            ``transform(queries) @ codec.decode(codes).T`` scores float queries against codes.
        """
        check_is_fitted(self)
        size = len(self.components_)
        return make_codec(output, size, self.code_ranges_, self.product_codec_, self.normalize)

    @property
    def codebooks_(self) -> Floats | None:
        """The centroids of ``output="pq"``: (n_bytes, 256, axes per byte), the layout of faiss."""
        return None if self.product_codec_ is None else self.product_codec_.centroids

    def learn_codebooks(self, X: ArrayLike, n_bytes: int, random_state: int = 0) -> Self:
        """Learn the codebooks of ``output="pq"`` and their rotation from the embedding of rows.

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
            With `codebooks_`.
        """
        check_is_fitted(self)
        rng = np.random.default_rng(random_state)
        rows = check_rows(self, X, reset=False, finite=False)
        sample = rows[sorted_sample(len(rows), CODEBOOK_ROWS, rng)]
        Y = self.preprocessing_.embed(sample, self.components_, self.normalize)
        self.product_codec_ = learn_codebooks(Y, n_bytes, rng)
        return self

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
            raise InputError(
                f"n_components={size!r}: the model has 1 to {counted(most, 'component')}."
            )
        model = copy(self)
        model.components_ = self.components_[:size]
        if size < most:
            model.product_codec_ = None  # it is of all components
        return model

    def map_only(self, n_components: int | None = None) -> Self:
        """Return a copy that embeds and encodes rows, without anything about training rows."""
        check_is_fitted(self)
        model = copy(self) if n_components is None else self._first(n_components)
        if model.code_ranges_ is not None:
            if len(model.code_ranges_.low) > len(model.components_):
                model.similarity_scale_ = None  # pairs are more similar in fewer dimensions
            model.code_ranges_ = model.code_ranges_.first(len(model.components_))
        forget_training(model)
        model.n_samples_ = 0
        return model

    def predict(self, X: ArrayLike) -> Indices:
        """Predict the labels of new rows, as in `labels_`: that of the nearest exemplar.

        If the fit made no clusters, a sample of its rows is clustered now.
        """
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
        exemplars, vectors = self._clustered()
        middles = self._unit_embedding(vectors.astype(float_dtype(X)))
        nearest = nearest_rows(self._unit_embedding(X), middles)[1][:, 0]
        return np.asarray(exemplars.labels[nearest])

    def _unit_embedding(self, X: Array) -> Array:
        return self.preprocessing_.embed(X, self.components_, unit=True)

    def cluster_rows(self, X: Array) -> tuple[Labels, Exemplars]:
        """Cluster rows as a fit would: by the model's clustering, in its preprocessed space."""
        Z = self.preprocessing_.apply(X)
        labels = pseudo_labels(Z, as_clusterer(self.clustering, min(self.n_neighbors, len(Z) - 1)))
        return labels, find_exemplars(Z @ self.components_.T.astype(Z.dtype), labels, labels)

    def _clustered(self, otherwise: str = "fit it again") -> tuple[Exemplars, Array]:
        """Return the exemplars and their vectors; of a fit that made none, those of its sample."""
        fitted = vars(self)
        if "exemplars_" in fitted and "exemplar_vectors_" in fitted:
            return self.exemplars_, self.exemplar_vectors_
        if "_sample" in fitted:
            sample = self._sample
            if "exemplars" not in sample:
                rows, vectors = sample["rows"], sample["vectors"]
                made = self.cluster_rows(vectors)[1]
                sample["exemplars"] = Exemplars(rows[made.rows], made.labels, made.sizes)
                sample["vectors"] = vectors[made.rows]
            return sample["exemplars"], sample["vectors"]
        raise ValueError(
            "This model was saved without its exemplars, which are training rows: use rpml fit "
            f"--keep-exemplars (in Python exemplars=True), or {otherwise}."
        )

    def suggest_labels(self, n: int = 10, X: ArrayLike | None = None) -> Indices:
        """Suggest rows to label next, most informative first, as indices of training rows.

        These are rows in dense regions, far from every labeled row and from each other.

        Parameters
        ----------
        n : int, default=10
            Number of rows.
        X : array-like of shape (n_rows, n_features_in_), default=None
            The training rows; after an update, the new rows, which are then suggested. Without
            them only exemplars are ranked, followed by uncertain rows.
        """
        check_is_fitted(self)
        if X is not None:
            X = check_rows(self, X, reset=False)
            if len(X) != self.n_samples_:
                raise ValueError(
                    f"X has {counted(len(X), 'row')}, the model learned from "
                    f"{self.n_samples_}: pass these."
                )
        fitted = vars(self)
        if X is None:
            exemplars, vectors = self._clustered("pass the training rows (rpml suggest --features)")
        elif "exemplars_" in fitted:
            exemplars = self.exemplars_
            vectors = fitted.get("exemplar_vectors_", X[:0])
            vectors = vectors if len(vectors) else X[exemplars.rows]
        else:
            exemplars = self.cluster_rows(X)[1]
            vectors = X[exemplars.rows]
        known = Candidates(
            count=self.n_samples_,
            exemplars=exemplars,
            middles=self._unit_embedding(vectors),
            rows=None if X is None else self._unit_embedding(X),
            labels=fitted.get("labels_", np.full(self.n_samples_, -1)),
            labeled=fitted.get("labeled_mask_", np.zeros(self.n_samples_, bool)),
            triplets=fitted.get("triplets_", np.empty((0, 3), np.intp)),
            probabilities=fitted.get("triplet_probabilities_", np.empty(0)),
        )
        return rank_candidates(n, known)

    def save(
        self, path: str | PathLike[str], exemplars: bool = False, training: bool = False
    ) -> None:
        """Write the model to one file (safetensors and JSON, no pickle).

        A file of that name is replaced, by one rename when the new one is complete. By default it
        holds the map from rows to embeddings in single precision, and what codes need. Loaded
        from it, `components_` is the identity and `preprocessing_` the whole map.

        Parameters
        ----------
        path : str or Path
        exemplars : bool, default=False
            Store the exemplars, which are rows of the training data. `predict` and `update` need
            them, and `suggest_labels` if it is not given the rows.
        training : bool, default=False
            Store `labels_`, `triplets_` and their weights. Labels are also stored if some were
            given or if the clustering is an object or an array.
        """
        check_is_fitted(self)
        save_model(self, path, exemplars=exemplars, training=training)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Load a model written by `save`; the file need not be trusted."""
        return rebuild_model(cls, *read_model(path), path)


# it breaks long lists of parameters only where it knows the method
_EstimatorPrettyPrinter._dispatch[Embedding.__repr__] = _EstimatorPrettyPrinter._pprint_estimator
