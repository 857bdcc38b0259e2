"""Which rule should choose the whitening? Rules scored by the labels they do not see.

python benchmarks/whitening_rules.py --data DIR [--sets A,B]

Whitening alone, no training, on three splits of the classes: per candidate its Recall@1 on the
held-out classes and on the rows it was fitted on, and the rank gains on the latter by which a fit
chooses, with a seed of its own per split.
The measurements are kept in results/whitening_rules.json; the tables are computed from them and
printed. The last one chooses the constants of the rule on all sources of data but one and scores
them on that one.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import RESULTS, machine
from numpy.typing import NDArray
from results_sets import DIMS, FeatureSet, commit, feature_sets, parser
from results_zoo import SPLITS, class_split

from rpml.evaluation.metrics import first_hit_rank
from rpml.method.whitening import evidence
from rpml.method.whitening.constants import (
    LEAST_SUPPORT,
    MILD,
    NEAR_BEST,
    RIDGE,
    SHRINKAGES,
    SUPPORT,
    TURN,
)
from rpml.method.whitening.evidence import RankGains, ScatterChoice, turn_needed
from rpml.method.whitening.groups import within_scatter
from rpml.method.whitening.linear_map import Spectrum, principal_axes, whitening
from rpml.method.whitening.neighborhoods import coordinates, whiten_by
from rpml.runtime.threads import single_blas_thread

Matrix = NDArray[np.floating]
TURNS = (*SHRINKAGES, 1 / 4, 1.0)
RIDGES = (1 / 256, RIDGE, 1 / 64, 1 / 32, MILD, 1 / 8)
USES = ("new", "searched")  # classes not seen in the fit; the rows of the fit themselves
EXPONENTS = {"half-whitened": 0.5, "whitened": 1.0, "pca": 0.0}
BOUND = "rescaled by the true training classes, ridge 1/256"
OUTPUT = RESULTS / "whitening_rules.json"


def turned(shrinkage: float) -> str:
    return f"turned, shrinkage {shrinkage:g}"


def rescaled(ridge: float) -> str:
    return f"rescaled, ridge 1/{1 / ridge:.0f}"


def candidates(
    spectrum: Spectrum, scatter: Matrix, of_classes: Matrix, dim: int
) -> dict[str, Matrix]:
    """The map of each candidate, rows of unit norm less their mean to `dim` dimensions.

    One of them is a bound: the scatter within the true classes of the training rows.
    """
    choices = {turned(s): ScatterChoice("neighbors", s, {}) for s in TURNS}
    choices |= {rescaled(r): ScatterChoice("neighbors", np.inf, {}, ridge=r) for r in RIDGES}
    maps = {n: whiten_by(spectrum, scatter, c, dim, True) for n, c in choices.items()}
    maps[BOUND] = whiten_by(spectrum, of_classes, choices[rescaled(1 / 256)], dim, True)
    maps |= {n: whitening(spectrum, e, dim, True, True) for n, e in EXPONENTS.items()}
    return {name: whole.matrix[:, :dim] for name, whole in maps.items()}


@single_blas_thread()
def measure(data: FeatureSet, split: int) -> list[dict[str, Any]]:
    """One row per number of dimensions."""
    train = class_split(data, split)
    X = data.X[train]
    spectrum = principal_axes(X, unit_input=True)
    rows = []
    for dim in (d for d in DIMS if d < X.shape[1] and d <= len(spectrum.variances)):
        seen = coordinates(X, np.arange(len(X)), spectrum, True, dim)
        gains = [RankGains(seen, np.random.default_rng(split))]
        scatter, _ = evidence.neighbor_scatter(seen, np.random.default_rng(split))
        maps = candidates(spectrum, scatter, within_scatter(seen, data.y[train]), dim)
        found = {"set": data.name, "split": split, "dim": dim, "gains": [*map(means, gains)]}
        for use, chosen in zip(USES, (~train, train), strict=True):
            unit = data.X[chosen] / np.linalg.norm(data.X[chosen], axis=1, keepdims=True)
            centered = unit - spectrum.mean
            found[use] = {name: recall(centered @ M, data.y[chosen]) for name, M in maps.items()}
        rows.append(found)
    return rows


def recall(Z: Matrix, y: NDArray[np.integer]) -> float:
    return round(float((first_hit_rank(Z.astype(np.float32), y) < 1).mean()), 5)


def means(gains: RankGains) -> dict[str, Any]:
    """The rank gains over all queries."""
    return {
        "directions": round(gains.directions, 2),
        "mild": round(float(gains.mild.mean()), 4),
        "rescaled": round(float(gains.rescaled.mean()), 4),
        "turned": np.round(gains.turned.mean(axis=1), 4).tolist(),
    }


@dataclass(frozen=True)
class Rule:
    """The rule of a fit, with other constants."""

    support: float = SUPPORT
    least: float = LEAST_SUPPORT
    turn: float = TURN
    near_best: float = NEAR_BEST
    ridge: str = ""
    """Of rescaled axes; by default that of the larger rank gain."""
    fallback: str = "pca"

    def __call__(self, gains: dict[str, Any], dim: int) -> str:
        if gains["mild"] < max(self.support * gains["directions"], self.least):
            return self.fallback
        best = max(gains["turned"])
        if best > self.turn / TURN * turn_needed(dim):
            near = [s for s, g in zip(SHRINKAGES, gains["turned"], strict=True)
                    if g >= self.near_best * best]  # fmt: skip
            return turned(near[0])
        return self.ridge or rescaled(RIDGE if gains["rescaled"] > gains["mild"] else MILD)


def always(name: str) -> Callable[[dict[str, Any], int], str]:
    return lambda gains, dim: name


RULES: dict[str, Callable[[dict[str, Any], int], str]] = {
    "the rule of a fit": Rule(),
    "... 0.045 needed, however many directions": Rule(support=0.0, least=0.045),
    "... 0.0007 needed per direction": Rule(support=0.0007),
    "... 0.0014 needed per direction": Rule(support=0.0014),
    "... at least 0.045 needed": Rule(least=0.045),
    "... ridge 1/16 instead of PCA": Rule(fallback=rescaled(MILD)),
    "... always ridge 1/128": Rule(ridge=rescaled(RIDGE)),
    "... always ridge 1/16": Rule(ridge=rescaled(MILD)),
    "... turned from 0.12 on": Rule(turn=0.12),
    "... turned from 0.18 on": Rule(turn=0.18),
    "... turned with shrinkage 1/16 always": Rule(near_best=-np.inf),
    "... turned with shrinkage 1/16 where it is best": Rule(near_best=1.0),
    "always rescaled, ridge 1/16": always(rescaled(1 / 16)),
    "always rescaled, ridge 1/32": always(rescaled(1 / 32)),
    "always rescaled, ridge 1/128": always(rescaled(RIDGE)),
    "always turned, shrinkage 1": always(turned(1.0)),
    "always turned, shrinkage 1/16": always(turned(1 / 16)),
    "always half-whitened": always("half-whitened"),
    f"*{BOUND}*": always(BOUND),
}
Rows = list[dict[str, Any]]
Found = dict[tuple[str, int], dict[str, float]]  # set, dim -> use -> gain over PCA in points


def gains_of(rule: Callable[..., str], rows: Rows) -> Found:
    """The gains over PCA by a rule."""
    out = {}
    for name, dim in {(row["set"], row["dim"]) for row in rows}:
        mine = [row for row in rows if (row["set"], row["dim"]) == (name, dim)]
        out[name, dim] = {
            use: 100 * float(np.mean([r[use][rule(g, dim)] - r[use]["pca"]
                                      for r in mine for g in r["gains"]]))
            for use in USES
        }  # fmt: skip
    return out


def line(title: str, found: Found) -> str:
    """One row of the table."""
    shown: list[list[str]] = []
    for size in DIMS:
        gains = [gain for (_, dim), gain in sorted(found.items()) if dim == size]
        new, searched = (np.array([gain[use] for gain in gains]) for use in USES)
        shown.append([f"{new.mean():+.2f}", f"{np.median(new):+.2f}", f"{new.min():+.1f}",
                      f"{(new < -0.3).mean():.0%}", f"{searched.mean():+.2f}",
                      f"{searched.min():+.1f}", f"{(searched < -0.3).mean():.0%}"])  # fmt: skip
    columns = (" / ".join(column) for column in zip(*shown, strict=True))
    return f"| {title} | " + " | ".join(columns) + " |"


def worth(gain: float) -> float:
    """What a set's gain counts for constants: up to 3 points, and a loss beyond 0.3 five times."""
    return min(gain, 3.0) - 4 * max(0.0, -0.3 - gain)


def leaving_one_out(rows: Rows) -> Found:
    """The gains of each source of data with the constants that are best on all others."""
    grid = itertools.product(
        (0.0, 0.0005, 0.0007, 0.001, 0.0014, 0.002),
        (0.025, 0.035, 0.045, 0.06),
        (0.12, 0.15, 0.18),
        (0.9, 1.0),
        ("pca", rescaled(MILD)),
    )
    found = [gains_of(Rule(s, e, n, b, fallback=f), rows) for s, e, n, b, f in grid]
    out = {}
    for source in {key[0].split("_")[0] for key in found[0]}:
        others = [
            [worth(gain) for k, v in f.items() if k[0].split("_")[0] != source
             for gain in v.values()]
            for f in found
        ]  # fmt: skip
        best = found[int(np.argmax([np.mean(values) for values in others]))]
        out |= {k: v for k, v in best.items() if k[0].split("_")[0] == source}
    return out


def tables(rows: Rows) -> list[str]:
    """Markdown: per rule, at each number of dimensions, the gains over PCA in both uses."""
    heads = ("rule", "new classes: mean gain over PCA", "median", "worst",
             "below PCA by more than 0.3", "searched rows: mean gain", "worst set",
             "more than 0.3 below PCA")  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * 7]
    lines += [line(name, gains_of(rule, rows)) for name, rule in RULES.items()]
    lines.append(line("the rule, constants chosen without the source", leaving_one_out(rows)))
    best: Found = {}
    for key in {(row["set"], row["dim"]) for row in rows}:
        mine = [row for row in rows if (row["set"], row["dim"]) == key]
        names = [name for name in mine[0]["new"] if name != BOUND]
        means = {use: {n: np.mean([r[use][n] for r in mine]) for n in names} for use in USES}
        best[key] = {use: 100 * float(max(own.values()) - own["pca"]) for use, own in means.items()}
    lines.append(line("*the best candidate per set, by the test labels*", best))
    return lines


def main() -> None:
    arguments = parser(__doc__ or "").parse_args()
    rows = json.loads(OUTPUT.read_text())["rows"] if OUTPUT.exists() else []
    done = {(row["set"], row["split"]) for row in rows}
    for data in feature_sets(arguments.data, arguments.sets):
        for split in SPLITS:
            if (data.name, split) not in done:
                rows += measure(data, split)
        content = {"source": commit(), "machine": machine(), "rows": rows}
        OUTPUT.write_text(json.dumps(content, indent=None) + "\n", encoding="utf8")
        print(data.name, flush=True)
    print("\n".join(tables(rows)))


if __name__ == "__main__":
    main()
