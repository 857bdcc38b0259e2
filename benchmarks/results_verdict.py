"""Does the label-free verdict pick well? Labels are used here, and only here, to check it.

python benchmarks/results_verdict.py --data DIR

For each set, either way round (learning from the training classes, then from the test classes),
and for two sets of raw pixels: the recommendation for 32, 64 and 128 dimensions beside the R@1 of
every candidate on classes it has not seen. Advice that was given is kept; --again asks anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, machine
from results_sets import CELLS, DIMS, FeatureSet, commit, feature_sets, parser
from sklearn.datasets import load_digits

from rpml.evaluation.comparison.run import run_cells
from rpml.evaluation.recommendation import SMALLER, recommend
from rpml.evaluation.registry import METHODS

CANDIDATES = ("raw", *SMALLER)
OUTPUT = RESULTS / "verdict.json"
SOURCE = commit()  # when the code was loaded
Row = dict[str, Any]
CHARACTERS = 150  # a side, of the drawings


def checked_sets(folder: Path, names: str) -> Iterator[FeatureSet]:
    """The sets, the same with the sides exchanged, and raw pixels."""
    sets = list(feature_sets(folder, names))
    yield from sets
    for data in sets:
        yield replace(data, name=f"{data.name}-swapped", train=~data.train)
    digits = load_digits()
    yield FeatureSet("digits", digits.data.astype(np.float32), digits.target, digits.target < 5)
    drawings = folder / "omniglot28.npz"
    if drawings.exists():
        yield from (_drawings(drawings, seed) for seed in (0, 1))


def _drawings(path: Path, seed: int) -> FeatureSet:
    """Pixels of 300 characters drawn at random, half of them to learn from."""
    with np.load(path, allow_pickle=False) as file:
        images = next(file[key] for key in file.files if file[key].ndim == 3)
        y = file["char_id"]
    chosen = np.random.default_rng(seed).permutation(np.unique(y))[: 2 * CHARACTERS]
    rows = np.isin(y, chosen)
    X = images[rows].reshape(int(rows.sum()), -1).astype(np.float32)
    return FeatureSet(f"pixels-{seed}", X, y[rows], np.isin(y[rows], chosen[:CHARACTERS]))


def advise(data: FeatureSet, dim: int) -> Row:
    """What the rule says; no label is seen here."""
    start = time.perf_counter()
    advice = recommend(data.X[data.train], dim, random_state=0)
    return {
        "set": data.name,
        "dim": dim,
        "choice": advice.choice,
        "smaller": advice.smaller,
        "certainty": advice.certainty,
        "raw_ratio": advice.raw_ratio,
        "agreement": {name: asdict(value) for name, value in advice.agreement.items()},
        "seconds": round(time.perf_counter() - start, 1),
        "source": SOURCE,
    }


def check(data: FeatureSet, advice: Row) -> Row:
    """The same with what every candidate scores."""
    methods = [METHODS[name] for name in CANDIDATES]
    cache = CELLS / f"{data.name}.jsonl"
    cells = run_cells(data.split, methods, (advice["dim"],), (0,), cache, SOURCE)
    recall = {cell["method"]: cell["r@1"] for cell in cells}
    return advice | {
        "recall": recall,
        "regret_at_size": max(recall[name] for name in SMALLER) - recall[advice["smaller"]],
        "regret_with_raw": max(recall.values()) - recall[advice["choice"]],
    }


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--again", action="store_true", help="measure every row anew")
    given = arguments.parse_args()
    kept = json.loads(OUTPUT.read_text())["rows"] if OUTPUT.exists() and not given.again else []
    rows = {(row["set"], row["dim"]): row for row in kept}
    for data in checked_sets(given.data, given.sets):
        for dim in DIMS:
            if 2 * dim > data.X.shape[1]:
                continue
            key = (data.name, dim)
            rows[key] = check(data, rows.get(key) or advise(data, dim))
            content = {"machine": machine(), "rows": list(rows.values())}
            OUTPUT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
            print(json.dumps(rows[key]), flush=True)


if __name__ == "__main__":
    main()
