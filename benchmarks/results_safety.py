"""Is the default ever worse than PCA with few rows, or in fewer or more dimensions?

python benchmarks/results_safety.py --data DIR [--sets A,B]

Whole default fits, three splits of the classes per set: the gain over PCA in Recall@1, on classes
not seen in the fit and on the rows of the fit themselves. results/safety.json is written after
every set, so that an interrupted run goes on where it was; results_page.py makes the table of
docs/results.md from it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import RESULTS, machine
from numpy.typing import NDArray
from results_sets import FeatureSet, commit, feature_sets, parser
from results_zoo import SPLITS, class_split

from rpml.evaluation.metrics import first_hit_rank
from rpml.evaluation.registry import METHODS

TARGET = RESULTS / "safety.json"
ALL = 10**9
ASKED = ((300, 32), (300, 64), (1000, 32), (1000, 64), (1000, 128), (ALL, 16), (ALL, 256))
USES = {"new": "new classes", "searched": "searched rows"}
SCORED = 3000  # rows of new classes
Row = dict[str, Any]


def load() -> list[Row]:
    return json.loads(TARGET.read_text(encoding="utf8"))["rows"] if TARGET.exists() else []


def hits(fitted: Any, X: NDArray[np.float32], y: NDArray[np.integer]) -> float:
    return float((first_hit_rank(fitted.transform(X), y) < 1).mean())


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
            try:
                rpml, pca = (METHODS[m].build(dim, split).fit(data.X[fit]) for m in ("rpml", "pca"))
            except ValueError:  # the rows do not have the rank
                continue
            gain = {
                use: hits(rpml, data.X[rows], data.y[rows]) - hits(pca, data.X[rows], data.y[rows])
                for use, rows in sides.items()
            }
            yield {"set": data.name, "split": split, "rows": n, "dim": dim} | gain


def table(rows: list[Row]) -> str:
    """Markdown: the distribution of the gains over the sets."""
    heads = ["rows", "dimensions", "sets"]
    for use in USES.values():
        heads += [f"{use}: mean gain over PCA", "more than 0.3 below", "worst set"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " ---: |" * len(heads)]
    for n, dim in ASKED:
        own = [row for row in rows if (row["rows"], row["dim"]) == (n, dim)]
        names = sorted({row["set"] for row in own})
        if not names:
            continue
        cells = ["all" if n == ALL else f"{n:,}", str(dim), str(len(names))]
        for use in USES:
            gains = np.array([
                100 * np.mean([row[use] for row in own if row["set"] == name]) for name in names
            ])  # fmt: skip
            worst = f"{gains.min():+.1f} ({names[gains.argmin()]})"
            cells += [f"{gains.mean():+.1f}", f"{(gains < -0.3).mean():.0%}", worst]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    given, source = parser(__doc__ or "").parse_args(), commit()
    for data in feature_sets(given.data, given.sets):
        rows = load()
        if any(row["set"] == data.name for row in rows):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows += measure(data)
        content = {"source": source, "machine": machine(), "rows": rows}
        TARGET.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
        print(data.name, flush=True)
    print(table(load()))


if __name__ == "__main__":
    main()
