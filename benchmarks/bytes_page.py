"""docs/results-bytes.md and its figure, from results/bytes.json. Nothing is measured.

python benchmarks/bytes_page.py
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from bytes import TARGET, Row, load
from results_page import table

DOCS = Path(__file__).parent.parent / "docs"
PAGE, FIGURE = DOCS / "results-bytes.md", DOCS / "figures" / "bytes.svg"
USES = {
    "searched": "Fitted on the rows that are searched",
    "new": "The map fitted on other classes than those searched",
    "queries": "Documents searched by real queries, nDCG@10",
}
SHOWN = ("RPML, pq", "PCA, pq", "faiss OPQ")
COLORS = ("#1f6feb", "#8b949e", "#d1701e")
OURS, PEER = "RPML, pq", "faiss OPQ"
MACHINE = json.loads(TARGET.read_text())["machine"]["cpu"] if TARGET.exists() else ""
FEWEST_SETS = 5
FAMILIES = ("RPML", "PCA", "tempered", "mean", "faiss", "first")  # in which tables list them
FAMILY_CODES = ("pq", "int2", "int4", "int8", "binary")
WIDTH, HEIGHT, MARGIN, LINE = 640, 320, 48, 16


def by_system(rows: list[Row], use: str) -> dict[str, dict[int, dict[str, Row]]]:
    """Rows by system, bytes and set."""
    found: dict[str, dict[int, dict[str, Row]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row["use"] == use and row["system"] != "raw":
            found[row["system"]][row["bytes"]][row["set"]] = row
    return found


def place(system: str) -> tuple[int, int, str]:
    """Where a system stands in a table: our codes first, those of one map together."""
    family, code = system.split()[0].rstrip(","), system.split(", ")[-1]
    rank = FAMILY_CODES.index(code) if code in FAMILY_CODES else 0
    return FAMILIES.index(family), rank, system


def raw_rows(rows: list[Row], use: str) -> dict[str, Row]:
    return {r["set"]: r for r in rows if r["use"] == use and r["system"] == "raw"}


def gains(cells: dict[str, Row], raw: dict[str, Row]) -> np.ndarray:
    """Points of Recall@1 over the raw vectors, per set."""
    return np.array([100 * (row["recall"] - raw[name]["recall"]) for name, row in cells.items()])


def use_table(rows: list[Row], use: str) -> str:
    """Mean gain over raw, neighbors kept and seconds, per system and bytes."""
    raw, lines = raw_rows(rows, use), []
    systems = by_system(rows, use)
    sizes = sorted({n for cells in systems.values() for n in cells})
    for system in sorted(systems, key=place):
        cells, line = systems[system], [system]
        for n in sizes:
            if n not in cells or len(cells[n]) < len(raw) / 2:
                line.append("–")
                continue
            kept = 100 * np.mean([row["kept"] for row in cells[n].values()])
            few = "" if len(cells[n]) == len(raw) else f" ({len(cells[n])} sets)"
            line.append(f"{gains(cells[n], raw).mean():+.1f} / {kept:.0f}{few}")
        if set(line[1:]) == {"–"}:  # measured on few sets only
            continue
        lines.append([*line, seconds_text(r for by_set in cells.values() for r in by_set.values())])
    header = ["code", *(f"{n} bytes" for n in sizes), "seconds"]
    return table(header, lines)


def seconds_text(rows: Iterable[Row]) -> str:
    """The median seconds of the rows that the newest machine measured."""
    seconds = [row["seconds"] for row in rows if row["cpu"] == MACHINE]
    return f"{np.median(seconds):.1f}" if seconds else "–"


def against_peer(rows: list[Row], use: str) -> str:
    """How our codes compare with the best peer, set by set."""
    systems = by_system(rows, use)
    parts = []
    for n in sorted(systems[OURS]):
        ours, peer = systems[OURS][n], systems[PEER].get(n, {})
        both = [name for name in ours if name in peer]
        if both:
            lead = np.array([100 * (ours[s]["recall"] - peer[s]["recall"]) for s in both])
            together = [s for s in both if ours[s]["cpu"] == peer[s]["cpu"]]
            times = [peer[s]["seconds"] / ours[s]["seconds"] for s in together]
            parts.append(
                f"{n} bytes: {lead.mean():+.1f} points, above it on {np.sum(lead > 0)} of "
                f"{len(both)} sets"
                + (f", fitted {np.median(times):.1f} times as fast" if times else "")
            )
    return "; ".join(parts)


def meaning(rows: list[Row]) -> str:
    """What the page says: the gain at each size, and its price."""
    raw, cells = raw_rows(rows, "searched"), by_system(rows, "searched")[OURS]
    lines = []
    for n in sorted(cells):
        over, kept = gains(cells[n], raw), np.mean([row["kept"] for row in cells[n].values()])
        below = f"{np.sum(over < 0)} of {len(over)}"
        worst = f"{over.min():+.1f} ({list(cells[n])[over.argmin()]})"
        lines.append([str(n), f"{over.mean():+.1f}", below, worst, f"{kept:.0%}"])
    header = ["bytes", "mean gain", "sets below raw", "worst set", "raw neighbors kept"]
    return (
        "On average, product codes of the learned map find the right neighbor more often than the "
        "raw vectors do. Recall@1 less that of the raw vectors, in points:\n\n"
        + table(header, lines)
    )


def picture(rows: list[Row]) -> str:
    """Recall@1 over bytes, means over the sets that every shown system has."""
    raw, systems = raw_rows(rows, "searched"), by_system(rows, "searched")
    sizes = sorted(set.intersection(*(set(systems[name]) for name in SHOWN)))
    sets = set.intersection(*(set(systems[name][n]) for name in SHOWN for n in sizes))
    lines = {
        name: [100 * np.mean([systems[name][n][s]["recall"] for s in sets]) for n in sizes]
        for name in SHOWN
    }
    level = 100 * np.mean([raw[s]["recall"] for s in sets])
    values = [level, *(v for line in lines.values() for v in line)]
    low, high = np.floor(min(values)) - 1, np.ceil(max(values)) + 1
    high += (high - low) % 2  # so that the middle is a whole number, too

    def x(i: int) -> float:
        return MARGIN + i * (WIDTH - 4 * MARGIN) / max(1, len(sizes) - 1)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - (value - low) / (high - low) * (HEIGHT - 2 * MARGIN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f"<title>Recall@1 over bytes per vector, mean of {len(sets)} sets</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="24">Recall@1 (%), mean of {len(sets)} sets, by bytes per vector'
        "</text>",
        f'<path d="M{x(0)} {y(level):.1f}H{x(len(sizes) - 1):.1f}" stroke="#555" '
        'stroke-dasharray="5 4"/>',
        f'<text x="{x(0) + 4:.1f}" y="{y(level) - 6:.1f}">raw float32</text>',  # lines end right
    ]
    for value in (low, (low + high) / 2, high):
        parts.append(f'<text x="8" y="{y(value) + 4:.1f}">{value:.0f}</text>')
    for i, n in enumerate(sizes):
        parts.append(f'<text x="{x(i) - 6:.1f}" y="{HEIGHT - 16}">{n}</text>')
    ends = {name: y(line[-1]) + 4 for name, line in lines.items()}
    names = sorted(ends, key=ends.__getitem__)
    for above, below in itertools.pairwise(names):  # a name does not lie on another one
        ends[below] = max(ends[below], ends[above] + LINE)
    for (name, line), color in zip(lines.items(), COLORS, strict=True):
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="3"/>')
        parts.append(
            f'<text x="{x(len(sizes) - 1) + 8:.1f}" y="{ends[name]:.1f}" fill="{color}">'
            f"{name}</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    if not TARGET.exists():
        print(f"nothing to write: run benchmarks/bytes.py first, which makes {TARGET.name}")
        return
    rows = load()
    parts = [
        "# Codes at equal bytes\n",
        meaning(rows),
        "The tables show Recall@1 less that of the raw float32 vectors, in points, and after the "
        "slash the share of the raw vectors' 10 nearest rows that stay among the 10 nearest, in "
        "percent; means over sets (`benchmarks/bytes.py`, at most 5,000 float queries per set).\n",
        "- Product codes of RPML and PCA have 128 dimensions where the fit has learned axes, "
        "otherwise 192 up to 32 bytes and 256 at 64.\n"
        "- Peers are at their best: unit rows, centered, PCA to 256 dimensions where there are "
        "more, compared by L2.\n"
        "- *Tempered PCA* divides the principal axes by a power of their eigenvalues, the best of "
        "five by the labels of the queries: an upper bound of Spectral Tempering, which chooses "
        "the power without them.\n"
        "- Seconds are the median of CPU seconds to fit and encode, on the newest machine; – where "
        "a system was measured on another one.\n\n"
        "Generated by `make pages`; do not edit.\n",
        f"![Recall@1 over bytes]({FIGURE.relative_to(DOCS)})\n",
    ]
    for use, title in USES.items():
        if len(raw := raw_rows(rows, use)) >= FEWEST_SETS:
            sizes = [row["bytes"] for row in raw.values()]
            parts += [
                f"## {title}\n",
                f"{len(raw)} sets, whose raw vectors have {min(sizes):,} to {max(sizes):,} "
                "bytes.\n",
                use_table(rows, use),
            ]
            if against := against_peer(rows, use):
                parts.append(f"{OURS} against {PEER}: {against}.\n")
    PAGE.write_text("\n".join(parts), encoding="utf8")
    FIGURE.write_text(picture(rows), encoding="utf8")
    print(f"written to {PAGE} and {FIGURE}")


if __name__ == "__main__":
    main()
