"""Recommendation of raw vectors, PCA, whitening or RPML.

With labels, the Recall@1 on rows of held-out classes decides, otherwise the rank gain (see
`rpml.evaluation.rank_gain`); labels were only used to validate that rule
(docs/decisions/recommendation.md). PCA is recommended unless another method is clearly better.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from rpml.evaluation.comparison.run import checked_size, compare
from rpml.evaluation.comparison.table import Comparison, html_table
from rpml.evaluation.metrics._checks import checked_codes, checked_embedding
from rpml.evaluation.metrics.label_free import neighbors_kept
from rpml.evaluation.rank_gain import rank_gains
from rpml.evaluation.registry import METHODS, PCA_FAMILY, REFERENCE, chosen_methods
from rpml.evaluation.sizes import SizeRecommendation, recommend_size
from rpml.method.settings import FitInputs
from rpml.method.whitening.calibration import expected_gain
from rpml.method.whitening.choice import scatter_rows
from rpml.method.whitening.evidence import chosen_rank_gain, judged_rows
from rpml.method.whitening.groups import no_groups
from rpml.method.whitening.linear_map import Spectrum, principal_axes
from rpml.method.whitening.neighborhoods import coordinates, n_leading_axes
from rpml.runtime.blas import single_blas_thread
from rpml.runtime.context import Context
from rpml.runtime.intervals import Interval
from rpml.runtime.rows import Array, RandomState, sorted_sample, to_common_scale, unit_rows
from rpml.runtime.wording import counted

CANDIDATES = (*PCA_FAMILY, "rpml")
PRICES = {"half-whitened": 0.05, "pca-whitened": 0.15}
"""Rank gain by which a method has to lead. RPML needs none: without evidence it is PCA."""
CLEARLY = 0.05  # lead in rank gain below which the runner-up may be as good
RAW_PRICE = 0.05  # rank gain over the best smaller embedding that justifies the raw vectors
MAX_ROWS = 5000
MIN_ROWS, MIN_AXES = 100, 8


@dataclass(frozen=True)
class Recommendation:
    """The recommended method, its gain over PCA, and the reasons."""

    choice: str
    """Name of a method of `rpml.evaluation.registry`."""
    n_components: int
    """Size of the embedding."""
    certainty: str
    """"clear", "close" if the runner-up may be as good, "unknown" if too little was measured."""
    gain: Interval | None = None
    """Gain in Recall@1 over PCA: with labels measured with a 95% interval, otherwise what 80% of
    other sets gained at such a rank gain. None if unknown."""
    uses_labels: bool = False
    """Whether labels decided."""
    evidence: dict[str, Interval] = field(default_factory=dict)
    """Per method, Recall@1 with labels and the rank gain over PCA without, with 95% intervals."""
    neighbors_kept: dict[int, Interval] = field(default_factory=dict)
    """Per number of dimensions, the share of the raw vectors' 10 nearest neighbors that stay among
    the 10 nearest after PCA, with its 95% interval."""
    reasons: tuple[str, ...] = ()
    """Sentences; the first one is the advice."""

    def estimator(self, random_state: RandomState = None) -> BaseEstimator:
        """Return the recommended method, ready to fit."""
        return METHODS[self.choice].build(self.n_components, random_state)

    @property
    def next_step(self) -> str:
        """The line of Python that follows the advice."""
        if self.choice in ("rpml", REFERENCE):  # without evidence for more, a fit is PCA
            return f"rpml.RPML({self.n_components}).fit(X)"
        raw = "keep the vectors as they are"
        asked = f"rpml.recommend(X, {self.n_components}).estimator().fit(X)"
        return raw if self.choice == "raw" else asked

    def with_sizes(self, shares: dict[int, Interval]) -> Recommendation:
        """Add the share of neighbors that each number of dimensions keeps."""
        listed = "; ".join(
            f"{counted(size, 'dimension')} {share.value:.1%} ({100 * share.low:.1f} "
            f"to {100 * share.high:.1f})"
            for size, share in shares.items()
        )
        sentence = f"Of the 10 nearest neighbors, PCA retains (95% intervals): {listed}."
        return replace(self, neighbors_kept=shares, reasons=(*self.reasons, sentence))

    def __str__(self) -> str:
        return " ".join([*self.reasons, f"Next: {self.next_step}"])

    def _repr_html_(self) -> str:
        advice, *reasons = (html.escape(reason) for reason in self.reasons or (self.choice,))
        figure = "Recall@1" if self.uses_labels else "rank gain over PCA"
        table = [
            (METHODS[name].title, f"{gain.value:+z.3f}", f"{gain.low:+z.3f} to {gain.high:+z.3f}")
            for name, gain in self.evidence.items()
        ]
        shown = html_table([("method", figure, "95% interval"), *table]) if table else ""
        step = f"Next: <code>{self.next_step}</code>"
        return f"<p><b>{advice}</b> {' '.join(reasons)} {step}</p>{shown}"


@overload
def recommend(
    X: ArrayLike,
    n_components: int | None = ...,
    *,
    y: ArrayLike | None = ...,
    methods: Sequence[str] = ...,
    random_state: RandomState = ...,
) -> Recommendation: ...
@overload
def recommend(
    X: ArrayLike,
    *,
    bytes: int | None = ...,
    keep: float | None = ...,
    queries: ArrayLike | None = ...,
    y: ArrayLike | None = ...,
    random_state: RandomState = ...,
) -> SizeRecommendation: ...
def recommend(
    X: ArrayLike,
    n_components: int | None = None,
    *,
    y: ArrayLike | None = None,
    methods: Sequence[str] = CANDIDATES,
    bytes: int | None = None,
    keep: float | None = None,
    queries: ArrayLike | None = None,
    random_state: RandomState = 0,
) -> Recommendation | SizeRecommendation:
    """Recommend a method for vectors, or the dimensions and the code for a number of bytes.

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
        Bytes per vector: recommend dimensions times bits instead.
    keep : float, default=None
        Recommend the fewest bytes that keep this share of the raw vectors' 10 nearest rows, or
        with y of their Recall@1.
    queries : array-like of shape (n_queries, n_features), default=None
        Real queries, whose 10 nearest rows `bytes` and `keep` are to keep.
    random_state : int, RandomState instance or None, default=0
        Seed of the sample, the halves and the fits. RPML with the same seed is judged by the
        evidence of its own fit (of more than 5,000 rows, on the principal axes of a sample).

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
    if bytes is not None or keep is not None:
        if n_components is not None:
            raise ValueError("bytes and keep choose n_components: leave it out.")
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        return recommend_size(X, bytes, keep=keep, queries=queries, y=y, random_state=seed)
    if queries is not None:
        raise ValueError("queries are for bytes and keep.")
    return _recommend(X, n_components, y, methods, random_state)


def recommend_fitted(
    X: ArrayLike,
    n_components: int | None,
    gain: Interval | None,
    methods: Sequence[str] = CANDIDATES,
    random_state: RandomState = 0,
) -> Recommendation:
    """Recommend without labels, where RPML was fitted to X and its fit measured this rank gain.

    So the advice is about that fit. Without a rank gain it is measured as a new fit would.
    """
    return _recommend(X, n_components, None, methods, random_state, gain)


@single_blas_thread()
def _recommend(
    X: ArrayLike,
    n_components: int | None,
    y: ArrayLike | None,
    methods: Sequence[str],
    random_state: RandomState,
    own: Interval | None = None,
) -> Recommendation:
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    rng, X = np.random.default_rng(seed), checked_embedding(X, "X")
    size = checked_size(n_components, X.shape[1])
    names = tuple(dict.fromkeys(("raw", *(method.name for method in chosen_methods(methods)))))
    labels = None if y is None else checked_codes(y, len(X))
    sample = sorted_sample(len(X), MAX_ROWS, rng)
    rows = to_common_scale(X[sample], as_they_are=True)[0]
    spectrum = principal_axes(rows, unit_input=True, center=True)
    rows = rows.astype(np.float32, copy=False)
    rank = len(spectrum.variances)
    if len(rows) < MIN_ROWS or rank < MIN_AXES or size > rank:
        return _too_little(len(rows), rank, size)
    W = (unit_rows(rows) - spectrum.mean.astype(np.float32)) @ spectrum.axes.astype(np.float32)
    if labels is None:
        gains = rank_gains(W, [name for name in names if name != "rpml"], size, rng)
        if "rpml" in names:
            gains["rpml"] = own or own_rank_gain(X, spectrum, size, seed)
        recommendation = decide(gains, size, names, n_components is None)
    else:
        seeds = (int(rng.integers(2**31 - 1)),)
        table = compare(rows, labels[sample], size, methods=names, seeds=seeds)
        recommendation = recommend_from(table, n_components is None)
    return recommendation.with_sizes(neighbors_kept(rows, W, size))


def own_rank_gain(X: Array, spectrum: Spectrum, size: int, seed: int) -> Interval:
    """Return the rank gain by which a fit of RPML with this seed chooses its whitening.

    The rows and splits are those of the fit; so are the axes, if the spectrum is that of all rows.
    """
    rng = Context(seed).rng("whiten")
    rows = scatter_rows(FitInputs(no_groups(len(X))), rng)
    splits = np.random.default_rng(int(rng.integers(2**31)))
    judged = rows[judged_rows(len(rows), splits)]
    sample, every = to_common_scale(X[judged], as_they_are=True)[0], np.arange(len(judged))
    n_axes = n_leading_axes(len(rows), len(spectrum.variances), size)
    data = coordinates(sample, every, spectrum, unit_input=True, n_components=size, least=n_axes)
    return chosen_rank_gain(data, splits)


def fitted_rank_gain(table: Comparison, n_components: int) -> Interval | None:
    """Return the rank gain that the fits of RPML in a comparison measured, the mean over seeds."""
    cells = [
        [cell["rank_gain"], cell["rank_gain_low"], cell["rank_gain_high"]]
        for cell in table.cells
        if (cell["method"], cell["asked"]) == ("rpml", n_components) and "rank_gain" in cell
    ]
    return Interval(*np.mean(cells, axis=0).tolist()) if cells else None


def recommend_from(table: Comparison, any_size: bool = False) -> Recommendation:
    """Recommend the method with the highest Recall@1 in a comparison, of those that see no labels.

    PCA is the simplest: others must be clearly better than it, by the paired difference. The
    comparison's first number of dimensions counts. `any_size` allows the raw vectors.
    """
    size = table.order[0][1]
    rows = {row["method"]: row for row in table.rows if row["asked"] == size and "recall@1" in row}
    evidence = {
        name: Interval(row["recall@1"], row["recall@1_low"], row["recall@1_high"])
        for name, row in rows.items()
        if not row["uses_labels"]
    }
    recall = {name: score.value for name, score in evidence.items()}
    worth = {name: value for name, value in recall.items() if any_size or name != "raw"} or recall
    over_pca = {name: table.difference(name, REFERENCE, size) for name in worth}
    choice, runner_up = _best_two(worth, [n for n, gain in over_pca.items() if _leads(gain)])
    apart = table.difference(choice, runner_up, size) if runner_up else None
    gain = over_pca[choice]
    reasons = [_advice(choice, size), _measured(choice, worth, gain)]
    raw = table.difference("raw", choice, size)
    if choice != "raw" and raw is not None and raw.clear > 0:
        reasons.append(
            f"The raw vectors reach {recall['raw']:.1%} with "
            f"{counted(rows['raw']['dim'], 'dimension')}: keep "
            "them if you can afford the size."
        )
    certainty = "clear" if apart is None or apart.clear > 0 else "close"
    return Recommendation(
        choice,
        size,
        certainty,
        gain,
        True,
        evidence,
        reasons=(*reasons, *_close(certainty, runner_up)),
    )


def decide(
    evidence: Mapping[str, Interval], size: int, methods: Sequence[str], any_size: bool
) -> Recommendation:
    """Choose the method with the largest rank gain minus its price; `any_size` allows "raw".

    RPML has its own evidence and thresholds; others must be clearly better than PCA.
    """
    gains = {name: measured.value for name, measured in evidence.items()}
    worth = {name: gains[name] - PRICES.get(name, 0.0) for name in methods if name != "raw"}
    worth = worth or {"raw": 0.0}
    if REFERENCE in worth and worth.get("rpml", 1.0) <= 0:
        del worth["rpml"]  # without evidence it is PCA
    ahead = [name for name in worth if name == "rpml" or _leads(evidence.get(name))]
    choice, runner_up = _best_two(worth, ahead)
    reasons = [_advice(choice, size), _expected(choice, evidence)]
    if "raw" in gains and gains["raw"] - gains[choice] > RAW_PRICE:
        if any_size:
            choice, reasons = "raw", [_advice("raw", size), f"Otherwise: {reasons[0]}"]
        else:
            reasons.append("The raw vectors probably do better: keep them if you can afford them.")
    lead = np.inf if runner_up is None or choice == "raw" else worth[choice] - worth[runner_up]
    certainty = "clear" if lead > CLEARLY else "close"
    gain = expected_gain(gains[choice]) if choice not in ("raw", REFERENCE) else None
    reasons += _close(certainty, runner_up)
    return Recommendation(
        choice, size, certainty, gain, False, dict(evidence), reasons=tuple(reasons)
    )


def _leads(gain: Interval | None) -> bool:
    """Whether a gain over PCA is clear; without PCA to compare with, nothing speaks against it."""
    return gain is None or gain.clear > 0


def _best_two(worth: Mapping[str, float], ahead: Sequence[str]) -> tuple[str, str | None]:
    """Return the best and the second; PCA is the best unless others are `ahead` of it."""
    ranked = sorted(worth, key=lambda name: (-worth[name], name != REFERENCE))
    best = next((n for n in ranked if n == REFERENCE or n in ahead), ranked[0])
    return best, next((name for name in ranked if name != best), None)


def _advice(choice: str, size: int) -> str:
    if choice == "raw":
        return (
            "Keep the raw vectors if you can afford them: "
            f"{counted(size, 'dimension loses', 'dimensions lose')} neighbors."
        )
    return f"Use {METHODS[choice].title} with {counted(size, 'dimension')}."


def _measured(choice: str, recall: Mapping[str, float], gain: Interval | None) -> str:
    said = f"Recall@1 on rows held out is {recall[choice]:.1%}"
    if choice == REFERENCE and recall[choice] < max(recall.values()):
        return f"{said}, and no other method is clearly better."
    if gain is None or choice == REFERENCE:
        return f"{said}, the highest of {counted(len(recall), 'method')}."
    bounds = f"{100 * gain.low:+z.1f} to {100 * gain.high:+z.1f}"
    return (
        f"{said} against {recall[REFERENCE]:.1%} with PCA: a gain of {100 * gain.value:+z.1f} "
        f"points (95% interval {bounds})."
    )


def _expected(choice: str, evidence: Mapping[str, Interval]) -> str:
    if choice == REFERENCE:
        same = " RPML itself is PCA here."
        own = same if "rpml" in evidence and evidence["rpml"].value <= 0 else ""
        return f"Nothing ranks the neighbors that other axes name clearly higher than PCA.{own}"
    rank_gain = evidence[choice]
    gain = expected_gain(rank_gain.value)
    return (
        f"Expected gain over PCA: {100 * gain.value:+z.1f} points of Recall@1 ("
        f"{100 * gain.low:+z.1f} to {100 * gain.high:+z.1f} on 4 of 5 other data sets with such a "
        f"rank gain). The rank gain, measured without labels, is {rank_gain.value:+z.2f} (95% "
        f"interval {rank_gain.low:+z.2f} to {rank_gain.high:+z.2f})."
    )


def _close(certainty: str, runner_up: str | None) -> list[str]:
    if certainty == "clear" or runner_up is None:
        return []
    return [f"It is close: {METHODS[runner_up].title} may do as well."]


def _too_little(n: int, rank: int, size: int) -> Recommendation:
    choice = REFERENCE if size <= rank else "raw"
    reason = (
        f"{counted(n, 'row')} and {counted(rank, 'direction')} of variation are too few to compare "
        f"embeddings on: the safe choice is {METHODS[choice].title}."
    )
    return Recommendation(choice, size, "unknown", reasons=(reason,))
