"""Which rule should choose the whitening? Rules scored by the labels they do not see.

python benchmarks/whitening_rules.py --data DIR [--sets A,B]

Whitening alone, no training, on three splits of the classes: per candidate its Recall@1 on the
held-out classes, and the rank gains on the training rows by which a fit chooses, with three seeds.
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
from results_sets import DIMS, SEEDS, FeatureSet, commit, feature_sets, parser
from results_zoo import SPLITS, class_split

from rpml.evaluation.metrics import first_hit_rank
from rpml.method.whitening import evidence
from rpml.method.whitening.evidence import (
    JUDGED,
    MILD,
    NEAR_BEST,
    NUISANCE,
    RESCALING,
    SHRINKAGES,
    STRONG,
)
from rpml.method.whitening.groups import within_scatter
from rpml.method.whitening.linear_map import Spectrum, principal_axes, whitening
from rpml.method.whitening.neighborhoods import ScatterChoice, coordinates, whiten_by
from rpml.runtime.blas import single_blas_thread

Matrix = NDArray[np.floating]
TURNS = (*SHRINKAGES, 1 / 4, 1.0)
RIDGES = (JUDGED, STRONG, 1 / 64, 1 / 32, MILD, 1 / 8)
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
    maps[BOUND] = whiten_by(spectrum, of_classes, choices[rescaled(JUDGED)], dim, True)
    maps |= {n: whitening(spectrum, e, dim, True, True) for n, e in EXPONENTS.items()}
    return {name: whole.matrix[:, :dim] for name, whole in maps.items()}


@single_blas_thread()
def measure(data: FeatureSet, split: int) -> list[dict[str, Any]]:
    """One row per number of dimensions."""
    train = class_split(data, split)
    X, tested = data.X[train], data.X[~train]
    spectrum = principal_axes(X, unit_input=True, center=True)
    rows = []
    for dim in (d for d in DIMS if d < X.shape[1] and d <= len(spectrum.variances)):
        seen = coordinates(X, np.arange(len(X)), spectrum, True, dim)
        gains = [evidence.rank_gains(seen, np.random.default_rng(seed))[0] for seed in SEEDS]
        scatter, _ = evidence.neighbor_scatter(seen, np.random.default_rng(split))
        of_classes = within_scatter(seen, data.y[train])
        recall = {}
        for name, matrix in candidates(spectrum, scatter, of_classes, dim).items():
            unit = tested / np.linalg.norm(tested, axis=1, keepdims=True)
            Z = ((unit - spectrum.mean) @ matrix).astype(np.float32)
            hits = first_hit_rank(Z, data.y[~train]) < 1
            recall[name] = round(float(hits.mean()), 5)
        found = [
            {
                what: np.round(getattr(g, what).mean(axis=1), 4).tolist()
                for what in ("turned", "rescaled")
            }
            for g in gains
        ]
        rows.append(
            {"set": data.name, "split": split, "dim": dim, "recall": recall, "gains": found}
        )
    return rows


@dataclass(frozen=True)
class Rule:
    """The rule of a fit, with other constants."""

    nuisance: float = NUISANCE
    rescaling: float = RESCALING
    near_best: float = NEAR_BEST
    strong: str = rescaled(STRONG)
    mild: str = rescaled(MILD)

    def __call__(self, gains: dict[str, list[float]], dim: int) -> str:
        best = max(gains["turned"])
        if best > self.nuisance * (min(max(dim, 32), 64) / 64) ** 0.5:
            near = [s for s, g in zip(SHRINKAGES, gains["turned"], strict=True)
                    if g >= self.near_best * best]  # fmt: skip
            return turned(near[0])
        return self.strong if gains["rescaled"][0] > self.rescaling else self.mild


def always(name: str) -> Callable[[dict[str, list[float]], int], str]:
    return lambda gains, dim: name


RULES: dict[str, Callable[[dict[str, list[float]], int], str]] = {
    "the rule of a fit": Rule(),
    "... turned with shrinkage 1/16 always": Rule(near_best=-np.inf),
    "... turned with shrinkage 1/16 where it is best": Rule(near_best=1.0),
    "... ridge 1/32 instead of 1/16": Rule(mild=rescaled(1 / 32)),
    "... PCA instead of 1/16": Rule(mild="pca"),
    "... ridge 1/256 instead of 1/128": Rule(strong=rescaled(JUDGED)),
    "... strong rescaling from 0.03 on": Rule(rescaling=0.03),
    "... strong rescaling from 0.06 on": Rule(rescaling=0.06),
    "always rescaled, ridge 1/16": always(rescaled(1 / 16)),
    "always rescaled, ridge 1/32": always(rescaled(1 / 32)),
    "always rescaled, ridge 1/128": always(rescaled(STRONG)),
    "always turned, shrinkage 1": always(turned(1.0)),
    "always turned, shrinkage 1/16": always(turned(1 / 16)),
    "always half-whitened": always("half-whitened"),
    f"*{BOUND}*": always(BOUND),
}
Rows = list[dict[str, Any]]


def gains_of(rule: Callable[..., str], rows: Rows) -> dict[tuple[str, int], tuple[float, float]]:
    """(gain over PCA, R@1 lost against the best of the PCA family), per set and size, in points."""
    out = {}
    for name, dim in {(row["set"], row["dim"]) for row in rows}:
        mine = [row for row in rows if (row["set"], row["dim"]) == (name, dim)]
        got = np.mean([[r["recall"][rule(g, dim)] for g in r["gains"]] for r in mine])
        family = np.mean([[r["recall"][e] for e in EXPONENTS] for r in mine], axis=0)
        pca = family[list(EXPONENTS).index("pca")]
        out[name, dim] = (100 * float(got - pca), 100 * max(0.0, float(family.max() - got)))
    return out


def line(title: str, found: dict[tuple[str, int], tuple[float, float]]) -> str:
    """One row of the table."""
    shown: list[list[str]] = []
    for size in DIMS:
        gain, lost = np.array([v for (_, dim), v in sorted(found.items()) if dim == size]).T
        shown.append([f"{gain.mean():+.2f}", f"{np.median(gain):+.2f}", f"{gain.min():+.1f}",
                      f"{(gain < -0.3).mean():.0%}", f"{np.quantile(lost, 0.9):.2f}",
                      f"{lost.max():.2f}"])  # fmt: skip
    columns = (" / ".join(column) for column in zip(*shown, strict=True))
    return f"| {title} | " + " | ".join(columns) + " |"


def worth(gain: float) -> float:
    """What a set's gain counts for constants: up to 3 points, and a loss beyond 0.3 five times."""
    return min(gain, 3.0) - 4 * max(0.0, -0.3 - gain)


def leaving_one_out(rows: Rows) -> dict[tuple[str, int], tuple[float, float]]:
    """The gains of each source of data with the constants that are best on all others."""
    grid = itertools.product(
        (0.12, 0.15, 0.18),
        (0.03, 0.04, 0.05, 0.07),
        (0.9, 0.95, 1.0),
        ("pca", *(rescaled(r) for r in RIDGES[3:])),
    )
    found = [gains_of(Rule(n, r, b, mild=m), rows) for n, r, b, m in grid]
    out = {}
    for source in {key[0].split("_")[0] for key in found[0]}:
        others = [
            [worth(v[0]) for k, v in f.items() if k[0].split("_")[0] != source] for f in found
        ]
        best = found[int(np.argmax([np.mean(values) for values in others]))]
        out |= {k: v for k, v in best.items() if k[0].split("_")[0] == source}
    return out


def tables(rows: Rows) -> list[str]:
    """Markdown: per rule, at each number of dimensions, gains over PCA and what is lost."""
    heads = ("rule", "mean gain over PCA", "median", "worst", "below PCA by more than 0.3",
             "lost, 90% quantile", "lost at most")  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * 6]
    lines += [line(name, gains_of(rule, rows)) for name, rule in RULES.items()]
    lines.append(line("the rule, constants chosen without the source", leaving_one_out(rows)))
    best = {}
    for key in {(row["set"], row["dim"]) for row in rows}:
        mine = [row["recall"] for row in rows if (row["set"], row["dim"]) == key]
        names = [name for name in mine[0] if name != BOUND]
        means = {name: 100 * float(np.mean([r[name] for r in mine])) for name in names}
        best[key] = (max(means.values()) - means["pca"], 0.0)
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
