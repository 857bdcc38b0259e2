"""Write the tables of docs/results-deep*.md and docs/decisions/end-to-end.md from the results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS

from rpml.runtime.intervals import Interval

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- table: python benchmarks/deep_page.py{} -->", "<!-- end of the table -->"
START = "frozen rpml, views as groups"  # where training starts
Row = dict[str, Any]


def grouped(rows: Sequence[Row], name: str) -> dict[str, list[Row]]:
    """Rows by one of their fields."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row[name]), []).append(row)
    return found


def estimate(
    rows: Sequence[Row], name: str, kind: str, reference: Sequence[Row] | None = None
) -> Interval:
    """Mean of a score over rows, or its gain over other rows, with its 95% bootstrap interval.

    `kind`: what was resampled, "images" or "classes". The interval has the spread of the
    resampled values around their mean: NMI on resampled rows is biased.
    """
    value, drawn = 0.0, np.zeros(1)
    for sign, side in ((1, rows), (-1, reference or ())):
        if side:
            value += sign * float(np.mean([row[name] for row in side]))
            drawn = drawn + sign * np.mean([row[f"{name}_{kind}"] for row in side], axis=0)
    low, high = np.quantile(drawn - drawn.mean(), [0.025, 0.975])
    return Interval(value, value + float(low), value + float(high))


def score(found: Interval) -> str:
    return f"{100 * found.value:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def gain(found: Interval) -> str:
    text = f"{100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
    return f"**{text}**" if found.clear else text


def matching(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """Of other rows, for each row that of the same problem and seed, or of the problem alone."""
    found = []
    for row in rows:
        same = [other for other in others if other["problem"] == row["problem"]]
        found.append(next((other for other in same if other["seed"] == row["seed"]), same[0]))
    return found


def spread(rows: Sequence[Row], name: str) -> str:
    """Lowest to highest over the seeds or splits."""
    values = [100 * row[name] for row in rows]
    return f"{min(values):.1f} to {max(values):.1f}" if len(values) > 1 else ""


def method_table(rows: Sequence[Row], seconds: bool) -> str:
    """One line per method: scores, gains over where training started."""
    found = grouped(rows, "method")
    columns = ["method", "labels", "rate", "R@1", "seeds", "NMI", "R@1 gain", "NMI gain"]
    if not seconds:
        columns[4] = "splits"
    lines = ["| " + " | ".join(columns) + (" | CPU s |" if seconds else " |")]
    lines.append("|---|---|---:|---:|---:|---:|---:|---:|" + ("---:|" if seconds else ""))
    for own in sorted(found.values(), key=lambda own: -np.mean([row["r1"] for row in own])):
        start = matching(own, found[START])
        same = own is found[START]
        rate = own[0]["learning_rate"]
        cells = [
            own[0]["title"],
            "yes" if own[0]["uses_labels"] else "no",
            f"{rate:g}" if rate else "",
            score(estimate(own, "r1", "images")),
            spread(own, "r1"),
            score(estimate(own, "nmi", "images")),
            "" if same else gain(estimate(own, "r1", "images", start)),
            "" if same else gain(estimate(own, "nmi", "images", start)),
        ]
        if seconds:
            cells.append(f"{np.mean([row['seconds'] for row in own]):.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def against_table(rows: Sequence[Row], method: str = "srpml") -> str:
    """Gain of one method over each other, with intervals over images and over classes."""
    found = grouped(rows, "method")
    lines = ["| gain of sRPML over | R@1, images | R@1, classes | NMI, images | NMI, classes |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, other in found.items():
        if name != method:
            pairs = matching(found[method], other)
            cells = [
                gain(estimate(found[method], score, kind, pairs))
                for score in ("r1", "nmi")
                for kind in ("images", "classes")
            ]
            lines.append(f"| {other[0]['title']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def rates_table(rows: Sequence[Row]) -> str:
    """Gain in R@1 / NMI over the start at each learning rate, mean of the halves measured."""
    found = grouped(rows, "method")
    rates = sorted({row["learning_rate"] for row in rows if row["learning_rate"]})
    lines = ["| method | " + " | ".join(f"{rate:g}" for rate in rates) + " |"]
    lines.append("|---|" + "---:|" * len(rates))
    for name, own in found.items():
        if name.startswith("frozen"):
            continue
        sums, cells = {}, {}
        for rate in rates:
            tried = [row for row in own if row["learning_rate"] == rate]
            if tried:
                start = matching(tried, found[START])
                both = [
                    100 * float(np.mean([r[s] for r in tried]) - np.mean([r[s] for r in start]))
                    for s in ("r1", "nmi")
                ]
                sums[rate], cells[rate] = sum(both), f"{both[0]:+.1f} / {both[1]:+.1f}"
        best = max(sums, key=lambda rate: sums[rate])
        cells[best] = f"**{cells[best]}**"
        row = " | ".join(cells.get(rate, "") for rate in rates)
        lines.append(f"| {own[0]['title']} | {row} |")
    return "\n".join(lines)


def pipeline_table(rows: Sequence[Row]) -> str:
    """The linear RPML on descriptors before and after training, with and without views."""
    found = grouped(rows, "method")
    reference = found["frozen, the image alone"]
    lines = ["| descriptors | R@1 | NMI | R@1 gain | NMI gain |", "|---|---:|---:|---:|---:|"]
    for own in found.values():
        scores = [score(estimate(own, name, "images")) for name in ("r1", "nmi")]
        gains = ["", ""]
        if own is not reference:
            gains = [gain(estimate(own, name, "images", reference)) for name in ("r1", "nmi")]
        lines.append(f"| {own[0]['title']} | " + " | ".join(scores + gains) + " |")
    return "\n".join(lines)


def choice_table(rows: Sequence[Row]) -> str:
    """Gain of each recipe on either half of the training classes."""
    frozen = {row["problem"]: row for row in rows if row.get("method") == START}
    halves = sorted(frozen)
    lines = ["| recipe | R@1, first half | second half | NMI, first half | second half |"]
    lines.append("|---|---:|---:|---:|---:|")
    cells = [f"{100 * frozen[half][name]:.1f}" for name in ("r1", "nmi") for half in halves]
    lines.append(" | ".join(["| frozen, linear RPML", *cells]) + " |")
    for recipe, own in grouped([row for row in rows if "recipe" in row], "recipe").items():
        by_half = {row["problem"]: row for row in own}
        gained = [
            f"{100 * (by_half[half][name] - frozen[half][name]):+.1f}" if half in by_half else ""
            for name in ("r1", "nmi")
            for half in halves
        ]
        lines.append(" | ".join([f"| {recipe}", *gained]) + " |")
    return "\n".join(lines)


VARIANTS = {  # recipes of deep_choice.py that explain a method's loss
    "nce": ("NCE, memory from the first view", "NCE, a tenth of its loss"),
    "lifted": ("Lifted, a tenth of its loss",),
    "mom": ("MOM, only triplets of correct classes",),
}


def variants_table(rows: Sequence[Row], recipes: Sequence[Row], half: str = "half 1") -> str:
    """Gain over the start of methods and of their variants, on one half of the classes."""
    lines = ["| first half of the training classes | R@1 gain | NMI gain |", "|---|---:|---:|"]

    def add(title: str, row: Row, others: Sequence[Row]) -> None:
        start = next(r for r in others if (r["problem"], r.get("method")) == (half, START))
        gains = (f"{100 * (row[name] - start[name]):+.1f}" for name in ("r1", "nmi"))
        lines.append(f"| {title} | {' | '.join(gains)} |")

    for method, changed in VARIANTS.items():
        tried = [r for r in rows if (r["problem"], r["method"]) == (half, method)]
        best = max(tried, key=lambda row: row["r1"] + row["nmi"])  # of the learning rates
        add(best["title"], best, rows)
        for recipe in changed:
            add(
                recipe,
                next(r for r in recipes if (r["problem"], r.get("recipe")) == (half, recipe)),
                recipes,
            )
    return "\n".join(lines)


def read(name: str) -> list[Row]:
    rows: list[Row] = json.loads((RESULTS / name).read_text(encoding="utf8"))["rows"]
    return rows


def replace_table(page: Path, made: str, begin: str = BEGIN.format("")) -> None:
    """Replace what stands between the marker `begin` and the next end marker."""
    head, rest = page.read_text(encoding="utf8").split(begin)
    tail = rest.split(END, 1)[1]
    page.write_text(f"{head}{begin}\n{made}\n{END}{tail}", encoding="utf8")
    print(f"written to {page}")


def main() -> None:
    page, details = DOCS / "results-deep.md", DOCS / "results-deep-details.md"
    rows, recipes = read("cub130_deep.json"), read("cub130_deep_choice.json")

    def of(prefix: str) -> list[Row]:
        return [row for row in rows if row["problem"].startswith(prefix)]

    made = {
        "": method_table(of("test"), seconds=True),
        ", splits": method_table(of("split"), seconds=False),
        ", sRPML": against_table(of("split")),
        ", pipeline": pipeline_table(of("pipeline")),
    }
    for name, table in made.items():
        replace_table(page, table, BEGIN.format(name))
    replace_table(details, rates_table(of("half")), BEGIN.format(", rates"))
    replace_table(details, variants_table(of("half"), recipes), BEGIN.format(", variants"))
    replace_table(DOCS / "decisions" / "end-to-end.md", choice_table(recipes))


if __name__ == "__main__":
    main()
