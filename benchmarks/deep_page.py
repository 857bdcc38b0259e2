"""Write the table of docs/deep.md from benchmarks/results/cub130_deep.json."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from common import RESULTS

from rpml.comparison.bootstrap import Interval, interval, paired

PAGE = Path(__file__).parent.parent / "docs" / "deep.md"
BEGIN, END = "<!-- table: python benchmarks/deep_page.py -->", "<!-- end of the table -->"
Row = dict[str, object]


def by_method(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row["method"]), []).append(row)
    return found


def hits(rows: list[Row]) -> np.ndarray:
    """Share of the seeds in which each query was answered rightly."""
    return np.mean([[int(c) for c in str(row["hits"])] for row in rows], axis=0)


def mean(rows: list[Row], name: str) -> float:
    return float(np.mean([float(str(row[name])) for row in rows]))


def shown(found: Interval) -> str:
    text = f"{100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
    return f"**{text}**" if found.clear else text


def line(name: str, rows: list[Row], best: np.ndarray, reference: bool) -> str:
    own = hits(rows)
    gain = "" if reference else shown(paired(own, best, np.random.default_rng(0)))
    spread = interval(own, np.random.default_rng(0))
    cells = [
        str(rows[0]["title"]),
        "yes" if rows[0]["uses_labels"] else "no",
        str(rows[0]["dim"]),
        str(len(rows)),
        f"{100 * spread.value:.1f} [{100 * spread.low:.1f}, {100 * spread.high:.1f}]",
        f"{100 * mean(rows, 'nmi'):.1f}",
        gain,
        f"{mean(rows, 'seconds'):.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def table(rows: list[Row]) -> str:
    found = by_method(rows)
    frozen = {name: own for name, own in found.items() if name == "frozen rpml"}
    reference = next(iter(frozen))
    best = hits(found[reference])
    header = ["method", "labels", "dim", "seeds", "R@1", "NMI", "R@1 less frozen RPML's", "seconds"]
    lines = ["| " + " | ".join(header) + " |", "|---|---|---:|---:|---:|---:|---:|---:|"]
    order = sorted(found, key=lambda name: -float(hits(found[name]).mean()))
    lines += [line(name, found[name], best, name == reference) for name in order]
    return "\n".join(lines)


def main() -> None:
    rows = json.loads((RESULTS / "cub130_deep.json").read_text(encoding="utf8"))["rows"]
    text = PAGE.read_text(encoding="utf8")
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}\n{table(rows)}\n{END}{tail}", encoding="utf8")
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
