"""What are noisy pairs worth: random pairs of one class, some of them replaced by random rows?

Fits on the training rows without labels, which only draw the pairs; scored by R@1 on classes never
seen. Every fit with pairs, or with true groups of three rows, is compared with the fit without.

    python benchmarks/pairs.py --data FOLDER --sets omniglot_lite0 --dim 128 --per-row 3
"""

from __future__ import annotations

import warnings

import numpy as np
from common import publish
from results_sets import SEEDS, FeatureSet, feature_sets, parser

from rpml import RPML
from rpml.evaluation.metrics import recall_at_k

WRONG = (0.0, 0.4, 0.95, 1.0)
GROUP_SIZE = 3


def draw_pairs(y, m: int, wrong: float, rng):
    """Random pairs of one class; the second row of the wrong ones is any row."""
    first = rng.integers(0, len(y), m)
    order = np.argsort(y, kind="stable")
    start, size = np.searchsorted(y[order], y[first]), np.bincount(y)[y[first]]
    second = order[start + rng.integers(0, size)]
    second = np.where(rng.random(m) < wrong, rng.integers(0, len(y), m), second)
    return np.stack([first, second], axis=1)[first != second]


def true_groups(y, rng):
    """Rows of a class in groups of `GROUP_SIZE`."""
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    place = np.arange(len(y)) - np.searchsorted(y[order], y[order])
    groups = np.empty(len(y), np.intp)
    groups[order] = y[order] * len(y) + place // GROUP_SIZE
    return groups


def measured(data: FeatureSet, dim: int, per_row: float, seed: int):
    """One row of results per input of the fit, the fit without any first."""
    X, y = data.X[data.train], np.unique(data.y[data.train], return_inverse=True)[1]
    test, truth = data.X[~data.train], data.y[~data.train]
    rng = np.random.default_rng(seed)
    pairs = {wrong: draw_pairs(y, int(per_row * len(y)), wrong, rng) for wrong in WRONG}
    inputs = {"none": {}, "groups": {"groups": true_groups(y, rng)}}
    inputs |= {f"pairs, {wrong:.0%} wrong": {"pairs": pairs[wrong]} for wrong in WRONG}
    baseline = 0.0
    for name, given in inputs.items():
        model = RPML(min(dim, X.shape[1] // 2), random_state=seed).fit(X, **given)
        recall = 100 * recall_at_k(model.transform(test), truth, (1,))[1]
        baseline = recall if name == "none" else baseline
        evidence = model.whitening_.pairs
        yield {
            "set": data.name,
            "dim": dim,
            "seed": seed,
            "input": name,
            "pairs per row": per_row,
            "recall@1": recall,
            "gain": recall - baseline,
            "source": model.whitening_.source,
            "rate": None if evidence is None else evidence.rate,
        }


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--dim", type=int, default=64)
    arguments.add_argument("--per-row", type=float, default=3.0, help="pairs per training row")
    arguments.add_argument("--name", default="pairs", help="file of results, without .json")
    options = arguments.parse_args()
    rows = []
    for data in feature_sets(options.data, options.sets):
        for seed in SEEDS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for row in measured(data, options.dim, options.per_row, seed):
                    rows.append(row)
                    print(row, flush=True)
    publish(options.name, {"rows": rows})


if __name__ == "__main__":
    main()
