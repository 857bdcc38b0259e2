"""How far `recommend(X, bytes=b)` without labels is from the best dimensions and code in hindsight.

python benchmarks/bytes_choice.py --data DIR [--sets A,B] [--rules]

Every set, at most 4,000 of its rows, searched by all of them: each code at each size is scored by
Recall@1. --rules measures nothing and compares, on the stored figures, sizes of the product codes
that depend on the bytes alone; the loss is the Recall@1 of the best configuration less that of the
rule. results/bytes_choice.json is written after every set, so an interrupted run continues.
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
from rpml.evaluation.codes import BYTES, coded
from rpml.evaluation.metrics.label_free import NEAREST, neighbor_overlap
from rpml.method.codes import BITS
from rpml.method.graph.heaps import nearest_rows
from rpml.method.whitening.linear_map import principal_axes
from rpml.runtime.rows import sorted_sample, unit_rows

TARGET = RESULTS / "bytes_choice.json"
MAX_ROWS, MAX_QUERIES, MAX_SIZE = 4000, 1000, 512
AXES_PER_BYTE = (1, 2, 4, 8, 16, 32)  # of the product codes
NEAR = 0.7  # points
Row = dict[str, Any]


def all_configurations(n_bytes: int, most: int) -> list[tuple[int, str]]:
    """Dimensions and codes of a number of bytes."""
    found = [(8 * n_bytes // bits, output) for output, bits in BITS.items()]
    found += [(n_bytes * axes, "pq") for axes in AXES_PER_BYTE]
    found += [(most, "pq")] if n_bytes <= most <= 64 else []
    return sorted({c for c in found if c[0] <= min(most, MAX_SIZE)})


def measure(data: FeatureSet) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    sample = sorted_sample(len(data.X), MAX_ROWS, rng)
    X, y = data.X[sample], data.y[sample]
    asked = sorted_sample(len(X), MAX_QUERIES, rng)
    everyone = np.arange(len(X))
    most = len(principal_axes(X, unit_input=True, center=True).variances)
    configurations = [(n, *c) for n in BYTES for c in all_configurations(n, most)]
    spaces, found = {}, {}
    raw = unit_rows(X)
    found["raw"] = nearest_rows(raw, raw, NEAREST, own=everyone)[1]
    for size in sorted({c[1] for c in configurations}):
        model = RPML(size, random_state=0).fit(X)
        spaces[size] = unit_rows(np.asarray(model.transform(X), np.float32))
        found[str(size)] = nearest_rows(spaces[size], spaces[size], NEAREST, own=everyone)[1]
    base = {"set": data.name, "rows": len(X), "features": X.shape[1], "most": most}
    for name, near in found.items():
        yield {**base, "bytes": 0, "dim": name, "code": "float", **scores(near, found, y, asked)}
    for n_bytes, size, output in configurations:
        decoded = coded(spaces[size], output, n_bytes)
        near = nearest_rows(spaces[size], decoded, NEAREST, own=everyone)[1]
        place = {"bytes": n_bytes, "dim": size, "code": output}
        yield {**base, **place, **scores(near, found, y, asked)}


def scores(
    near: NDArray[np.intp],
    references: dict[str, NDArray[np.intp]],
    y: NDArray[np.integer],
    asked: NDArray[np.intp],
) -> Row:
    """Recall@1 of all rows, and the shares of the neighbors by each float space of some."""
    kept = {
        name: round(float(neighbor_overlap(near[asked], other[asked], NEAREST).mean()), 4)
        for name, other in references.items()
    }
    return {"recall": round(float(np.mean(y[near[:, 0]] == y)), 5), "kept": kept}


def losses(rows: list[Row], axes: int, least: int) -> dict[tuple[str, int], float]:
    """Points lost by product codes of max(least, axes * bytes) dimensions, by set and bytes."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row["bytes"]:
            found.setdefault((row["set"], row["bytes"]), []).append(row)
    out = {}
    for (name, n_bytes), cells in found.items():
        size = min(cells[0]["most"], max(least, axes * n_bytes))
        codes = [c for c in cells if c["code"] == "pq"]
        if codes:
            taken = min(codes, key=lambda c: abs(np.log(c["dim"] / size)))
            best = max(c["recall"] for c in cells)
            out[name, n_bytes] = 100 * (best - taken["recall"])
    return out


def compare_rules(rows: list[Row]) -> None:
    """Print the losses of each rule, and of the one that is best without each source of sets."""
    rules = {(a, n): losses(rows, a, n) for a in (2, 4, 8, 16) for n in (32, 64, 128)}
    for (axes, least), lost in rules.items():
        by_size = {n: [v for (_, b), v in lost.items() if b == n] for n in BYTES}
        text = "; ".join(
            f"{n} bytes {np.mean(v):.2f}, {np.mean(np.array(v) <= NEAR):.0%} within {NEAR}"
            for n, v in by_size.items()
        )
        print(f"max({least}, {axes} per byte): {text}")
    left_out = []
    for source in sorted({row["set"].split("_")[0] for row in rows}):

        def elsewhere(rule: tuple[int, int], source: str = source) -> float:
            lost = rules[rule].items()
            return float(np.mean([v for (s, _), v in lost if s.split("_")[0] != source]))

        chosen = rules[min(rules, key=elsewhere)]
        left_out += [v for (s, _), v in chosen.items() if s.split("_")[0] == source]
    share = np.mean(np.array(left_out) <= NEAR)
    print(f"chosen without the source: {np.mean(left_out):.2f}, {share:.0%} within {NEAR}")


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--rules", action="store_true", help="compare rules, measure nothing")
    given, source = arguments.parse_args(), commit()
    if given.rules:
        compare_rules(json.loads(TARGET.read_text())["rows"])
        return
    for data in feature_sets(given.data, given.sets):
        rows = json.loads(TARGET.read_text())["rows"] if TARGET.exists() else []
        if any(row["set"] == data.name for row in rows):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows += measure(data)
        content = {"source": source, "machine": machine(), "rows": rows}
        TARGET.write_text(json.dumps(content) + "\n", encoding="utf8")
        print(data.name, flush=True)


if __name__ == "__main__":
    main()
