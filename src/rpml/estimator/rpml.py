"""RPML, the scikit-learn estimator: validates, runs the pipeline, sets fitted attributes."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted

from rpml.estimator.embedding import Embedding
from rpml.estimator.fitted import calibrate, set_fitted, warn_of_training
from rpml.estimator.knowledge import CONSTRAINTS, check_order, fit_inputs
from rpml.io.checkpoint import Checkpoint
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.pipeline import learn_in_memory
from rpml.method.settings import search_memory
from rpml.method.update import update
from rpml.runtime.context import WORKING_MEMORY, Context, Json, PrintedProgress
from rpml.runtime.rows import Labels, check_rows, check_varied, float_dtype, to_common_scale
from rpml.runtime.threads import using_jobs


class RPML(
    Embedding,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Learn a smaller linear embedding from unlabeled vectors.

    Whitening, then, where evidence supports it: k-NN graph -> Authority Ascent Shift clustering ->
    pseudo-label triplets -> probabilistic, reweighted, smooth angular loss -> Riemannian conjugate
    gradient on Euclidean x Grassmann. Without evidence the embedding is PCA of rows scaled to unit
    norm. `outcome_` says which it is, `whitening_.reason` and `message_` why.

    Parameters
    ----------
    n_components : int, default=None
        Dimension of the embedding. None means 128, or fewer if X varies in fewer directions.
    weight : {"concat", "bilinear", "constant"}, default="concat"
        Weight function of the triplets: the paper's RPML, RPMLv1, or 1 for all.
    solver : {"cg", "stochastic", "gd"}, default="cg"
        Riemannian conjugate gradient over all triplets, mini-batches (sRPML), or the paper's
        updates with a fixed step.
    training : {"auto", "always"}, default="auto"
        "auto" trains on triplets where evidence supports it, and otherwise keeps the leading axes.
    alpha : float, default=45.0
        Angle of the constraint in degrees.
    clustering : "aas", estimator or array-like of shape (n_samples,), default="aas"
        Source of the pseudo-labels: Authority Ascent Shift, any object with `fit_predict`, or the
        pseudo-labels themselves (-1: none).
    n_neighbors : int, default=50
        Neighbors per row in the graph of clustering="aas".
    triplets_per_anchor : int, default=4
        Triplets per anchor, a row that shares its cluster with another row.
    max_triplets : int, default=400000
        Maximum number drawn from clusters, groups and labels; constraints add their own.
    sampler : {"uniform", "semi-hard", "hard"}, default="uniform"
        How negatives are sampled.
    init : {"pca", "random"} or ndarray of shape (p, n_components), default="pca"
        Initial L.
    normalize_input : bool, default=True
        Scale rows to unit norm first, and again after whitening. False divides all rows by one
        number instead, their typical norm, unless whiten=None.
    whiten : "auto", float or None, default="auto"
        "auto" whitens by the scatter within neighborhoods, as strongly as label-free evidence
        supports it; without evidence it is PCA. A number in [0, 1] divides each principal axis by
        that power of its standard deviation: 0 is PCA, 1 is whitening; such a fit trains only if
        training="always". None leaves the rows unchanged and always trains, as the paper does.
    center : float, default=1.0
        Share of the mean that is subtracted where nothing is whitened: whiten=0, or "auto" without
        evidence. Less keeps more of the raw neighbors, and keeps queries that look different nearer
        to documents; `rpml.recommend` takes 0.5 for codes.
    weight_ridge : float or None, default=0.01
        Ridge on the parameters of the weight function. Weights are divided by their mean, so they
        cannot collapse. None is the printed objective.
    max_iter, tol : int and float, default=100 and 1e-5
        Iterations of "cg" and "gd" at most, and the relative decrease of the loss to stop at.
    learning_rate : float, default=1.0
        Step of "gd", for the mean over triplets.
    batch_size, n_epochs, batch_steps : int, default=960, 3 and 3
        Rows per mini-batch, epochs, and conjugate-gradient steps per batch of "stochastic".
    average, mining : bool and {"all", "semi-hard", "hard"}, default=True and "all"
        Whether epochs of "stochastic" end at the mean of their iterates, and which triplets of a
        mini-batch it samples from.
    normalize : bool, default=True
        Scale the rows of the embedding to unit norm, so that cosine similarity, dot product and
        Euclidean distance give the same ranking.
    use_labels : bool, default=False
        Use `y` in `fit`. Otherwise it is ignored, so that labels never leak by accident.
    subsample : int or None, default=20000
        If there are more rows, neighbors, clusters and triplets come from a random sample of them;
        mean and principal axes come from all rows. Groups are sampled whole; rows with labels or
        constraints are all used. None: all rows.
    memory_limit : int, default=None
        Bytes the process may use. The fit works in smaller blocks, or raises an error.
    n_jobs : int, default=None
        Threads of `fit` and `transform`; -1: all cores, None: as OMP_NUM_THREADS allows.
    verbose : int, default=0
        1 prints a line per finished stage, 2 every step.
    callback : callable, default=None
        Called with a `Progress`; if it returns True, the solver stops with its current result.
    random_state : int, RandomState instance or None, default=None
        Seed of the evidence for the whitening, the triplets and the initialization.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, p)
        Orthonormal rows in the preprocessed space, in prefix (matryoshka) order: the first k are
        a good k-dimensional embedding.
    preprocessing_ : Preprocessing
        The linear map applied before the projection.
    whitening_ : ScatterChoice or None
        What whiten="auto" chose, with the evidence and the reason.
    outcome_ : {"PCA", "PCA, rescaled", "learned axes", "learned axes, trained"}
    n_iter_, converged_, message_ : int, bool, str
        Number of iterations (epochs), whether the solver converged, and why it stopped.
    code_ranges_, similarity_scale_ : AxisRanges, SimilarityScale
        Calibration of int8 codes and of `similarity_quantile`.
    drift_ : float
        How far the last `update` moved the embedding; 0 after a fit.
    n_samples_, n_features_in_, n_classes_ : int
        Number of rows and features of X, and of classes of y.
    labels_ : ndarray of shape (n_samples,)
        Pseudo-labels of the training rows; values below `n_classes_` are classes of y. Rows
        outside the `subsample` have -1. Like all that follow, only if the fit made them.
        `labeled_mask_` says whose class was given.
    exemplars_, exemplar_vectors_ : Exemplars, ndarray of shape (n_exemplars, n_features_in_)
        The medoid of each cluster: `rows`, `labels` and `sizes`, and those rows of X.
    triplets_, triplet_weights_, triplet_probabilities_ : ndarrays of n_triplets rows
        The training triplets (a sample for "stochastic"), and w and p of each at the solution.
    theta_, history_ : ndarray or None, dict of lists
        Parameters of the weight function; loss and other values per iteration (or epoch).

    See Also
    --------
    AuthorityAscentShift : The clustering behind the pseudo-labels.
    recommend : Whether to use RPML, PCA or whitening for given vectors.

    References
    ----------
    .. [1] Dutta et al.: "A Probabilistic approach for Learning Embeddings without Supervision".

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rpml import RPML
    >>> X, _ = load_digits(return_X_y=True)
    >>> RPML(n_components=16, random_state=0).fit_transform(X).shape
    (1797, 16)
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = CONSTRAINTS

    @classmethod
    def paper(
        cls,
        n_components: int | None = None,
        weight: str = "concat",
        solver: str = "cg",
        **parameters: object,
    ) -> Self:
        """Return an estimator with the settings printed in the paper, which may collapse.

        Random L, the printed objective, AAS with gamma = 100 and epsilon = 0.65 on a cosine graph
        of 50 neighbors, uniform triplets, no whitening, no output normalization; rows are scaled
        to unit norm, as the R-MAC descriptors of the paper are.
        """
        aas = AuthorityAscentShift(epsilon=0.65, metric="cosine", affinity="cosine", merge=None)
        settings: Json = {"weight": weight, "solver": solver, "clustering": aas}
        settings |= {"mining": "semi-hard", "whiten": None, "training": "always", "init": "random"}
        settings |= {"batch_size": 120, "n_epochs": 10, "batch_steps": 5, "average": False}
        settings |= {"weight_ridge": None, "normalize": False}
        return cls(n_components, **{**settings, **parameters})

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        pairs: ArrayLike | None = None,
        nuisance: ArrayLike | None = None,
        queries: ArrayLike | None = None,
        must_link: ArrayLike | None = None,
        cannot_link: ArrayLike | None = None,
        comparisons: ArrayLike | None = None,
        conflicts: str = "raise",
        store: Checkpoint | None = None,
    ) -> Self:
        """Learn the embedding from the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            float32 or float64; float16 and integers are converted. Memory maps are read in blocks.
            Also tensors of torch, and columns of vectors: pandas, polars, Arrow, Hugging Face.
        y : array-like of shape (n_samples,), default=None
            Ignored unless use_labels=True; then -1, None or NaN mean "no label".
        groups : array-like of shape (n_samples,), default=None
            Rows with the same number or string show the same instance (augmented views, frames,
            photographs of one listing); -1 or None: no group. Groups that carry less information
            than the neighbors are ignored; `whitening_.groups_ignored` has the reason.
        pairs : array-like of shape (n_pairs, 2), default=None
            Indices of rows that probably belong together (one session, one document, co-clicks);
            many may be wrong. They refine whiten="auto" by the estimated share of correct pairs,
            or are ignored; `whitening_.pairs` has the share and the reason.
        nuisance : array-like of shape (n_samples,) or (n_samples, n_columns), default=None
            What does not matter (language, camera, batch): categories, or floats with more than 20
            distinct values (length, age), also as a DataFrame; None, NaN and -1 are missing.
            Discounted where evidence supports it; `whitening_.nuisance` has the reason.
        queries : array-like of shape (n_queries, n_features), default=None
            Unlabeled queries; X are the documents. Judged as a nuisance is.
        must_link, cannot_link : array-like of shape (n_pairs, 2), default=None
            Indices of rows that are, or are not, of the same class; a third column holds weights.
            Used whether or not use_labels is set.
        comparisons : array-like of shape (n_comparisons, 3), default=None
            Relative comparisons: row a is closer to row b than to row c; a fourth column holds
            weights.
        conflicts : {"raise", "weight"}, default="raise"
            Raise an error for constraints that contradict labels or each other, or drop those of
            lower weight.
        store : Checkpoint, default=None
            Where finished stages are saved, and found by a repeated fit.

        Returns
        -------
        RPML
            The fitted estimator.
        """
        self._validate_params()
        check_order(X, queries)
        mapped, X = isinstance(X, np.memmap), check_rows(self, X, reset=True)
        check_varied(X)
        n, dtype = len(X), float_dtype(X)
        inputs = fit_inputs(
            self,
            X,
            y,
            groups=groups,
            pairs=pairs,
            nuisance=nuisance,
            queries=queries,
            must_link=must_link,
            cannot_link=cannot_link,
            comparisons=comparisons,
            conflicts=conflicts,
        )
        context = self._context(store, search_memory(self, n, X, mapped))
        rows, scale = to_common_scale(X, self.normalize_input or self.whiten is None)
        inputs = inputs.divided(scale)
        with using_jobs(self.n_jobs):
            result = learn_in_memory(rows, inputs, self, context)
        set_fitted(self, result.of_rows_times(scale), n, lambda some: X[some].astype(dtype))
        calibrate(self, result.sample)
        warn_of_training(self)
        return self

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None, **inputs: Any) -> Labels:
        """Fit and return `labels_`, or cluster the rows if the fit needed no clusters."""
        if "labels_" in vars(self.fit(X, y, **inputs)):
            return self.labels_
        return self.cluster_rows(check_rows(self, X, reset=False))[0]

    def update(
        self, X_new: ArrayLike, X_old: ArrayLike | None = None, *, max_iter: int = 10
    ) -> Self:
        """Learn from new rows without a new fit, and stay near the previous embedding.

        New rows join the clusters of the exemplars they are clustered with, or form new ones, by
        AAS if `clustering` is an array. A few iterations of the solver follow where evidence
        supports it, and the result is aligned with the previous embedding.

        Parameters
        ----------
        X_new : array-like of shape (n_new, n_features_in_)
        X_old : array-like of shape (n_old, n_features_in_), default=None
            Old rows, all or some of them, or a memory map. A sample of 2000, or of two per new row
            if that is more, is read to update the whitening. Without them the whitening stays the
            same, and the exemplars represent the old rows.
        max_iter : int, default=10
            Maximum number of iterations of the solver (epochs of "stochastic").

        Notes
        -----
        Afterwards `labels_`, `triplets_` and `exemplars_` are of the rows read, X_new first, and
        `drift_` is how far their embedding moved: the mean of 1 - cosine. Up to 0.05, vectors that
        the previous model embedded can be searched with new queries; above it, embed them again.
        """
        check_is_fitted(self)
        known = self._clustered()
        X_new = check_rows(self, X_new, reset=False)
        X_old = None if X_old is None else check_rows(self, X_old, reset=False)
        check_scalar(max_iter, "max_iter", Integral, min_val=0)
        settings = replace(self, n_components=len(self.components_), max_iter=max_iter)
        settings.n_epochs = min(self.n_epochs, max_iter)
        with using_jobs(self.n_jobs):
            result, X, drift = update(self, known, X_new, X_old, settings, self._context())
        set_fitted(self, result, len(X_new), X.__getitem__, drift)
        return self

    def _context(self, store: Checkpoint | None = None, blocks: int = WORKING_MEMORY) -> Context:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        report = self.callback or (lambda progress: None)
        report = PrintedProgress(int(self.verbose), report) if self.verbose else report
        return Context(seed, report, store, blocks)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
