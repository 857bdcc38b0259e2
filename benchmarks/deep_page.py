"""Write the tables of docs/results-deep.md and of docs/decisions/end-to-end.md from the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS

from rpml.runtime.intervals import Interval, interval, paired

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- table: python benchmarks/deep_page.py -->", "<!-- end of the table -->"
SMALL = "<!-- table: python benchmarks/deep_page.py, cub130_deep_small.json -->"
START = "frozen rpml"
Row = dict[str, Any]
CORRECTED = ("mom", "stml", "triplet-daml", "triplet-hdml")
"""Methods corrected since their rows without a revision were measured."""


def by_method(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row["method"]), []).append(row)
    return found


def hits(rows: list[Row]) -> np.ndarray:
    """Fraction of the seeds that answered each query correctly."""
    return np.mean([[int(c) for c in str(row["hits"])] for row in rows], axis=0)


def mean(rows: list[Row], name: str) -> float:
    return float(np.mean([float(str(row[name])) for row in rows]))


def centered(values: np.ndarray, resampled: np.ndarray) -> Interval:
    """The value with the spread of the resampled values around their mean."""
    low, high = np.quantile(resampled - resampled.mean(), [0.025, 0.975])
    value = float(values.mean())
    return Interval(value, value + float(low), value + float(high))


def nmi(rows: list[Row], reference: list[Row] | None = None) -> Interval:
    """NMI over the seeds, or its gain over that of other rows."""
    value = np.array([mean(rows, "nmi")])
    again = np.mean([row["nmi_resampled"] for row in rows], axis=0)
    if reference is None:
        return centered(value, again)
    other = np.mean([row["nmi_resampled"] for row in reference], axis=0)
    return centered(value - mean(reference, "nmi"), again - other)


def score(found: Interval) -> str:
    return f"{100 * found.value:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def gain(found: Interval) -> str:
    text = f"{100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
    return f"**{text}**" if found.clear else text


def title(rows: list[Row]) -> str:
    """The title, with a dagger if a row is older than the code of its method."""
    old = any(row["method"] in CORRECTED and "revision" not in row for row in rows)
    return f"{rows[0]['title']} †" if old else str(rows[0]["title"])


def line(rows: list[Row], start: list[Row]) -> str:
    own, rng = hits(rows), np.random.default_rng(0)
    same = rows is start
    cells = [
        title(rows),
        "yes" if rows[0]["uses_labels"] else "no",
        str(rows[0]["dim"]),
        str(len(rows)),
        score(interval(own, rng)),
        score(nmi(rows)),
        "" if same else gain(paired(own, hits(start), rng)),
        "" if same else gain(nmi(rows, start)),
        f"{mean(rows, 'seconds'):.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def start_of(rows: list[Row], found: dict[str, list[Row]]) -> list[Row]:
    """The linear RPML of the same seeds, where training started."""
    if str(rows[0]["method"]).startswith("frozen"):
        return found[START]
    seeds = [row["seed"] for row in rows]
    return [row for row in found[START] if row["seed"] in seeds]


def table(rows: list[Row]) -> str:
    found = by_method(rows)
    header = "method | labels | dim | seeds | R@1 | NMI | R@1 gain | NMI gain | seconds"
    lines = [f"| {header} |", "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    order = sorted(found, key=lambda name: -float(hits(found[name]).mean()))
    return "\n".join(lines + [line(found[name], start_of(found[name], found)) for name in order])


def against(rows: list[Row], method: str = "srpml") -> str:
    """One method against each kind of frozen features."""
    found = by_method(rows)
    lines = ["| gain of sRPML over | R@1 | NMI |", "|---|---:|---:|"]
    for name in [name for name in found if name.startswith("frozen")]:
        rng = np.random.default_rng(0)
        recall = paired(hits(found[method]), hits(found[name]), rng)
        other = nmi(found[method], found[name])
        lines.append(f"| {found[name][0]['title']} | {gain(recall)} | {gain(other)} |")
    return "\n".join(lines)


def choice(rows: list[Row]) -> str:
    """Gain of each recipe on either half of the training classes."""
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        found.setdefault(str(row["recipe"]), {})[int(row["fold"])] = row
    frozen = found.pop("frozen")
    lines = ["| recipe | R@1, first half | second half | NMI, first half | second half |"]
    lines.append("|---|---:|---:|---:|---:|")
    cells = [f"{100 * frozen[fold][name]:.1f}" for name in ("r1", "nmi") for fold in (0, 1)]
    lines.append(" | ".join(["| frozen, linear RPML", *cells]) + " |")
    for recipe, halves in found.items():
        gained = [
            f"{100 * (halves[fold][name] - frozen[fold][name]):+.1f}" if fold in halves else ""
            for name in ("r1", "nmi")
            for fold in (0, 1)
        ]
        lines.append(" | ".join([f"| {recipe}", *gained]) + " |")
    return "\n".join(lines)


def read(name: str) -> list[Row]:
    rows: list[Row] = json.loads((RESULTS / name).read_text(encoding="utf8"))["rows"]
    return rows


def replace_table(page: Path, made: str, begin: str = BEGIN) -> None:
    """Replace what stands between the marker `begin` and the next end marker."""
    head, rest = page.read_text(encoding="utf8").split(begin)
    tail = rest.split(END, 1)[1]
    page.write_text(f"{head}{begin}\n{made}\n{END}{tail}", encoding="utf8")
    print(f"written to {page}")


def main() -> None:
    rows = read("cub130_deep.json")
    replace_table(DOCS / "results-deep.md", f"{table(rows)}\n\n{against(rows)}")
    replace_table(DOCS / "results-deep.md", table(read("cub130_deep_small.json")), SMALL)
    replace_table(DOCS / "decisions" / "end-to-end.md", choice(read("cub130_deep_choice.json")))


if __name__ == "__main__":
    main()
