"""Write the measured parts of docs/scale.md from results/cluster-*.json.

python benchmarks/scale_page.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cluster_model import CLUSTERS, measured, read_runs, size_of
from performance_page import replaced, results

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
STAGES = {  # as the results name them: title, what the cost grows with
    "read": ("read", "n"),
    "whitening: one task": ("whitening: one task", "constant"),
    "whitening: moments, preprocessing": ("whitening: moments, preprocessing", "n d p"),
    "k-means centres": ("k-means centers", "s K p and s, s = 64 K rows"),
    "nearest centres": ("nearest centers", "n K p and n, K = min(n/600, 2 sqrt(n)) cells"),
    "rows searched exactly": ("rows searched exhaustively", "800 n p"),
    "search": ("search", "n m (n/K) p and n, m cells per row"),
    "visitors, merging": ("sending rows to buckets, merging", "n k"),
    "graph and ascent": ("graph and ascent", "n k"),
    "triplets": ("triplets", "T"),
    "optimiser": ("solver", "T l, iterations and trials"),
    "modes": ("exemplars", "n l"),
    "serialising, moving": ("serialization, transfer", "bytes"),
}
QUALITY = {
    "banking77_minilm": "Banking77, MiniLM",
    "omniglot_lite0": "Omniglot, EfficientNet-Lite0",
    "cub_googlenet": "CUB, R-MAC on GoogLeNet",
}


def million() -> list[str]:
    row = results("cluster-million")["sizes"][0]
    run = row["two"]
    recall = next(note for note in run["notes"] if "recall" in note).rsplit("recall ", 1)[1]
    return [
        f"**{row['rows']:,} rows on two workers with one thread and 3 GB each: "
        f"{run['seconds']:.0f} s** (`results/cluster-million.json`). Peak resident memory is",
        f"{max(run['worker peak MB']) / 1024:.2f} GiB per worker and "
        f"{run['client peak MB'] / 1024:.2f} GiB in the client, which also runs the scheduler; "
        f"neighbor recall is {recall};",
        f"{run['network MB'] / 1024:.1f} GiB were sent between the workers.",
    ]


def workers() -> list[str]:
    found: dict[int, dict[str, Any]] = {}
    for name in ("cluster-overhead", "cluster-workers", "cluster-workers-400k"):
        for row in results(name)["sizes"]:
            found.setdefault(row["rows"], {}).update(row)
    lines = [
        "| rows | one worker | two workers | speed-up | one worker, two threads | "
        "`RPML`, two threads | overhead |",
        "|---|---|---|---|---|---|---|",
    ]
    for n, row in sorted(found.items()):
        one, two, pair, local = (
            f"{row[name]['seconds']:.1f} s" if name in row else "-"
            for name in ("one", "two", "pair", "local")
        )
        gain, cost = row.get("speed-up of two workers"), row.get("overhead over local")
        lines.append(
            f"| {n:,} | {one} | {two} | {f'{gain:.2f}x' if gain else '-'} | {pair} | {local} | "
            f"{f'{cost:.0%}' if cost else '-'} |"
        )
    return lines


def model() -> list[str]:
    found, runs = results("cluster-model"), read_runs()
    largest = max(runs)
    truth, checks = measured(runs[largest]), found["predicted"]
    heads = [f"{check['rows']:,}: predicted / measured" for check in checks]
    lines = [
        f"| stage | grows with | {largest:,} rows, measured | {' | '.join(heads)} |",
        "|---|---|---|" + "---|" * len(checks),
    ]
    for name, (title, law) in STAGES.items():
        cells = [f"{c['stages'][name][k]:.1f}" for c in checks for k in ("predicted", "measured")]
        pairs = " | ".join(map(" / ".join, zip(cells[::2], cells[1::2], strict=True)))
        lines.append(f"| {title} | {law} | {truth[name]:.1f} | {pairs} |")
    sums = (f"{c['sum']['predicted']:.0f} / {c['sum']['measured']:.0f}" for c in checks)
    lines.append(f"| total | | {sum(truth.values()):.0f} | {' | '.join(sums)} |")
    searched = {n: size_of(run, n)["m"] for n, run in sorted(runs.items())}
    counts = ", ".join(f"{m:.0f} at {n:,} rows" for n, m in searched.items())
    return [*lines, "", f"Cells searched per row: {counts}."]


def clock(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def extrapolation() -> list[str]:
    """The stages that matter at these sizes, then network, scheduler and memory."""
    found = [*results("cluster-model")["extrapolated"].values()]
    names = ("k-means centres", "nearest centres", "search", "visitors, merging",
             "graph and ascent", "serialising, moving")  # fmt: skip
    heads = [f"{name} rows, {c['nodes']} nodes of {c['GB a node']} GB"
             for name, c in CLUSTERS.items()]  # fmt: skip
    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        "cells x rows per cell": lambda f: " x ".join(f"{v:,.0f}" for v in f["cells, rows in each"])
    }
    rows |= {
        STAGES[name][0]: lambda f, name=name: (  # type: ignore[misc]
            f"{f['core seconds'][name]:,.0f} core s: {clock(f['seconds'][name])}"
        )
        for name in names
    }
    rows |= {
        "transfer in the search, network": lambda f: "{:.1f} TB, {:.0f} GB per node: {}".format(
            f["moved GB, a node, seconds"][0] / 1000,
            f["moved GB, a node, seconds"][1],
            clock(f["moved GB, a node, seconds"][2]),
        ),
        "scheduler: partitions x buckets, tasks": lambda f: (
            "{:.0f} x {:,.0f}: {:.1f} million, ".format(
                *f["partitions, buckets, tasks"][:2], f["partitions, buckets, tasks"][2] / 1e6
            )
            + clock(f["scheduler seconds"])
        ),
        "vectors with one value per row, sent to every worker": lambda f: (
            f"{f['vectors GB a worker, labels GB on the client'][0]:.1f} GB"
        ),
        "memory: rows, neighbors and edges per node": lambda f: (
            f"{f['rows, neighbors and edges GB a node']:.0f} GB"
        ),
        "memory: a search, 16 at a time": lambda f: f"{f['search task GB']:.1f} GB each",
        "memory: labels on the client": lambda f: (
            f"{f['vectors GB a worker, labels GB on the client'][1]:.1f} GB"
        ),
        "checkpoint: neighbors": lambda f: f"{f['kept neighbors GB']:.0f} GB",
    }
    body = [f"| {title} | {' | '.join(map(cell, found))} |" for title, cell in rows.items()]
    task = results("cluster-model")["seconds a task"]
    return [
        f"| | {' | '.join(heads)} |",
        "|---|" + "---|" * len(heads),
        *body,
        "",
        f"A task costs {1000 * task:.1f} ms, measured with 20,000 empty tasks; client, scheduler "
        "and two workers shared two cores.",
    ]


def quality() -> list[str]:
    lines = [
        "| features | mean difference, Dask - local | standard deviation over seeds, local |",
        "|---|---|---|",
    ]
    for row in results("cluster-quality")["sets"]:
        recall = row["recall@1"]
        lines.append(
            f"| {QUALITY[row['set']]} ({row['rows']:,} rows) | "
            f"{np.mean(recall['dask']) - np.mean(recall['local']):+.4f} | "
            f"{row['spread of local (standard deviation)']:.4f} |"
        )
    return lines


def main() -> None:
    page = PAGE.read_text(encoding="utf8")
    for table in (million, workers, model, extrapolation, quality):
        start = f"<!-- table: {table.__name__} -->\n"
        page = replaced(page, start, "<!-- end of table -->\n", table())
    PAGE.write_text(page, encoding="utf8")


if __name__ == "__main__":
    main()
