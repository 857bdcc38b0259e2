"""What does the whitening's shrinkage trade? R@1 and NMI after the whitening alone, by shrinkage.

python benchmarks/results_shrinkage.py --data DIR

Prints the table and keeps its figures in results/shrinkages.json; whitening_page.py writes it to
docs/decisions/whitening.md.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from common import publish
from results_page import table
from results_sets import FeatureSet, feature_sets, parser

from rpml.evaluation.metrics import clustering_scores, recall_at_k
from rpml.method.whitening.evidence import ScatterChoice, neighbor_scatter
from rpml.method.whitening.linear_map import Preprocessing, principal_axes, whitening
from rpml.method.whitening.neighborhoods import coordinates, whiten_by

DIMS = (64, 128)
SHRINKAGES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 8.0)
KMEANS_SEEDS = (0, 1, 2)


def score(data: FeatureSet, preprocessing: Preprocessing, dim: int) -> dict[str, float]:
    Z = preprocessing.apply(data.X[~data.train])[:, :dim]
    y = data.y[~data.train]
    nmi = [clustering_scores(Z, y, seed)["nmi"] for seed in KMEANS_SEEDS]
    return {"recall@1": 100 * recall_at_k(Z, y, (1,))[1], "nmi": 100 * float(np.mean(nmi))}


def measure(data: FeatureSet, dim: int) -> dict:
    X = data.X[data.train]
    spectrum = principal_axes(X, unit_input=True)
    rows = coordinates(X, np.arange(len(X)), spectrum, True, dim)
    scatter, choice = neighbor_scatter(rows, np.random.default_rng(0))
    shrinkages = {
        f: score(
            data, whiten_by(spectrum, scatter, ScatterChoice("neighbors", f, {}), dim, True), dim
        )
        for f in SHRINKAGES
    }
    half = score(data, whitening(spectrum, 0.5, dim, True, True), dim)
    return {
        "set": data.name,
        "dim": dim,
        "chosen": choice.shrinkage,
        "shrinkages": shrinkages,
        "half": half,
    }


def shown(row: dict) -> list[str]:
    cells = [*row["shrinkages"].values(), row["half"]]
    return [
        f"{row['set']}, {row['dim']}",
        *(f"{c['recall@1']:.1f} / {c['nmi']:.1f}" for c in cells),
    ]


def as_table(rows: list[dict]) -> str:
    """The table of the page, from what was measured or from the file."""
    shares = [str(Fraction(float(shrinkage))) for shrinkage in rows[0]["shrinkages"]]
    return table(["shrinkage", *shares, "half-whitened PCA"], map(shown, rows))


def main() -> None:
    given = parser(__doc__ or "").parse_args()
    rows = [measure(data, dim) for data in feature_sets(given.data, given.sets) for dim in DIMS]
    publish("shrinkages", {"rows": rows})
    print(as_table(rows))


if __name__ == "__main__":
    main()
