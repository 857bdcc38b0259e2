"""Do a few labels ever make a fit worse than none, on labeled classes or on new ones?

python benchmarks/few_labels.py --data DIR [--sets A,B]

Fitted to at most 2,000 rows of half of the classes at 64 dimensions, of which 50, 150 or 500 have
their label: the Recall@1 of the rows without one and of rows of the other classes, minus that of
the fit without labels. results/few_labels.json is written after every set, so that an interrupted
run goes on where it was; decisions_page.py makes the table of docs/decisions/labels.md from it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import RESULTS, machine
from numpy.typing import NDArray
from results_sets import FeatureSet, commit, feature_sets, parser, set_gains
from results_zoo import class_split

from rpml import RPML
from rpml.evaluation.metrics import first_hit_rank

TARGET = RESULTS / "few_labels.json"
DIM, ROWS = 64, 2000
SPLITS = (0, 2)
BUDGETS = (50, 150, 500)
USES = {"unlabeled": "unlabeled rows", "new": "new classes"}
Row = dict[str, Any]


def load() -> list[Row]:
    return json.loads(TARGET.read_text(encoding="utf8"))["rows"] if TARGET.exists() else []


def hits(fitted: Any, X: NDArray[np.float32], y: NDArray[np.integer]) -> NDArray[np.bool_]:
    return np.asarray(first_hit_rank(fitted.transform(X), y) < 1)


def measure(data: FeatureSet) -> Iterator[Row]:
    """One row per split and number of labels."""
    dim = min(DIM, data.X.shape[1] // 2)
    for split in SPLITS:
        train, rng = class_split(data, split), np.random.default_rng(split)
        seen, new = (rng.permutation(np.flatnonzero(side))[:ROWS] for side in (train, ~train))
        X, y = data.X[seen], np.unique(data.y[seen], return_inverse=True)[1]
        sides = (X, y), (data.X[new], data.y[new])
        without = RPML(dim, random_state=split).fit(X)
        before = [hits(without, *side) for side in sides]
        for budget in (budget for budget in BUDGETS if budget <= 0.6 * len(X)):
            labels = np.full(len(y), -1)
            labeled = rng.permutation(len(y))[:budget]
            labels[labeled] = y[labeled]
            model = RPML(dim, random_state=split, use_labels=True).fit(X, labels)
            inside, outside = (
                after.astype(float) - one
                for after, one in zip((hits(model, *side) for side in sides), before, strict=True)
            )
            yield {
                "set": data.name,
                "split": split,
                "labels": budget,
                "used": "labels" in model.whitening_.source,
                "unlabeled": float(inside[labels < 0].mean()),
                "new": float(outside.mean()),
            }


def table(rows: list[Row]) -> list[str]:
    """Markdown: the distribution of the gains over the sets, means over the splits."""
    heads = ["labels", "sets", "used"]
    for use in USES.values():
        heads += [f"{use}: mean gain", "more than 0.5 below", "worst set"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " ---: |" * len(heads)]
    for budget in BUDGETS:
        own = [row for row in rows if row["labels"] == budget]
        n_sets, used = len({row["set"] for row in own}), np.mean([row["used"] for row in own])
        cells = [str(budget), str(n_sets), f"{used:.0%}"]
        for use in USES:
            gains, worst = set_gains(own, use)
            cells += [f"{gains.mean():+.1f}", f"{(gains < -0.5).sum()}", worst]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    given, source = parser(__doc__ or "").parse_args(), commit()
    for data in feature_sets(given.data, given.sets):
        rows = load()
        if data.name in {row["set"] for row in rows}:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows += measure(data)
        content = {"source": source, "machine": machine(), "rows": rows}
        TARGET.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
        print(data.name, flush=True)
    print("\n".join(table(load())))


if __name__ == "__main__":
    main()
