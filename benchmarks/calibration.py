"""What does a rank gain say about Recall@1? The table behind `rpml.evaluation.rank_gain`.

python benchmarks/calibration.py [--data DIR] [--write]

Rank gains and gains over PCA of the zoo come from results/cells/zoo. With --data the sets of that
folder are added: learned from 4,000 rows of half of the classes and scored on the others, and
learned from and scored on the same 4,000 rows of all classes, as someone does who reports on what
they fitted. The points are kept in results/calibration.json, where they replace those of the same
sets. A set counts once per dimension, at the dimensions that it has. --write puts the table into
`rpml.evaluation.rank_gain`; a test compares the two.
"""

from __future__ import annotations

import argparse
import base64
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from common import RESULTS
from numpy.typing import NDArray
from performance_page import replaced
from results_sets import DIMS, FeatureSet, feature_sets
from sklearn.isotonic import IsotonicRegression

import rpml
from rpml.evaluation.baselines import PCA
from rpml.evaluation.metrics import recall_at_k

POINTS = RESULTS / "calibration.json"
MODULE = Path(rpml.__file__).parent / "method" / "calibration.py"
EDGES = (-1.0, 0.001, 0.05, 0.1, 0.3, 99.0)
ANCHORS = ((0.0,), (0.025,), (0.075,), (0.12, 0.3), (0.4,))
"""Rank gains that stand for each range; the table is interpolated between them."""
ROWS = 4000
Point = tuple[str, int, float, float]  # set, dim, rank gain, gain in Recall@1


def zoo_points() -> list[Point]:
    """From the cells of results_zoo.py, the mean over seeds."""
    points = []
    for path in sorted((RESULTS / "cells" / "zoo").glob("*.jsonl")):
        evidence: dict[tuple[int, int], float] = {}
        recall: dict[tuple[int, str, int], list[float]] = {}
        for cell in map(json.loads, path.read_text().splitlines()):
            split, name, dim, _ = cell["key"]
            if "evidence" in cell:
                evidence[split, dim] = cell["evidence"]["rpml"]
            elif "hits" in cell:
                bits = np.frombuffer(base64.b64decode(cell["hits"]), np.uint8)
                hits = np.unpackbits(bits)[: cell["rows"]]
                recall.setdefault((split, name, dim), []).append(float(hits.mean()))
        points += [
            (path.stem, dim, gain, np.mean(recall[split, "rpml", dim]) - np.mean(pca))
            for (split, dim), gain in evidence.items()
            if (pca := recall.get((split, "pca", dim))) and (split, "rpml", dim) in recall
        ]
    return points


def measured(data: FeatureSet) -> list[Point]:
    """Scored on new classes, and on the rows that were learned from."""
    rng, points = np.random.default_rng(0), []
    codes = np.unique(data.y, return_inverse=True)[1]
    n_classes = codes.max() + 1
    learned = (rng.permutation(n_classes) < n_classes // 2)[codes]
    parts = [learned, ~learned], [np.ones(len(codes), bool)] * 2
    for dim in (dim for dim in DIMS if dim <= data.X.shape[1]):
        for first, second in parts:
            train = rng.permutation(np.flatnonzero(first))[:ROWS]
            test = train if second is first else rng.permutation(np.flatnonzero(second))[:ROWS]
            advice = rpml.recommend(data.X[train], dim, methods=("pca", "rpml"))
            scores = [
                recall_at_k(fitted.transform(data.X[test]), codes[test], ks=(1,))[1]
                for fitted in (
                    rpml.RPML(dim, random_state=0).fit(data.X[train]),
                    PCA(dim).fit(data.X[train]),
                )
            ]
            points.append((data.name, dim, advice.evidence["rpml"].value, scores[0] - scores[1]))
            print(points[-1], flush=True)
    return points


def quantiles(points: list[Point]) -> list[tuple[float, int, NDArray[np.floating]]]:
    """Per range of rank gains: where it begins, how many sets, 10%, 50% and 90% of the gains."""
    out = []
    for low, high in pairwise(EDGES):
        gains: dict[tuple[str, int], list[float]] = {}
        for name, dim, evidence, gain in points:
            if low <= evidence < high:
                gains.setdefault((name, dim), []).append(gain)
        means = [np.mean(found) for found in gains.values()]
        spread = np.quantile(means, [0.1, 0.5, 0.9], method="weibull")
        out.append((low, len({name for name, _ in gains}), spread))
    return out


def all_points() -> list[Point]:
    return [*zoo_points(), *(tuple(point) for point in json.loads(POINTS.read_text()))]


def table(points: list[Point]) -> dict[float, tuple[float, ...]]:
    """The constants of `rpml.evaluation.rank_gain`: anchor -> 10%, 50% and 90% of the gains.

    More evidence does not promise less: ranges that disagree with that are pooled.
    """
    _, n_sets, spreads = zip(*quantiles(points), strict=True)
    order = np.arange(len(n_sets))
    pooled = [
        IsotonicRegression().fit_transform(order, column, sample_weight=n_sets)
        for column in np.transpose(spreads)
    ]
    return {
        anchor: tuple(np.round(spread, 3).tolist())
        for anchors, spread in zip(ANCHORS, np.transpose(pooled), strict=True)
        for anchor in anchors
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of .npz files")
    parser.add_argument("--write", action="store_true", help="put the table into the package")
    arguments = parser.parse_args()
    if arguments.data is not None:
        found = {data.name: measured(data) for data in feature_sets(arguments.data)}
        others = [point for point in json.loads(POINTS.read_text()) if point[0] not in found]
        points = [*others, *(point for data in found.values() for point in data)]
        lines = ",\n".join(json.dumps(point) for point in points)
        POINTS.write_text(f"[{lines}]\n")
    points = all_points()
    for low, n_sets, spread in quantiles(points):
        print(f"rank gain from {low:g}: {n_sets} sets, {np.round(100 * spread, 1)} points")
    if arguments.write:
        lines = [f"    {anchor}: {values}," for anchor, values in table(points).items()]
        text = replaced(MODULE.read_text(encoding="utf8"), "CALIBRATION = {\n", "}\n", lines)
        MODULE.write_text(text, encoding="utf8")


if __name__ == "__main__":
    main()
