"""Which rule should choose the whitening? Rules scored by the labels they do not see.

python benchmarks/whitening_rules.py --data DIR [--sets A,B]

Whitening alone, no training, on three splits of the classes: per candidate its Recall@1 on the
held-out classes and its rank gain on the training rows, at the requested size and at half of it.
One half of the axes has half of the strong ones, so half of the size spans the same part of the
spectrum as the requested size does among all axes. The measurements are kept in
results/whitening_rules.json; the table of rules is computed from them and printed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from common import RESULTS, machine
from numpy.typing import NDArray
from results_sets import DIMS, FeatureSet, commit, feature_sets, parser
from results_zoo import SPLITS, class_split

from rpml.evaluation.metrics import first_hit_rank
from rpml.method.whitening import evidence
from rpml.method.whitening.linear_map import principal_axes
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    coordinates,
    cross_fitted_correlation,
    random_halves,
    taught_correlation,
)
from rpml.runtime.rows import unit_rows
from rpml.runtime.threads import single_blas_thread

Matrix = NDArray[np.floating]
LADDER = evidence.SHRINKAGES[:-1]
CANDIDATES = (*(f"shrinkage {s:g}" for s in LADDER), "half-whitened", "whitened", "pca")
PCA, HALF, WHITENED = len(CANDIDATES) - 1, len(CANDIDATES) - 3, len(CANDIDATES) - 2
ROWS, QUERIES, REPEATS = 3000, 1000, 2  # of either part; more than a fit looks at, for less noise
OUTPUT = RESULTS / "whitening_rules.json"


def views(W: Matrix, correlation: Matrix, deviations: Matrix, ridge: float) -> list[Matrix]:
    """The rows by every candidate, best axes first; `ridge` is that of shrinkage 1."""
    inside = np.eye(W.shape[1]) - correlation
    whitened = [evidence._whitened(W, inside, deviations, s * ridge) for s in LADDER]
    scaled = [W * (deviations**power).astype(W.dtype) for power in (0.5, 0.0, 1.0)]
    return [*whitened, *scaled]


def spread(correlation: Matrix, deviations: Matrix) -> float:
    """Trace of the scatter, from which the ridge is counted."""
    return float(((1 - np.diag(correlation)) * deviations**2).sum())


def rank_gains(data: Coordinates, dims: list[int], seed: int) -> tuple[dict[int, Matrix], Matrix]:
    """(size, mates, candidate) per number of dimensions; and the correlation that was learned."""
    rng = np.random.default_rng(seed)
    order, deviations = rng.permutation(len(data.W))[: 2 * ROWS], data.deviations
    made, tested = (data.subset(part) for part in np.array_split(order, 2))
    learned = cross_fitted_correlation(made, REPEATS, rng)
    queries = np.arange(min(QUERIES, len(tested.W)))
    ranks = {dim: np.zeros((2, 2, len(CANDIDATES))) for dim in dims}
    for _ in range(REPEATS):
        half = random_halves(data.W.shape[1], rng)
        for dim in dims:
            ridge = spread(learned, deviations) / dim
            sides = [
                views(tested.W[:, s], learned[np.ix_(s, s)], deviations[s], ridge)
                for s in (half, ~half)
            ]
            for one, other in (sides, sides[::-1]):
                seen = (other[PCA], other[LADDER.index(evidence.REFERENCE)])
                mates = np.hstack([evidence._nearest(rows, queries) for rows in seen])
                for which, size in enumerate((dim, dim // 2)):
                    size = max(1, min(size, one[0].shape[1] // 2))
                    for i, rows in enumerate(one):
                        logs = evidence._log_ranks(rows[:, :size], queries, mates)
                        ranks[dim][which, :, i] += logs.reshape(-1, 2, evidence.MATES).mean((0, 2))
    gains = {dim: (r[..., -1:] - r) / (2 * REPEATS) for dim, r in ranks.items()}
    return gains, learned


@single_blas_thread()
def measure(data: FeatureSet, split: int) -> list[dict[str, Any]]:
    """One row per number of dimensions."""
    train = class_split(data, split)
    spectrum = principal_axes(data.X[train], unit_input=True, center=True)
    dims = [d for d in DIMS if d < data.X.shape[1] and d <= len(spectrum.variances)]
    rng = np.random.default_rng(split)
    everything = np.arange(int(train.sum()))
    seen = coordinates(data.X[train], everything, spectrum, True, evidence.MIN_AXES)
    gains, teacher = rank_gains(seen, dims, split)
    final = seen.subset(rng.permutation(len(seen.W))[: evidence.FINAL_ROWS])
    correlation = taught_correlation(final, teacher, evidence.FINAL_REPEATS, rng)
    axes = (spectrum.axes[:, : len(correlation)] / seen.deviations).astype(np.float32)
    tested = (unit_rows(data.X[~train]) - spectrum.mean.astype(np.float32)) @ axes
    rows = []
    for dim in dims:
        ridge = spread(correlation, seen.deviations) / dim
        shown = views(tested, correlation, seen.deviations, ridge)
        hits = [first_hit_rank(Z[:, :dim], data.y[~train]) < 1 for Z in shown]
        recall = [round(float(hit.mean()), 5) for hit in hits]
        rows.append({"set": data.name, "split": split, "dim": dim, "recall": recall,
                     "rank_gains": gains[dim].round(4).tolist()})  # fmt: skip
    return rows


def ladder(gains: Matrix, falls_to: int = PCA) -> int:
    """A shrinkage, from gains of shape (mates, candidate); with another fallback than PCA."""
    plain, whitened = gains[0][[*range(len(LADDER)), PCA]], gains[1][[*range(len(LADDER)), PCA]]
    if whitened.max() > evidence.NUISANCE:
        return int((whitened >= evidence.NEAR_BEST * whitened.max()).argmax())
    chosen = int((plain - evidence.PRICE * np.arange(len(plain))[::-1]).argmax())
    return chosen if chosen < len(LADDER) else falls_to


def with_half(gains: Matrix, slack: float = evidence.HALF_SLACK) -> int:
    """The rule of a fit: half-whitening too, judged at half of the size."""
    chosen = ladder(gains[0])
    half = gains[1, 0, HALF]
    dominated = gains[0, 1].max() > evidence.NUISANCE
    better = half > evidence.HALF_GAIN and half > gains[1, 0, chosen] - slack
    return HALF if better and not dominated else chosen


RULES: dict[str, Callable[[Matrix], int]] = {
    "the rule of a fit": with_half,
    "... half-whitening if it gains no more than 0.02 less": lambda gains: with_half(gains, 0.02),
    "without half-whitening": lambda gains: ladder(gains[0]),
    "... judged at half of the size": lambda gains: ladder(gains[1]),
    "... shrinkage 4 instead of PCA": lambda gains: ladder(gains[0], LADDER.index(4.0)),
    "... shrinkage 1 instead of PCA": lambda gains: ladder(gains[0], LADDER.index(1.0)),
}


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown: per rule, at each number of dimensions, gains over PCA and what is lost."""
    heads = ("rule", "mean gain over PCA", "median", "worst", "below PCA by more than 0.3",
             "lost, 90% quantile", "lost at most")  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * 6]
    for name, rule in RULES.items():
        shown: list[list[str]] = [[] for _ in range(6)]
        for dim in DIMS:
            gain, best = {}, {}
            for own in {row["set"] for row in rows if row["dim"] == dim}:
                mine = [row for row in rows if (row["set"], row["dim"]) == (own, dim)]
                recall = 100 * np.array([row["recall"] for row in mine])
                picks = [rule(np.array(row["rank_gains"])) for row in mine]
                got = float(recall[np.arange(len(mine)), picks].mean())
                gain[own] = got - float(recall[:, PCA].mean())
                best[own] = max(got, *recall[:, [PCA, HALF, WHITENED]].mean(axis=0)) - got
            gains, lost = np.array(list(gain.values())), np.array(list(best.values()))
            figures = (f"{gains.mean():+.2f}", f"{np.median(gains):+.2f}", f"{gains.min():+.1f}",
                       f"{(gains < -0.3).mean():.0%}", f"{np.quantile(lost, 0.9):.2f}",
                       f"{lost.max():.2f}")  # fmt: skip
            for column, figure in zip(shown, figures, strict=True):
                column.append(figure)
        lines.append(f"| {name} | " + " | ".join(" / ".join(column) for column in shown) + " |")
    return lines


def above_pca(rows: list[dict[str, Any]]) -> list[str]:
    """On how many sets any whitening is above PCA, chosen per set by the labels it is scored by."""
    lines = []
    for dim in DIMS:
        sets: dict[str, list[list[float]]] = {}
        for row in rows:
            if row["dim"] == dim:
                sets.setdefault(row["set"], []).append(row["recall"])
        best = [np.mean(splits, axis=0) for splits in sets.values()]
        above = sum(float(recall.max()) > recall[PCA] for recall in best)
        clear = sum(float(recall.max()) > recall[PCA] + 0.003 for recall in best)
        lines.append(f"{dim}: above PCA on {above} of {len(best)} sets, by 0.3 points on {clear}")
    return lines


def main() -> None:
    arguments = parser(__doc__ or "").parse_args()
    rows = json.loads(OUTPUT.read_text())["rows"] if OUTPUT.exists() else []
    done = {(row["set"], row["split"]) for row in rows}
    for data in feature_sets(arguments.data, arguments.sets):
        for split in SPLITS:
            if (data.name, split) not in done:
                rows += measure(data, split)
        content = {"source": commit(), "machine": machine(), "candidates": CANDIDATES, "rows": rows}
        OUTPUT.write_text(json.dumps(content, indent=None) + "\n", encoding="utf8")
        print(data.name, flush=True)
    print("\n".join(table([row for row in rows if row["dim"] in DIMS]) + above_pca(rows)))


if __name__ == "__main__":
    main()
