"""Bytes per vector against Recall@1: codes of raw vectors, PCA and RPML on every set of a folder.

python benchmarks/codes.py --data DIR [--sets A,B]

Sets of 384 dimensions and more. PCA and RPML have as many dimensions as int8 codes and sign bits
need for 1/16 of the bytes of the raw float32 vectors. results/codes.json is written after every
set, so that an interrupted run goes on where it was, and methods that were removed from it are
measured anew; results_page.py makes the section of
docs/results.md from it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import RESULTS, machine
from results_sets import FeatureSet, commit, feature_sets, parser

from rpml.evaluation.codes import CODED_METHODS, score_codes
from rpml.evaluation.registry import chosen_methods
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.rows import unit_rows

TARGET = RESULTS / "codes.json"
SHARE, MIN_FEATURES = 16, 384
RESCORED = "binary + int8"
SHOWN = (("raw", "float32"), ("raw", RESCORED), ("pca", RESCORED), ("rpml", RESCORED))
Row = dict[str, Any]


def load() -> list[Row]:
    return json.loads(TARGET.read_text(encoding="utf8"))["rows"] if TARGET.exists() else []


def measure(data: FeatureSet, methods: list[str]) -> Iterator[Row]:
    """Every code of the methods on the test rows; methods and codes learn on the training rows."""
    split, d = data.split, data.X.shape[1]
    near = nearest_neighbors(split.X_test, 10, metric="cosine").indices
    for method in chosen_methods(methods):
        fitted = method.build((4 * d // SHARE) * 8 // 9, 0).fit(split.X_train)
        sides = (unit_rows(fitted.transform(X)) for X in (split.X_train, split.X_test))
        for row in score_codes(*sides, near, split.y_test):
            yield {"set": data.name, "features": d, "method": method.name, **row}


def main() -> None:
    given, source = parser(__doc__ or "").parse_args(), commit()
    for data in feature_sets(given.data, given.sets):
        rows = load()
        done = {row["method"] for row in rows if row["set"] == data.name}
        missing = [method for method in CODED_METHODS if method not in done]
        if data.X.shape[1] < MIN_FEATURES or not missing:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows += measure(data, missing)
        content = {"source": source, "machine": machine(), "rows": rows}
        TARGET.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
        print(data.name, flush=True)


def recall(rows: list[Row], name: str) -> dict[tuple[str, str], float]:
    return {(r["method"], r["code"]): 100 * r["recall@1"] for r in rows if r["set"] == name}


def section() -> list[str]:
    """The parts of docs/results.md."""
    rows = load()
    features = {row["set"]: row["features"] for row in rows}
    by_set = {name: recall(rows, name) for name in sorted(features)}
    lines = [
        [name, str(features[name]), *(f"{found[key]:.1f}" for key in SHOWN)]
        for name, found in by_set.items()
    ]
    mean = {key: np.mean([found[key] for found in by_set.values()]) for key in SHOWN}
    raw, _, pca, ours = SHOWN
    gains = [round(found[ours] - found[pca], 6) for found in by_set.values()]
    return [
        f"## Codes on {len(by_set)} sets\n",
        f"Recall@1 with 1/{SHARE} of the bytes of the raw vectors. Each row is stored as sign bits "
        "and int8 codes, in as many dimensions as the bytes allow; the 40 nearest by the bits are "
        "ranked by int8. One split and one seed per set, sets of 384 dimensions or more "
        "(`benchmarks/codes.py`).\n",
        f"The mean is {mean[ours]:.1f} for RPML, {mean[pca]:.1f} for PCA with the same bytes and "
        f"{mean[raw]:.1f} for the raw vectors with {SHARE} times as many. RPML's codes are above "
        f"PCA's on {sum(g > 0 for g in gains)} sets, equal on {sum(g == 0 for g in gains)} "
        f"and below on {sum(g < 0 for g in gains)}.\n",
        table(["set", "features", "raw float32", "raw, rescored bits", "PCA", "RPML"], lines),
        "All codes, with their bytes as a share of the raw vectors' and their gain or loss of "
        "Recall@1. OPQ is measured up to 256 dimensions, and so on fewer sets:\n",
        table(["method", "code", "sets", "bytes", "mean R@1 gain over raw"], losses(rows, by_set)),
    ]


def losses(rows: list[Row], by_set: dict[str, dict[tuple[str, str], float]]) -> list[list[str]]:
    lines = []
    for key in {(row["method"], row["code"]): None for row in rows}:
        known = [found for found in by_set.values() if key in found]
        shares = [r["bytes"] / r["features"] / 4 for r in rows if (r["method"], r["code"]) == key]
        loss = np.mean([found[key] - found[SHOWN[0]] for found in known])
        lines.append([*key, str(len(known)), f"1/{1 / np.mean(shares):.0f}", f"{loss:+.1f}"])
    return lines


def table(header: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines]) + "\n"


if __name__ == "__main__":
    main()
