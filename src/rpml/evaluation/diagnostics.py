"""Label-free diagnostics of a fit, each with a line on how to read it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from rpml.estimator import RPML
from rpml.evaluation.metrics.label_free import (
    LABEL_FREE,
    NEAREST,
    label_free_figures,
    neighbor_overlap,
    spectrum,
)
from rpml.method.clustering.pseudo_labels import as_clusterer, pseudo_labels
from rpml.method.graph.heaps import nearest_rows
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.intervals import Interval, interval
from rpml.runtime.rows import Array, Indices, Integers, RandomState, check_rows, unit_rows

DIAGNOSED_ROWS = 5000
HALVINGS = 3
_TEXTS = {
    "clusters": (
        "Pseudo-clusters of two or more rows",
        "groups that the fit treats as one class; singletons are counted below",
    ),
    "cluster_size": ("Median size", "of the pseudo-clusters of two or more rows"),
    "largest_cluster": ("Largest pseudo-cluster", "near 100 % means that nothing was separated"),
    "singletons": (
        "Singletons",
        "rows in no pair contribute no triplets; above half, few rows decide the fit",
    ),
    "stability": (
        "Stability of the pseudo-clusters",
        "do random halves of the rows give the same partition? 1: yes, 0: chance; mean and range, "
        f"{HALVINGS} tries",
    ),
    "triplets": ("Triplets", "nothing could be learned from"),
    "weights": (
        "Triplet weights",
        "mean and the middle 80 %; a mean near 0 means that the triplets were ignored",
    ),
    "triplets_used": (
        "Triplets that count",
        "100 %: all count alike; a low share means that few of them decide",
    ),
    "hard_triplets": (
        "Hard triplets",
        "triplets far from satisfied (probability below 1/4, the best being 1/2)",
    ),
    "seeds": (
        "Agreement between seeds",
        "share of a row's 10 nearest that a fit with another seed finds too",
    ),
    **{key: (title, reading) for key, (title, reading, _) in LABEL_FREE.items()},
}
"""Title and meaning of each diagnostic."""


@dataclass(frozen=True)
class Diagnostic:
    """A figure, how it is shown, and what it means."""

    key: str
    title: str
    value: float
    shown: str
    meaning: str
    concern: bool = False
    """True if the figure needs attention."""
    interval: Interval | None = None
    """The 95% interval of an estimate; counts of the fit itself have none."""


class Diagnostics(tuple[Diagnostic, ...]):
    """Diagnostics of a fit, shown one per line."""

    __slots__ = ()

    def __repr__(self) -> str:
        width = max((len(d.title) for d in self), default=0)
        lines = (f"{d.title:<{width}}  {d.shown}{'  (!)' if d.concern else ''}" for d in self)
        return "\n".join(lines)


def diagnose(
    model: RPML, X: Array, *, refits: int = 1, random_state: RandomState = 0
) -> Diagnostics:
    """Compute all label-free diagnostics of a fitted model; figures in brackets are 95% intervals.

    Parameters
    ----------
    model : RPML
        A fitted model.
    X : ndarray of shape (n_samples, n_features)
        The training rows, or others like them; at most 5,000 random ones are used.
    refits : int, default=1
        Fits with other seeds, for the agreement between seeds; 0 omits it.
    random_state : int, RandomState or None, default=0
        Seed of samples and refits.

    Returns
    -------
    tuple of Diagnostic
        Printed as a table; (!) marks what needs attention.
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    check_is_fitted(model)
    rows = check_rows(model, X, reset=False)
    if len(rows) < 3:
        raise ValueError(f"Diagnostics need at least 3 rows, X has {len(rows)}.")
    rows = rows[np.sort(rng.permutation(len(rows))[:DIAGNOSED_ROWS])]
    labels = vars(model).get("labels_")
    if labels is None:
        labels = _labels(model, model.preprocessing_.apply(rows))
    diagnostics = [
        *of_clusters(labels),
        of_stability(model, rows, rng),
        *of_triplets(model),
        *of_whitening(model),
        *of_neighbors(rows, _embedded(model, rows), rng),
    ]
    if refits:
        diagnostics.append(of_seeds(model, rows, refits, rng))
    return Diagnostics(diagnostics)


def of_clusters(labels: Integers) -> tuple[Diagnostic, ...]:
    """Return number and size of the clusters, and the share of single rows."""
    sizes = np.unique(labels[labels >= 0], return_counts=True)[1]
    n, together = max(1, len(labels)), sizes[sizes > 1]
    alone = 1 - float(together.sum()) / n
    largest = float(sizes.max(initial=0)) / n
    typical = float(np.median(together)) if len(together) else 0.0
    return (
        _diagnostic("clusters", float(len(together)), f"{len(together):,}", len(together) < 2),
        _diagnostic("cluster_size", typical, f"{typical:g} {'row' if typical == 1 else 'rows'}"),
        _diagnostic("largest_cluster", largest, f"{largest:.1%} of the rows", largest > 0.5),
        _diagnostic("singletons", alone, f"{alone:.0%}", alone > 0.5),
    )


def of_stability(model: RPML, X: Array, rng: np.random.Generator) -> Diagnostic:
    """Return how similarly two disjoint halves of the rows are clustered (prediction strength).

    Each half is clustered separately; the rows of one get the label of their nearest row in the
    other, and these labels are compared with their own. Overlapping resamples would not do: they
    agree even on clusters of pure noise.
    """
    if not _is_repeatable(model.clustering):
        return _unknown("stability", "the clustering was given, or is not in the model's file")
    Z = model.preprocessing_.apply(X)
    scores = []
    for _ in range(HALVINGS):
        order = rng.permutation(len(Z))
        one, two = Z[order[: len(Z) // 2]], Z[order[len(Z) // 2 :]]
        own, others = _labels(model, one), _labels(model, two)
        scores.append(adjusted_rand_score(own, others[nearest_rows(one, unit_rows(two))[1][:, 0]]))
    value = float(np.mean(scores))
    shown = f"{value:.2f} ({min(scores):.2f} to {max(scores):.2f})"
    return _diagnostic("stability", value, shown, value < 0.1)


def _labels(model: RPML, Z: Array) -> Indices:
    clusterer = as_clusterer(model.clustering, min(model.n_neighbors, len(Z) - 1))
    with warnings.catch_warnings(action="ignore"):  # the fit has warned already
        return pseudo_labels(Z, clusterer)


def _is_repeatable(setting: object) -> bool:
    """Whether a clustering or init applies to other rows: neither an array nor text of a file."""
    if isinstance(setting, str):
        return not setting.startswith("<")
    return hasattr(setting, "fit_predict")


def _unknown(key: str, reason: str) -> Diagnostic:
    return Diagnostic(key, _TEXTS[key][0], float("nan"), "not measured", reason)


def of_triplets(model: RPML) -> tuple[Diagnostic, ...]:
    """Return the distribution of the learned weights and probabilities of the triplets."""
    if not hasattr(model, "triplet_weights_"):  # not trained
        return ()
    w = np.asarray(model.triplet_weights_, float)
    if len(w) == 0:
        return (_diagnostic("triplets", 0.0, "none", True),)
    mean = float(w.mean())
    share = float(w.sum() ** 2 / (len(w) * max(float((w**2).sum()), 1e-300)))
    low, high = np.quantile(w, [0.1, 0.9])
    hard = float((np.asarray(model.triplet_probabilities_) < 0.25).mean())
    return (
        _diagnostic("weights", mean, f"{mean:.2f} ({low:.2f} to {high:.2f})", mean < 0.05),
        _diagnostic("triplets_used", share, f"{share:.0%}", share < 0.1),
        _diagnostic("hard_triplets", hard, f"{hard:.0%}", hard > 0.5),
    )


def of_whitening(model: RPML) -> tuple[Diagnostic, ...]:
    """Return how strongly the rows were whitened, and why."""
    choice = model.whitening_
    if choice is None or not choice.evidence:
        return ()
    gain = max(choice.evidence.values())
    reason = choice.reason or f"by {choice.source}"
    return (Diagnostic("whitening", "Whitening", gain, choice.strength, reason),)


def of_neighbors(X: Array, Z: Array, rng: np.random.Generator) -> tuple[Diagnostic, ...]:
    """Return the changes of neighborhoods, effective rank and hubs from X to Z."""
    k = min(NEAREST, len(Z) - 1)
    before, after = (nearest_neighbors(rows, k, metric="cosine").indices for rows in (X, Z))
    old, new = (
        label_free_figures(before, near, spectrum(rows)[1], rng)
        for near, rows in ((before, X), (after, Z))
    )
    concerns = {
        "effective_rank": new["effective_rank"].value < 0.1 * Z.shape[1],
        "hubness": new["hubness"].value > max(2.0, 1.5 * old["hubness"].value),
        "antihub_rate": new["antihub_rate"].value > max(0.1, 1.5 * old["antihub_rate"].value),
    }
    kept = _estimated("neighbors_kept", [new["neighbors_kept"]], False)
    return kept, *(_estimated(key, [old[key], new[key]], worry) for key, worry in concerns.items())


def _diagnostic(key: str, value: float, shown: str, concern: bool = False) -> Diagnostic:
    title, meaning = _TEXTS[key]
    return Diagnostic(key, title, value, shown, meaning, concern)


def _estimated(key: str, figures: Sequence[Interval], concern: bool) -> Diagnostic:
    """Return a diagnostic of the figure alone, or of those before and after."""
    style = LABEL_FREE[key][2] if key in LABEL_FREE else ".1%"
    ends = [[format(v, style) for v in (f.value, f.low, f.high)] for f in figures]
    shown = " -> ".join(f"{value} ({low} to {high})" for value, low, high in ends)
    return replace(_diagnostic(key, figures[-1].value, shown, concern), interval=figures[-1])


def of_seeds(model: RPML, X: Array, refits: int, rng: np.random.Generator) -> Diagnostic:
    """Return whether fits with different seeds give the same neighbors."""
    if not (_is_repeatable(model.clustering) and _is_repeatable(model.init)):
        return _unknown("seeds", "a given array or object cannot be repeated on other rows")
    k = min(NEAREST, len(X) - 1)
    neighbors = []
    for _ in range(refits + 1):
        seed = int(rng.integers(2**31 - 1))
        refit = clone(model).set_params(random_state=seed, callback=None, use_labels=False)
        with warnings.catch_warnings(action="ignore"):
            refit.fit(X)
        neighbors.append(nearest_neighbors(_embedded(refit, X), k, metric="cosine").indices)
    shared = np.mean([neighbor_overlap(neighbors[0], other, k) for other in neighbors[1:]], axis=0)
    share = interval(shared, rng)
    return _estimated("seeds", [share], share.value < 0.5)


def _embedded(model: RPML, X: Array) -> Array:
    """Return the embedding as an array, whatever container the model returns."""
    return model.preprocessing_.embed(X, model.components_, model.normalize)
