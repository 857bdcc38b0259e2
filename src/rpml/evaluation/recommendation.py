"""Recommendation of raw vectors, PCA, whitening or RPML.

With labels, the Recall@1 on rows of held-out classes decides, otherwise the *rank gain*: how well a
method ranks neighbors found by other axes (docs/decisions/recommendation.md). The principal axes
are split into two disjoint halves, and the rows into two parts. The *held-out neighbors* of a row
are its nearest rows by one half of the axes. Every method is fitted to the other half of the axes
on one part of the rows, and ranks them on the other part. Its *rank gain* is how much log(1 + rank)
decreases relative to PCA. Noise in one half of the axes is independent of noise in the other, so a
method gains by retaining what rows really share. PCA is recommended unless another method is
clearly better.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from rpml.estimator import RPML
from rpml.estimator.description import separated_pairs
from rpml.estimator.knowledge import check_order, fit_knowledge, known_subset, nuisance_values
from rpml.evaluation.advice import Recommendation, advised, decide, recommend_from, too_little
from rpml.evaluation.codes import SizeRecommendation, recommend_size
from rpml.evaluation.comparison import Comparison, checked_size, compare
from rpml.evaluation.metrics.label_free import neighbors_kept
from rpml.evaluation.metrics.retrieval import checked_codes, checked_embedding
from rpml.evaluation.registry import (
    KNOWN,
    METHODS,
    PCA_FAMILY,
    REFERENCE,
    Transformer,
    chosen_methods,
)
from rpml.method.graph.heaps import nearest_others
from rpml.method.whitening.constants import JUDGED_NEIGHBORS, LEADING_AXES, MIN_AXES, MIN_ROWS
from rpml.method.whitening.evidence import NO_GAIN, ScatterChoice
from rpml.method.whitening.linear_map import principal_axes
from rpml.method.whitening.neighborhoods import columns, mean_log_ranks, projected, random_halves
from rpml.runtime.context import Json
from rpml.runtime.intervals import Interval, mean_interval
from rpml.runtime.rows import Array, Indices, RandomState, sorted_sample, to_common_scale
from rpml.runtime.threads import single_blas_thread

CANDIDATES = (*PCA_FAMILY, "rpml")
ADVISED_ROWS = 5000
RANKED_QUERIES = 1000  # of the rank gain


def recommend(
    X: ArrayLike,
    n_components: int | None = None,
    *,
    y: ArrayLike | None = None,
    methods: Sequence[str] = CANDIDATES,
    bytes: int | None = None,
    keep: float | None = None,
    nuisance: ArrayLike | None = None,
    queries: ArrayLike | None = None,
    random_state: RandomState = 0,
) -> Recommendation | SizeRecommendation:
    """Recommend a method, or the dimensions and the code for a number of bytes per vector.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Vectors; at most 5,000 random ones are used.
    n_components : int, default=None
        Size of the embedding; None means 128, or half the features if there are fewer. The raw
        vectors are recommended only if no size is given.
    y : array-like of shape (n_samples,), default=None
        Classes. With them, the methods are compared on held-out classes.
    methods : sequence of str, default=("pca", "half-whitened", "pca-whitened", "rpml")
        Methods to choose from.
    bytes : int, default=None
        Bytes per vector: recommend dimensions and a code instead.
    keep : float, default=None
        Recommend the fewest bytes that keep this share of the raw vectors' 10 nearest rows in the
        sample, or with y of their Recall@1.
    nuisance : array-like of shape (n_samples,) or (n_samples, n_columns), default=None
        As in `RPML.fit`: what does not matter. RPML with it is recommended if the evidence of its
        fit supports it; with `bytes` and `keep`, the trials and `fit` use it.
    queries : array-like of shape (n_queries, n_features), default=None
        Unlabeled queries, as in `RPML.fit`; with `bytes` and `keep`, also those whose 10 nearest
        rows are to be kept.
    random_state : int, RandomState instance or None, default=0
        Seed of the halves and the fits. RPML is judged by the evidence of its own fit (of more
        than 5,000 rows, of a fit to the sample).

    Returns
    -------
    Recommendation or SizeRecommendation
        `choice` is the method, `gain` its gain over PCA, `reasons` say why. For bytes:
        `n_components`, `output`, `estimator`, the `table` of sizes, and `fit(X)`, which returns
        the fitted model with its codebooks.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import rpml
    >>> rpml.recommend(load_digits().data, 8).choice in ("pca", "half-whitened", "rpml")
    True
    """
    check_order(X, queries)
    X = checked_embedding(X, "X")
    known = fit_knowledge(X, nuisance, queries)
    if bytes is not None or keep is not None:
        if n_components is not None:
            raise ValueError("bytes and keep choose the dimensions: leave out n_components.")
        seed = random_state  # an integer is that of `rpml fit --bytes`, too
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(2**31 - 1)
        known |= {"y": y}
        return recommend_size(X, bytes, keep=keep, known=known, random_state=int(seed))
    found, fits = _recommend(X, n_components, methods, random_state, {"y": y, **known})
    if found.choice in ("raw", REFERENCE):
        return found
    sample = _sample(X)
    rows, known = X[sample], known_subset(known, sample)
    model = fits.get(found.choice)
    if model is None:
        method, size = METHODS[found.choice], found.n_components
        model = method.fit(rows, None, size, random_state, known)[0]
    values = nuisance_values(known, len(rows)) if found.choice == KNOWN else None
    pairs = separated_pairs(rows, np.asarray(model.transform(rows)), sample, values)
    return replace(found, separated=tuple(pairs))


def recommend_fitted(
    X: ArrayLike,
    n_components: int | None,
    gain: Interval | None,
    methods: Sequence[str] = CANDIDATES,
    random_state: RandomState = 0,
    known: Json | None = None,
) -> Recommendation:
    """Recommend without labels, where RPML was fitted to X and its fit measured this rank gain.

    So the advice is about that fit. Without a rank gain, RPML is fitted.
    """
    X, known = checked_embedding(X, "X"), {**(known or {}), "y": None}
    return _recommend(X, n_components, methods, random_state, known, gain)[0]


def _sample(X: Array) -> Indices:
    return sorted_sample(len(X), ADVISED_ROWS, np.random.default_rng(0))


@single_blas_thread()
def _recommend(
    X: Array,
    n_components: int | None,
    methods: Sequence[str],
    random_state: RandomState,
    known: Json,
    own: Interval | None = None,
) -> tuple[Recommendation, dict[str, Transformer]]:
    """Recommend by y, which `known` has next to arguments of `RPML.fit`, or without labels.

    The fits of RPML that decided without labels are returned as well, by name.
    """
    size, sample = checked_size(n_components, X.shape[1]), _sample(X)
    names = tuple(dict.fromkeys(("raw", *(method.name for method in chosen_methods(methods)))))
    labels = None if known["y"] is None else checked_codes(known["y"], len(X))[sample]
    known = known_subset({name: given for name, given in known.items() if name != "y"}, sample)
    rows = to_common_scale(X[sample], as_they_are=True)[0]
    spectrum = principal_axes(rows, unit_input=True)
    n_axes = len(spectrum.variances)
    if len(rows) < MIN_ROWS or n_axes < MIN_AXES or size > n_axes:
        return too_little(len(rows), n_axes, size), {}
    W = projected(rows, np.arange(len(rows)), spectrum, True, n_axes)
    W *= np.sqrt(spectrum.variances).astype(W.dtype)
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    fits: dict[str, Transformer] = {}
    if labels is not None:
        table = compare(rows, labels, size, methods=names, seeds=(seed,), **known)
        found = recommend_from(table, n_components is None, tuple(known))
    else:
        others = [name for name in names if name != "rpml"]
        gains = rank_gains(W, others, size, np.random.default_rng(seed))
        if "rpml" in names:
            if own is None:
                fits["rpml"], choice = untrained_fit(rows, size, {}, random_state)
                own = choice.gain
            gains["rpml"] = own or NO_GAIN
        found = decide(gains, size, names, n_components is None)
        if known:
            fits[KNOWN], choice = untrained_fit(rows, size, known, random_state)
            assert choice.nuisance is not None
            reasons = (*found.reasons, f"{choice.nuisance.summary}.")
            if choice.nuisance.used:
                reasons = (advised(KNOWN, size, known), reasons[-1])
                clear: Json = {"choice": KNOWN, "certainty": "clear", "gain": None}
                found = replace(found, **clear, known=tuple(known))
            found = replace(found, reasons=reasons)
    return found.with_sizes(neighbors_kept(rows, W, size)), fits


def untrained_fit(
    X: Array, size: int, known: Json, random_state: RandomState
) -> tuple[RPML, ScatterChoice]:
    """Return a fit without its training, and its evidence, also of the knowledge."""
    with warnings.catch_warnings(action="ignore"):  # that no iteration converges
        model = RPML(size, random_state=random_state, max_iter=0).fit(X, **known)
    assert model.whitening_ is not None
    return model, model.whitening_


def rank_gains(
    W: Array, methods: Sequence[str], size: int, rng: np.random.Generator
) -> dict[str, Interval]:
    """Return the rank gain over PCA of each method: the mean decrease of log(1 + rank).

    `W` are the rows in principal coordinates, strongest axis first; `size` is the size of the
    embeddings. The 95% intervals are over the queries; PCA, the reference, is always included.
    """
    W = W[:, :LEADING_AXES]
    order = rng.permutation(len(W))
    seen, unseen = W[order[: len(W) // 2]], W[order[len(W) // 2 :]]
    queries = np.arange(min(RANKED_QUERIES, len(unseen)))
    half = random_halves(W.shape[1], rng)
    log_ranks = {name: np.zeros(len(queries)) for name in (REFERENCE, *methods)}
    for one, other in ((half, ~half), (~half, half)):
        held_out = nearest_others(columns(unseen, other), queries, JUDGED_NEIGHBORS)
        shown, asked = columns(seen, one), columns(unseen, one)
        room = max(1, min(size, int(one.sum()) // 2, len(seen) - 1))
        for name in log_ranks:
            with warnings.catch_warnings(action="ignore"):  # about fits to a part of the rows
                fitted = METHODS[name].build(room, 0).fit(shown)
            Z = fitted.transform(asked)
            log_ranks[name] += mean_log_ranks(Z, queries, held_out) / 2
    return {name: mean_interval(log_ranks[REFERENCE] - value) for name, value in log_ranks.items()}


def fitted_rank_gain(table: Comparison, n_components: int) -> Interval | None:
    """Return the rank gain that the fits of RPML in a comparison measured, the mean over seeds."""
    cells = [
        [cell["rank_gain"], cell["rank_gain_low"], cell["rank_gain_high"]]
        for cell in table.cells
        if (cell["method"], cell["asked"]) == ("rpml", n_components) and "rank_gain" in cell
    ]
    return Interval(*np.mean(cells, axis=0).tolist()) if cells else None
