"""docs/results-knowledge.md, from results/knowledge.json. Nothing is measured.

python benchmarks/knowledge_page.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from results_page import table

from rpml.method.whitening import constants as const
from rpml.runtime.intervals import mean_interval

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "results-knowledge.md", ROOT / "benchmarks/results/knowledge.json"
CONTROL = "control_"
THRESHOLDS = np.arange(-40, 81) / 10  # standard errors
Row = dict


def by_split(rows: list[Row], figure: str, **chosen) -> dict[str, np.ndarray]:
    """The figures of each set, one per split, of the rows with these values."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if all(row[name] == value for name, value in chosen.items()) and row[figure] is not None:
            found[row["set"]][row["split"]] = row[figure]
    return {name: np.array([cells[s] for s in sorted(cells)]) for name, cells in found.items()}


def change(without: np.ndarray, known: np.ndarray) -> str:
    """Means over the splits, the gain, and the gains of the splits."""
    gains = known - without
    splits = ", ".join(f"{gain:+.1f}" for gain in gains)
    return f"{without.mean():.1f} → {known.mean():.1f} ({splits})"


def mean_change(pairs: list[tuple[np.ndarray, np.ndarray]]) -> str:
    """Mean over the sets, and the 95% interval of the mean gain over them."""
    before, after = (np.array([pair[i].mean() for pair in pairs]) for i in (0, 1))
    gain = mean_interval(after - before)
    return (
        f"{before.mean():.1f} → {after.mean():.1f} "
        f"({gain.value:+.1f}, 95% interval {gain.low:+.1f} to {gain.high:+.1f})"
    )


def lift(rows: list[Row], figure: str, values: tuple[object, object], **chosen: object) -> str:
    """The mean over the sets, without the controls, before and with the knowledge."""
    real = [row for row in rows if not row["set"].startswith(CONTROL)]
    found = [by_split(real, figure, known=value, **chosen) for value in values]
    before, after = (np.mean([cells.mean() for cells in sets.values()]) for sets in found)
    return f"from {before:.1f} to {after:.1f}, mean of {len(found[1])} sets"


def nuisance_lift(results: dict[str, list[Row]]) -> str:
    return lift(results["nuisance"], "recall@1", (False, True))


def query_lift(results: dict[str, list[Row]], dim: int) -> str:
    return lift(results["queries"], "ndcg@10", ("none", "half"), dim=dim)


def nuisance_table(rows: list[Row], peer: list[Row]) -> str:
    """Recall@1 without and with the nuisance, of every set, the controls last; then LEACE's."""
    cells = {
        figure: [by_split(rows, figure, known=known) for known in (False, True)]
        for figure in ("recall@1", "across")
    }
    used, erased = by_split(rows, "used", known=True), by_split(peer, "recall@1")
    names = sorted(used, key=lambda name: (name.startswith(CONTROL), name))
    lines = [
        [
            name,
            *(
                change(*(side[name] for side in sides)) if name in sides[0] else "–"
                for sides in cells.values()
            ),
            f"{int(used[name].sum())} of {len(used[name])}",
            f"{erased[name].mean():.1f}",
        ]
        for name in names
    ]
    real = [name for name in names if not name.startswith(CONTROL)]
    means = [
        mean_change([(without[name], known[name]) for name in real])
        for without, known in cells.values()
    ]
    peers = f"{np.mean([erased[name].mean() for name in real]):.1f}"
    lines.append([f"mean of {len(real)} without controls", *means, "", peers])
    return table(["set", "Recall@1", "among rows of other values", "used", "LEACE, PCA"], lines)


def training_table(rows: list[Row]) -> str:
    """What training across values adds, and its evidence, of every set and split."""
    evidence, gains = by_split(rows, "evidence"), by_split(rows, "gain")
    lines = [
        [name, *(", ".join(f"{x:+.1f}" for x in cells[name]) for cells in (evidence, gains))]
        for name in sorted(gains, key=lambda name: -evidence[name].mean())
    ]
    return table(["set", "evidence, in standard errors", "gain of training"], lines)


def gain_from(rows: list[Row], threshold: float) -> float:
    """The mean gain, over sets and splits, of training where the evidence is above a threshold."""
    return float(np.mean([row["gain"] * (row["evidence"] > threshold) for row in rows]))


def best_threshold(rows: list[Row]) -> float:
    """The threshold of the highest mean gain; of equally good ones the middle one."""
    gains = np.array([gain_from(rows, threshold) for threshold in THRESHOLDS])
    return float(np.median(THRESHOLDS[gains >= gains.max() - 1e-9]))


def left_out(rows: list[Row]) -> str:
    """The threshold chosen on all sources but one, applied to that one; controls choose nothing."""
    real = [row for row in rows if not row["set"].startswith(CONTROL)]
    of_source = defaultdict(list)
    for row in real:
        of_source[row["set"].split("_")[0]].append(row)
    chosen, gained = {}, []
    for source, own in of_source.items():
        chosen[source] = best_threshold([row for row in real if row not in own])
        gained.append(len(own) * gain_from(own, chosen[source]))
    lowest, highest = min(chosen.values()), max(chosen.values())
    return (
        f"Chosen on all of the {len(chosen)} sources but one, and applied to that one, the "
        f"threshold is {lowest:.2f} to {highest:.2f} and the mean gain "
        f"{sum(gained) / len(real):+.2f}; the best one for all of them in hindsight gains "
        f"{gain_from(real, best_threshold(real)):+.2f}, {const.CROSS_TRAINS} gains "
        f"{gain_from(real, const.CROSS_TRAINS):+.2f}, and training always "
        f"{gain_from(real, -np.inf):+.2f}."
    )


def query_table(rows: list[Row], dim: int) -> str:
    """The nDCG@10 without queries, with a few and with half of them, of every set."""
    cells = {
        known: by_split(rows, "ndcg@10", known=known, dim=dim) for known in ("none", "few", "half")
    }
    names = [*cells["none"]]
    lines = [
        [name, *(change(cells["none"][name], cells[known][name]) for known in ("few", "half"))]
        for name in names
    ]
    means = [
        mean_change([(cells["none"][name], cells[known][name]) for name in names])
        for known in ("few", "half")
    ]
    lines.append([f"mean of {len(names)}", *means])
    return table(["set", "20 queries known", "half of them known"], lines)


def page(results: dict[str, list[Row]]) -> str:
    parts = [
        "# A known nuisance, or known queries",
        f"A known nuisance (`nuisance=`) lifts Recall@1 at 64 dimensions {nuisance_lift(results)}; "
        "unlabeled queries (`queries=`), half of which a fit sees, lift nDCG@10 at 128 dimensions "
        f"{query_lift(results, 128)}. Where the evidence does not support them, they change "
        "nothing.",
        "Every set that was measured is shown: the mean without → with the nuisance or the "
        "queries, and in parentheses the gain in each split (`benchmarks/knowledge.py`, one seed). "
        "Generated by `make pages`; do not edit.",
    ]
    if nuisance := results.get("nuisance", []):
        parts += [
            "## Nuisance, 64 dimensions",
            f"Fitted on half of the classes without labels, searched in the other half; "
            f"{splits(nuisance)}. *Used* counts the splits in which the evidence supported it. In "
            "the controls the values are random, the class itself, a coarse class, or depend on "
            "the class. The last column is the Recall@1 of LEACE, a closed-form erasure of the "
            "same values, and PCA to as many dimensions.",
            nuisance_table(nuisance, results["erasure"]),
        ]
    if training := results.get("training", []):
        parts += [
            "### What training on triplets across values adds",
            "Recall@1 of the map with training less that of its whitening alone, in each split, "
            "and the rank gain of held-out rows by which a fit decides: it trains from "
            f"{const.CROSS_TRAINS} standard errors on. Sets whose nuisance is never "
            "used are left out.",
            training_table(training),
            left_out(training),
        ]
    queries = results.get("queries", [])
    for dim in sorted({row["dim"] for row in queries}):
        parts += [
            f"## Queries, {dim} dimensions",
            f"nDCG@10 of the half of the queries that no fit has seen; {splits(queries)}.",
            query_table(queries, dim),
        ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def splits(rows: list[Row]) -> str:
    count = len({row["split"] for row in rows})
    return f"{count} split{'s' if count > 1 else ''} of each set"


def main() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf8"))["results"]
    PAGE.write_text(page(results), encoding="utf8")


if __name__ == "__main__":
    main()
