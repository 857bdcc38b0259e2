"""How far `recommend(X, bytes=b)` without labels is from the best dimensions and code in hindsight.

python benchmarks/bytes_choice.py --data DIR [--sets A,B] [--rules]

Every set: RPML fitted to at most 6,000 of its rows, at most 5,000 of these searched by each other.
Each code at each size is scored by Recall@1; the loss of a rule is the Recall@1 of the best
configuration less that of the rule's. The best of many is best by chance, too: the product code
that is best by the labels of one half of the queries, as `recommend` chooses with labels, is scored
on the other half, as is the rule, and the difference of these two is a loss without chance in its
favor or disfavor. --rules measures nothing and prints the losses of the stored figures, also those
of other rules, by the dimensions of learned / principal axes. results/bytes_choice.json is written
after every set, so an interrupted run continues.
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

from rpml import RPML
from rpml.evaluation.codes import BYTES, CENTER, LEARNED_SIZE, PRODUCT_SIZES, coded, product_size
from rpml.evaluation.metrics.label_free import NEAREST, neighbor_overlap
from rpml.method.codes import BITS
from rpml.method.graph.heaps import nearest_rows
from rpml.method.whitening.linear_map import principal_axes
from rpml.runtime.rows import sorted_sample, unit_rows

TARGET = RESULTS / "bytes_choice.json"
MAX_ROWS, MAX_SEARCHED = 6000, 5000
SIZES = (16, *PRODUCT_SIZES)
OTHER_RULES = ((64, 128), (64, 192), (128, 128), (128, 192), (128, 256))
NEAR = 0.7  # points
Row = dict[str, Any]


def all_configurations(n_bytes: int, sizes: list[int]) -> list[tuple[int, str]]:
    """Dimensions and codes of a number of bytes."""
    grids = [(8 * n_bytes // bits, output) for output, bits in BITS.items()]
    return [(s, "pq") for s in sizes if s >= n_bytes] + [c for c in grids if c[0] in sizes]


def measure(data: FeatureSet) -> Iterator[Row]:
    sample = sorted_sample(len(data.X), MAX_ROWS, np.random.default_rng(0))
    X = data.X[sample]
    count = min(len(X), MAX_SEARCHED)
    searched = np.sort(np.random.default_rng(3).permutation(len(X))[:count])
    y, raw = data.y[sample][searched], unit_rows(X[searched])
    every, spaces, outcomes = np.arange(count), {}, {}
    most = len(principal_axes(X, unit_input=True).variances)
    for size in SIZES:
        if size <= most:
            model = RPML(size, center=CENTER, random_state=0).fit(X)
            outcomes[size] = model.outcome_
            spaces[size] = unit_rows(np.asarray(model.transform(X[searched]), np.float32))
    near = nearest_rows(raw, raw, NEAREST, own=every)[1]
    base = {"set": data.name, "rows": count, "queries": count}
    base["outcome"] = outcomes[min(max(spaces), LEARNED_SIZE)]
    for n_bytes in BYTES:
        for size, output in all_configurations(n_bytes, list(spaces)):
            decoded = coded(spaces[size], output, n_bytes)
            found = nearest_rows(spaces[size], decoded, NEAREST, own=every)[1]
            right = y[found[:, 0]] == y
            kept = neighbor_overlap(found, near, NEAREST).mean()
            place = {"bytes": n_bytes, "dim": size, "code": output}
            yield {**base, **place, **scores(right, float(kept))}


def scores(right: NDArray[np.bool_], kept: float) -> Row:
    """Recall@1 of all queries and of either half, and the share of the raw neighbors."""
    shares = [100 * float(part.mean()) for part in (right, right[::2], right[1::2])]
    return {"recall": [round(share, 3) for share in shares], "kept": round(100 * kept, 2)}


def rule(codes: list[Row], n_bytes: int, sizes: tuple[int, int] | None) -> Row:
    """The product code that `recommend` takes, or one of given (learned, principal) sizes."""
    learned = codes[0]["outcome"].startswith("learned")
    size = product_size(n_bytes, learned)
    if sizes is not None:
        size = max(n_bytes, sizes[0] if learned else sizes[1])
    return min(codes, key=lambda c: abs(np.log(c["dim"] / size)))


def losses(
    rows: list[Row], n_bytes: int, sizes: tuple[int, int] | None = None
) -> dict[str, list[float]]:
    """Points lost per set: by the rule, by one half's best on the other, and the difference."""
    names = "rule", "labels of the other half", "rule, to labels of the other half"
    lost: dict[str, list[float]] = {name: [] for name in names}
    for name in sorted({row["set"] for row in rows}):
        cells = [row for row in rows if (row["set"], row["bytes"]) == (name, n_bytes)]
        codes = [cell for cell in cells if cell["code"] == "pq"]
        if not codes:
            continue
        taken = rule(codes, n_bytes, sizes)["recall"]
        best = np.max([cell["recall"] for cell in cells], axis=0)
        lost["rule"].append(best[0] - taken[0])
        halves = ((1, 2), (2, 1))
        chosen = [
            max(codes, key=lambda c, k=k: c["recall"][k])["recall"][part] for part, k in halves
        ]
        lost["labels of the other half"].append(float(np.mean(best[1:] - chosen)))
        lost["rule, to labels of the other half"].append(
            float(np.mean(chosen) - np.mean(taken[1:]))
        )
    return lost


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--rules", action="store_true", help="print losses, measure nothing")
    given, source = arguments.parse_args(), commit()
    for data in () if given.rules else feature_sets(given.data, given.sets):
        rows = json.loads(TARGET.read_text())["rows"] if TARGET.exists() else []
        if any(row["set"] == data.name for row in rows):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows += measure(data)
        content = {"source": source, "machine": machine(), "rows": rows}
        TARGET.write_text(json.dumps(content) + "\n", encoding="utf8")
        print(data.name, flush=True)
    rows = json.loads(TARGET.read_text())["rows"]
    for n_bytes in BYTES:
        found = losses(rows, n_bytes)
        found |= {f"{a} / {b}": losses(rows, n_bytes, (a, b))["rule"] for a, b in OTHER_RULES}
        for name, lost in found.items():
            share = np.mean(np.array(lost) <= NEAR)
            print(f"{n_bytes} bytes, {name}: {np.mean(lost):.2f}, {share:.0%} within {NEAR}")


if __name__ == "__main__":
    main()
