"""RPML, the scikit-learn estimator: validates, calls the pipeline, sets the fitted attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.graph.affinity import given_neighbors
from rpml.method.graph.neighbors import Neighbors
from rpml.method.local import LocalStages
from rpml.method.objective.weights import WEIGHTS
from rpml.method.pipeline import learn
from rpml.method.settings import FitInputs, FitSettings, fit_shape
from rpml.method.supervision.constraints import gather
from rpml.method.supervision.labels import as_labels
from rpml.method.triplets.samplers import SAMPLERS
from rpml.method.update import update
from rpml.method.whitening.groups import drop_singles
from rpml.model import Embedding
from rpml.runtime.context import Context, Store
from rpml.runtime.memory import WORKING_MEMORY, working_memory
from rpml.runtime.rows import float_dtype
from rpml.runtime.validation import check_rows, check_varied

Array = NDArray[np.floating]


class RPML(
    Embedding,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Learn a smaller linear embedding from unlabelled vectors.

    k-NN graph -> Authority Ascent Shift clustering -> pseudo-label triplets -> probabilistic,
    reweighted, smooth angular loss -> Riemannian conjugate gradient on Euclidean x Grassmann.

    Parameters
    ----------
    n_components : int or None, default=None
        Size of the embedding; None: 128, or fewer if X has fewer directions.
    weight : {"concat", "bilinear", "constant"}, default="concat"
        Weight of a triplet: the paper's RPML, its RPMLv1, or 1 for all.
    solver : {"cg", "stochastic", "gd"}, default="cg"
        Riemannian conjugate gradient over all triplets, mini-batches (sRPML), or the paper's
        fixed steps.
    training : {"auto", "always"}, default="auto"
        "auto" trains where label-free evidence supports it, else steps back (see `message_`).
    alpha : float, default=45.0
        Angle of the constraint in degrees.
    clustering : "aas", estimator or array, default="aas"
        Source of the pseudo-labels: Authority Ascent Shift with its defaults, any object with
        `fit_predict`, or an array with one label per row (-1: none).
    n_neighbors : int, default=50
        Neighbours in the graph of clustering="aas".
    triplets_per_anchor : int, default=4
        Triplets per row that shares its cluster with another.
    max_triplets : int, default=400000
        Most triplets in all.
    sampler : {"uniform", "semi-hard", "hard"}, default="uniform"
        How the negatives are drawn.
    init : {"pca", "random"} or (p, n_components) array, default="pca"
        Where L starts.
    normalize_input : bool, default=True
        Scale rows to unit norm before anything else, and again after whitening.
    whiten : "auto", float or None, default="auto"
        "auto" whitens the principal axes by the scatter within neighbourhoods, as far as the rank
        gain over PCA on unseen rows supports it, down to plain PCA. A number divides each axis by
        its standard deviation to that power: 0 is PCA, 1 whitening. None leaves the rows as they
        are, as the paper does.
    n_axes : int or None, default=None
        Principal axes kept with a numeric `whiten`; None: 256, or twice n_components if larger.
    weight_ridge : float or None, default=0.01
        Ridge on the weight parameters of the guarded objective, in which the weights keep their
        mean and so cannot collapse. None is the objective as printed.
    max_iter : int, default=100
        Most iterations of "cg" and "gd".
    tol : float, default=1e-05
        Relative decrease of the loss below which "cg" and "gd" stop.
    learning_rate : float, default=1.0
        Step of "gd", on the mean over triplets.
    batch_size, n_epochs, batch_steps : int, default=120, 10, 5
        Rows per mini-batch, epochs, and conjugate-gradient steps per batch of "stochastic".
    average : bool, default=True
        End each epoch of "stochastic" at the mean of its iterates instead of at the last one.
    mining : {"all", "semi-hard", "hard"}, default="all"
        Triplets of a mini-batch that "stochastic" draws from. Harder ones are often wrong:
        with many small, pure clusters a near negative may be of the same class.
    normalize : bool, default=True
        Unit-norm rows out of `transform`, so that all metrics rank alike; False: the projection.
    use_labels : bool, default=False
        Use `y` in `fit`; by default it is ignored, so that labels never leak.
    memory_limit : int or None, default=None
        Bytes the process may take: the fit works in smaller blocks, or refuses before it starts.
    callback : callable or None, default=None
        Called with a `Progress`; a true result stops the solver, which keeps what it has.
    random_state : int, RandomState or None, default=None
        Seed of triplets and initialisation.

    Attributes
    ----------
    components_ : (n_components, p) array
        Orthonormal rows in the preprocessed space, in prefix (matryoshka) order: the
        first k of them are a good embedding of k dimensions.
    preprocessing_ : Preprocessing
        What is applied before the projection.
    whitening_ : ScatterChoice or None
        What whiten="auto" chose and the evidence for it.
    labels_ : (n,) int array
        Labels of the training rows: pseudo-labels, and below `n_classes_` the classes of y in
        sorted order.
    labeled_mask_ : (n,) bool array
        Rows whose class was given.
    n_classes_ : int
    exemplars_ : Exemplars
        The middle row of each cluster: `rows`, `labels` and `sizes`.
    exemplar_vectors_ : (k, d) array
        Those rows of X, all that the model keeps of the data.
    drift_ : float
        After `update`: how far the embedding moved.
    triplets_ : (T, 3) int array
        Triplets trained on; a sample of fixed size for "stochastic".
    triplet_weights_, triplet_probabilities_ : (T,) arrays
        w and p of each triplet at the solution.
    theta_ : array or None
        Parameters of the weight function.
    history_ : dict of lists
        Loss and more per iteration (per epoch for "stochastic").
    n_iter_ : int
        Iterations (epochs) done.
    converged_ : bool
    message_ : str
        Why the solver stopped.
    n_features_in_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rpml import RPML
    >>> X, _ = load_digits(return_X_y=True)
    >>> RPML(n_components=16, random_state=0).fit_transform(X).shape
    (1797, 16)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "weight": [StrOptions(set(WEIGHTS))],
        "solver": [StrOptions({"cg", "stochastic", "gd"})],
        "training": [StrOptions({"auto", "always"})],
        "alpha": [Interval(Real, 0, 90, closed="neither")],
        "clustering": [StrOptions({"aas"}), HasMethods("fit_predict"), "array-like"],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "triplets_per_anchor": [Interval(Integral, 1, None, closed="left")],
        "max_triplets": [Interval(Integral, 1, None, closed="left")],
        "sampler": [StrOptions(set(SAMPLERS))],
        "init": [StrOptions({"pca", "random"}), "array-like"],
        "normalize_input": ["boolean"],
        "whiten": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both"), None],
        "n_axes": [Interval(Integral, 1, None, closed="left"), None],
        "weight_ridge": [Interval(Real, 0, None, closed="left"), None],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 3, None, closed="left")],
        "n_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_steps": [Interval(Integral, 1, None, closed="left")],
        "average": ["boolean"],
        "mining": [StrOptions({"all", "semi-hard", "hard"})],
        "normalize": ["boolean"],
        "use_labels": ["boolean"],
        "memory_limit": [Interval(Integral, 1, None, closed="left"), None],
        "callback": [callable, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        weight: str = "concat",
        solver: str = "cg",
        training: str = "auto",
        alpha: float = 45.0,
        clustering: Any = "aas",
        n_neighbors: int = 50,
        triplets_per_anchor: int = 4,
        max_triplets: int = 400_000,
        sampler: str = "uniform",
        init: Any = "pca",
        normalize_input: bool = True,
        whiten: float | str | None = "auto",
        n_axes: int | None = None,
        weight_ridge: float | None = 0.01,
        max_iter: int = 100,
        tol: float = 1e-5,
        learning_rate: float = 1.0,
        batch_size: int = 120,
        n_epochs: int = 10,
        batch_steps: int = 5,
        average: bool = True,
        mining: str = "all",
        normalize: bool = True,
        use_labels: bool = False,
        memory_limit: int | None = None,
        callback: Callable[..., Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.weight = weight
        self.solver = solver
        self.training = training
        self.alpha = alpha
        self.clustering = clustering
        self.n_neighbors = n_neighbors
        self.triplets_per_anchor = triplets_per_anchor
        self.max_triplets = max_triplets
        self.sampler = sampler
        self.init = init
        self.normalize_input = normalize_input
        self.whiten = whiten
        self.n_axes = n_axes
        self.weight_ridge = weight_ridge
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.batch_steps = batch_steps
        self.average = average
        self.mining = mining
        self.normalize = normalize
        self.use_labels = use_labels
        self.memory_limit = memory_limit
        self.callback = callback
        self.random_state = random_state

    @classmethod
    def paper(
        cls,
        n_components: int | None = None,
        weight: str = "concat",
        solver: str = "cg",
        **parameters: Any,
    ) -> Self:
        """Every setting as the paper prints it, nothing added, and so able to collapse.

        Random L, the printed objective, AAS with gamma = 100 and epsilon = 0.65 on a cosine graph
        of 50 neighbours, uniform triplets, no whitening, no output normalisation; rows are scaled
        to unit norm, as the R-MAC descriptors of the paper are.
        """
        aas = AuthorityAscentShift(50, 1e2, 0.65, metric="cosine", affinity="cosine")
        settings: dict[str, Any] = {
            "mining": "semi-hard",
            "whiten": None,
            "training": "always",
            "weight_ridge": None,
            "average": False,
            "normalize": False,
        }
        settings |= {"weight": weight, "solver": solver, "clustering": aas, "init": "random"}
        return cls(n_components, **{**settings, **parameters})

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: Any = None,
        neighbors: Any = None,
        must_link: Any = None,
        cannot_link: Any = None,
        comparisons: Any = None,
        conflicts: str = "raise",
        store: Store | None = None,
    ) -> Self:
        """Learn the embedding from the rows of X.

        Parameters
        ----------
        X : (n, d) array-like
            float32 or float64; float16 and integers are converted. Memory maps are read in blocks.
        y : (n,) array-like, optional
            Ignored unless use_labels=True; then -1, None or NaN mean "no label".
        groups : (n,) array-like, optional
            Rows with the same number or string show the same thing (augmented views, frames,
            photographs of one listing); -1 or None: no group. Ignored, and told so in
            `whitening_`, where they say less than the neighbours do.
        neighbors : pair of (n, k) arrays, optional
            Indices and cosine distances (Euclidean ones of unit rows) of the nearest rows,
            without the row itself: the graph to cluster instead of one that is searched, so that
            a sweep over settings searches once (`rpml.method.graph.neighbors.nearest_neighbors`).
        must_link, cannot_link : (m, 2) array-like, optional
            Indices of rows that are, or are not, of one class; a third column holds weights.
            Used whatever `use_labels` says.
        comparisons : (k, 3) array-like, optional
            Relative comparisons: indices a, b, c of rows, a being closer to b than to c; a fourth
            column holds weights.
        conflicts : {"raise", "weight"}
            What to do with constraints that contradict labels or each other: name them in an
            error, or leave out the lighter ones.
        store : Checkpoint, optional
            Finished stages are kept there and found again by a fit that is repeated.
        """
        self._validate_params()
        mapped = isinstance(X, np.memmap)
        X = check_rows(self, X, reset=True)
        check_varied(X)
        self._check_size(X.shape[1])
        blocks = working_memory(fit_shape(self, len(X), X, mapped), self.memory_limit)
        context = self._context(store, blocks)
        labels = as_labels(y, len(X)) if self.use_labels and y is not None else None
        supervision = gather(labels, len(X), must_link, cannot_link, comparisons, conflicts)
        inputs = FitInputs(
            self._groups(groups, len(X)),
            supervision,
            self._user_neighbors(neighbors, len(X), groups),
        )
        settings = self._settings()
        result = learn(LocalStages(settings, context), X, inputs, settings, context)
        self._set_fitted(result, np.asarray(X[result.exemplars.rows], float_dtype(X)))
        self._warn()
        return self

    def update(self, X_new: Any, X_old: Any = None, *, max_iter: int = 10) -> Self:
        """Learn from new rows without fitting anew; stored embeddings stay comparable.

        New rows join the clusters of the exemplars they are clustered with, or form new ones; a few
        steps of the solver follow, and the result is turned onto the embedding before.

        Parameters
        ----------
        X_new : (m, n_features_in_) array-like
        X_old : (n, n_features_in_) array-like, optional
            Rows seen before, all or some of them; a memory map is enough. At most 2000 of them,
            or two for every new row, are looked at, and let the whitening follow the data. Without
            them the whitening stays, and the exemplars stand for the old rows.
        max_iter : int
            Most iterations of the solver.

        Notes
        -----
        `labels_` then holds the labels of the rows looked at, those of X_new first, and `drift_`
        how far the embedding of these rows moved: the mean of 1 - cosine.
        """
        check_is_fitted(self)
        self._check_exemplars()
        X_new = check_rows(self, X_new, reset=False)
        X_old = None if X_old is None else check_rows(self, X_old, reset=False)
        settings = replace(self._settings(), n_components=len(self.components_), max_iter=max_iter)
        result, vectors, self.drift_ = update(self, X_new, X_old, settings, self._context())
        self._set_fitted(replace(result, n_classes=self.n_classes_), vectors)
        return self

    def _context(self, store: Store | None = None, blocks: int = WORKING_MEMORY) -> Context:
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return Context(seed, self.callback or (lambda progress: None), store, blocks)

    def _settings(self) -> FitSettings:
        return FitSettings(**{f.name: getattr(self, f.name) for f in fields(FitSettings)})

    def _groups(self, groups: Any, n: int) -> NDArray[np.intp]:
        if groups is None:
            return np.full(n, -1, np.intp)
        return drop_singles(as_labels(groups, n, "groups"))

    def _user_neighbors(self, neighbors: Any, n: int, groups: Any) -> Neighbors | None:
        if neighbors is None:
            return None
        if groups is not None:
            raise ValueError("neighbors cannot be given with groups, which are clustered as one.")
        checked = given_neighbors(*neighbors, metric="cosine")
        if len(checked.indices) != n:
            raise ValueError(f"neighbors are of {len(checked.indices)} rows, X has {n}.")
        return checked

    def _check_size(self, d: int) -> None:
        if self.n_components is not None and self.n_components > d:
            raise ValueError(
                f"n_components={self.n_components} must not exceed the {d} features of X."
            )

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
