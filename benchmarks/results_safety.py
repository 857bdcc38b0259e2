"""Is the default ever worse than PCA on all classes, with few rows, or in other dimensions?

python benchmarks/results_safety.py --data DIR [--sets A,B]

Whole default fits: the gain over PCA in Recall@1, and the rank gain, by which a fit chose its
whitening. Fitted to rows of all classes, on these rows; fitted to half of the classes, two splits,
on the other classes and on the rows of the fit. calibration.py says what a rank gain is worth by
it. results/safety.json is written after every set, so that an interrupted run goes on where
it was; results_page.py makes the tables of docs/results.md from it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from common import RESULTS, machine
from numpy.typing import NDArray
from results_sets import DIMS, FeatureSet, commit, feature_sets, parser, set_gains
from results_zoo import class_split

from rpml.evaluation.metrics import first_hit_rank
from rpml.evaluation.registry import METHODS

TARGET = RESULTS / "safety.json"
ALL = 10**9
ASKED = ((300, 32), (300, 64), (1000, 32), (1000, 64), (1000, 128), (ALL, 16), (ALL, 256))
USES = {"new": "new classes", "searched": "searched rows"}
SCORED = 3000  # rows of new classes
WHOLE = 8000  # rows of all classes
SPLITS = (0, 1)
Row = dict[str, Any]
Rows = NDArray[np.intp]


def load() -> list[Row]:
    return json.loads(TARGET.read_text(encoding="utf8"))["rows"] if TARGET.exists() else []


def hits(fitted: Any, X: NDArray[np.float32], y: NDArray[np.integer]) -> float:
    return float((first_hit_rank(fitted.transform(X), y) < 1).mean())


def gains(data: FeatureSet, fit: Rows, sides: dict[str, Rows], dim: int, seed: int) -> Row:
    """The rank gain of a fit, and the gains over PCA on some rows; 0 of a fit that is PCA."""
    X, y = data.X, data.y
    rpml = METHODS["rpml"].build(dim, seed).fit(X[fit])
    row = {"rank_gain": rpml.whitening_.gain.value} | dict.fromkeys(sides, 0.0)
    if rpml.outcome_ != "PCA":
        pca = METHODS["pca"].build(dim, seed).fit(X[fit])
        for use, rows in sides.items():
            row[use] = hits(rpml, X[rows], y[rows]) - hits(pca, X[rows], y[rows])
    return row


def measure(data: FeatureSet) -> Iterator[Row]:
    """One row per split, number of rows and of dimensions that the set has."""
    for split in SPLITS:
        train, rng = class_split(data, split), np.random.default_rng(split)
        seen, unseen = (rng.permutation(np.flatnonzero(side)) for side in (train, ~train))
        for n, dim in ASKED:
            fit = seen[:n]
            if (n < ALL and len(seen) < 1.3 * n) or dim >= min(data.X.shape[1], len(fit) - 2):
                continue
            sides = {"new": unseen[:SCORED], "searched": fit}
            with suppress(ValueError):  # the rows do not have the rank
                row = gains(data, fit, sides, dim, split)
                yield {"set": data.name, "split": split, "rows": n, "dim": dim} | row


def measure_whole(data: FeatureSet) -> Iterator[Row]:
    """Fitted to rows of all classes, and searched among them: one row per size."""
    rows = np.random.default_rng(0).permutation(len(data.X))[:WHOLE]
    for dim in (dim for dim in DIMS if dim < data.X.shape[1]):
        with suppress(ValueError):
            row = gains(data, rows, {"gain": rows}, dim, 0)
            yield {"set": data.name, "whole": True, "dim": dim} | row


def whole_table(rows: list[Row]) -> str:
    """Markdown: gains over PCA among all classes, per number of dimensions."""
    heads = ["dimensions", "sets", "mean gain over PCA", "median", "more than 0.3 above",
             "more than 0.3 below", "worst set"]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + " ---: |" * len(heads)]
    for dim in DIMS:
        own = [row for row in rows if row.get("whole") and row["dim"] == dim]
        gains, worst = set_gains(own, "gain")
        cells = [str(dim), str(len(gains)), f"{gains.mean():+.1f}", f"{np.median(gains):+.1f}",
                 f"{(gains > 0.3).mean():.0%}", f"{(gains < -0.3).mean():.0%}",
                 worst]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def table(rows: list[Row]) -> str:
    """Markdown: the distribution of the gains over the sets."""
    heads = ["rows", "dimensions", "sets"]
    for use in USES.values():
        heads += [f"{use}: mean gain over PCA", "more than 0.3 below", "worst set"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " ---: |" * len(heads)]
    for n, dim in ASKED:
        own = [row for row in rows if (row.get("rows"), row["dim"]) == (n, dim)]
        if not own:
            continue
        cells = ["all" if n == ALL else f"{n:,}", str(dim), str(len({row["set"] for row in own}))]
        for use in USES:
            gains, worst = set_gains(own, use)
            cells += [f"{gains.mean():+.1f}", f"{(gains < -0.3).mean():.0%}", worst]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    given, source = parser(__doc__ or "").parse_args(), commit()
    for data in feature_sets(given.data, given.sets):
        rows = load()
        done = {bool(row.get("whole")) for row in rows if row["set"] == data.name}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows += () if False in done else measure(data)
            rows += () if True in done else measure_whole(data)
        content = {"source": source, "machine": machine(), "rows": rows}
        TARGET.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
        print(data.name, flush=True)
    print(whole_table(load()), table(load()), sep="\n")


if __name__ == "__main__":
    main()
