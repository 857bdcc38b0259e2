"""docs/results-labels.md and its figure, from benchmarks/results/cells/labels-*.jsonl.

python benchmarks/labels_page.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS
from results_page import DOCS, table
from results_sets import CELLS

TITLES = {"rpml": "RPML", "lda": "LDA", "nca": "NCA", "spreading": "LabelSpreading + LDA"}
HEAD = """# What a few labels, updates and prefixes are worth

Learned on some classes, scored on others: R@1 / k-means NMI, means over the seeds in brackets.
Made by `python benchmarks/labels.py --data FOLDER` (goes on where it was) and
`python benchmarks/labels_page.py`. What is not in a table was not measured. 128 dimensions, fewer
where LDA has fewer classes; the streams have 64.
"""
Cells = list[dict[str, Any]]


def cell_of(cells: Cells, part: str, method: str, budget: Any) -> str:
    own = [c for c in cells if (c["part"], c["method"], c["budget"]) == (part, method, budget)]
    if not own:
        return "–"
    if part == "naming":
        return f"{100 * np.mean([c['named'] for c in own]):.1f} ({len(own)})"
    r, nmi = (100 * np.mean([c[name] for c in own]) for name in ("r@1", "nmi"))
    return f"{r:.1f} / {nmi:.1f} ({len(own)})"


def grid(cells: Cells, part: str, titles: dict[str, str], first: str) -> str:
    """One row a method, one column a budget."""
    own = [c for c in cells if c["part"] == part]
    budgets = list(dict.fromkeys(c["budget"] for c in own))
    budgets.sort(key=lambda b: 10**9 if b == "all" else int(b))
    rows = [
        [title, *(cell_of(cells, part, method, b) for b in budgets)]
        for method, title in titles.items()
        if any(c["method"] == method for c in own)
    ]
    return table([first, *map(str, budgets)], rows)


def stream(cells: Cells) -> str:
    cell = next(c for c in cells if c["part"] == "stream")
    steps = cell["steps"]
    rows = [
        [str(s["rows"]), f"{100 * s['update']['r@1']:.1f} / {100 * s['update']['nmi']:.1f}",
         f"{s['drift']:.3f}", f"{s['cpu_seconds']:.1f}"] for s in steps
    ]  # fmt: skip
    refit = cell["refit"]
    rows.append([f"refit of {steps[-1]['rows']}", f"{100 * refit['r@1']:.1f} / "
                 f"{100 * refit['nmi']:.1f}", "", f"{cell['refit_cpu_seconds']:.1f}"])  # fmt: skip
    return table(["rows so far", "R@1 / NMI", "drift", "CPU, s"], rows)


def figure(sets: dict[str, Cells], path: Path) -> None:
    """R@1 against labels a class, one panel a set."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "rpml"  # the same bytes from the same figures
    from matplotlib import pyplot as plt

    shown = {n: c for n, c in sets.items() if any(x["part"] == "curves" for x in c)}
    fig, axes = plt.subplots(1, len(shown), figsize=(4 * len(shown), 3.4), squeeze=False,
                             layout="constrained")  # fmt: skip
    for axis, (name, cells) in zip(axes.flat, shown.items(), strict=True):
        own = [c for c in cells if c["part"] == "curves"]
        budgets = sorted({str(c["budget"]) for c in own}, key=lambda b: (b == "all", len(b), b))
        for method, title in TITLES.items():
            values: dict[str, list[float]] = {b: [] for b in budgets}
            for c in own:
                if c["method"] == method:
                    values[str(c["budget"])].append(c["r@1"])
            found = {b: np.mean(scores) for b, scores in values.items() if scores}
            places = [budgets.index(b) for b in found]
            axis.plot(places, [100 * r for r in found.values()], "o-", label=title, ms=4)
        axis.set_xticks(range(len(budgets)), budgets)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("labels a class")
    axes.flat[0].set_ylabel("R@1")
    lines, names = axes.flat[0].get_legend_handles_labels()
    fig.legend(lines, names, loc="outside lower center", ncols=len(names), fontsize=8)
    fig.savefig(path, metadata={"Date": None})
    plt.close(fig)


def costs() -> list[str]:
    """Seconds of updates against those of a fit, from updates.json."""
    path = RESULTS / "updates.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf8"))["results"]
    names = ("fit_of_old_rows", "update_with_old_rows", "update_without")
    rows = [
        [f"{int(n):,}", *(f"{times[name]:.2f}" for name in names)]
        for n, times in found["by_old_rows"].items()
    ]
    head = ["old rows", "a fit of these", "update with old rows at hand", "update without"]
    return [
        "## What an update costs\n",
        f"Seconds for {found['new_rows']} new rows of a mixture of Gaussians, 128 dimensions, one",
        "thread (`python benchmarks/updates.py`):\n",
        table(head, rows),
    ]


def section(name: str, cells: Cells) -> list[str]:
    parts = {c["part"] for c in cells}
    out = [f"## {name}\n"]
    if "curves" in parts:
        out += ["Labels a class:\n", grid(cells, "curves", TITLES, "R@1 / NMI (seeds)")]
    if "queries" in parts:
        titles = {"suggested": "suggest_queries", "random": "at random"}
        out += ["RPML, as many labels in all as so many a class, chosen in one round:\n"]
        out += [grid(cells, "queries", titles, "R@1 / NMI (seeds)")]
    if "naming" in parts:
        titles = {"suggested": "suggest_queries", "random": "at random"}
        out += [
            "The same question for the rows learned from: after one round of so many labels, the"
        ]
        out += ["share of the other rows whose nearest labelled row is of their class (%):\n"]
        out += [grid(cells, "naming", titles, "named rightly (seeds)")]
    if "sizes" in parts:
        titles = {"prefix": "first components of one fit of 128", "own fit": "a fit of that size"}
        out += ["Dimensions, without labels:\n", grid(cells, "sizes", titles, "R@1 / NMI (seeds)")]
    if "stream" in parts:
        out += ["Ten batches, the first fitted, the others updates with the old rows at hand:\n"]
        out += [stream(cells)]
    return out


def main() -> None:
    paths = sorted(CELLS.glob("labels-*.jsonl"))
    sets = {
        path.stem.removeprefix("labels-"): [
            json.loads(line) for line in path.read_text(encoding="utf8").splitlines()
        ]
        for path in paths
    }
    figure(sets, DOCS / "figures" / "labels.svg")
    parts = [HEAD, "![R@1 against labels a class](figures/labels.svg)\n"]
    for name, cells in sets.items():
        parts += section(name, cells)
    parts += costs()
    (DOCS / "results-labels.md").write_text("\n".join(parts), encoding="utf8")


if __name__ == "__main__":
    main()
