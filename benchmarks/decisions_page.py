"""Write the measured parts of pages that are otherwise written by hand.

docs/decisions/pairs.md, image-features.md, recommendation.md and written-by-hand.md, and the views
of docs/tutorial-images.md, from the JSON files in benchmarks/results.

python benchmarks/decisions_page.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import calibration
import numpy as np
from common import RESULTS
from few_labels import table as few_labels_table
from performance_page import replaced, results

DOCS = Path(__file__).parent.parent / "docs"


def pair_rows() -> list[dict[str, Any]]:
    return [*results("pairs-omniglot")["rows"], *results("pairs")["rows"]]


def pairs() -> list[str]:
    """R@1 and gain, mean over the seeds; then what single fits lost."""
    rows = pair_rows()
    inputs = list(dict.fromkeys(row["input"] for row in rows))
    lines = [
        "| set, dimensions | " + " | ".join(i.replace("none", "without") for i in inputs) + " |",
        "|---" * (len(inputs) + 1) + "|",
    ]
    for name, dim in dict.fromkeys((row["set"], row["dim"]) for row in rows):
        cells = []
        for given in inputs:
            own = [r for r in rows if (r["set"], r["dim"], r["input"]) == (name, dim, given)]
            recall, gain = (np.mean([r[key] for r in own]) for key in ("recall@1", "gain"))
            cells.append(f"{recall:.1f}" + (f" ({gain:+.1f})" if given != "none" else ""))
        lines.append(f"| {name}, {dim} | {' | '.join(cells)} |")
    worst = {
        kind: max(0.0, *(-r["gain"] for r in rows if r["input"].startswith(kind)))
        for kind in ("pairs", "groups")
    }
    return [
        *lines,
        "",
        "Largest loss of a single fit: "
        + ", ".join(f"{loss:.1f} with {kind}" for kind, loss in worst.items())
        + ".",
    ]


def rates() -> list[str]:
    """Estimated rates of correct pairs next to the true ones."""
    rows = [row for row in pair_rows() if row["rate"] is not None]
    inputs = list(dict.fromkeys(row["input"] for row in rows))
    shown = [f"{100 - int(given.split('%')[0].split()[-1])}%" for given in inputs]
    lines = [f"| correct pairs | {' | '.join(shown)} |", "|---" * (len(inputs) + 1) + "|"]
    for name in dict.fromkeys(row["set"] for row in rows):
        cells = []
        for given in inputs:
            own = [100 * r["rate"] for r in rows if (r["set"], r["input"]) == (name, given)]
            low, high = (f"{end:.0f}" for end in (min(own), max(own)))
            cells.append(f"{low}%" if low == high else f"{low} to {high}%")
        lines.append(f"| estimated, {name} | {' | '.join(cells)} |")
    return lines


def images() -> list[str]:
    found = results("vision")
    titles = {
        "plain loop": "one image at a time, default onnxruntime session",
        "plain loop, fast operators": "the same with the slow operators replaced",
        "engine, batch 1": "`rpml features`",
    }
    lines = ["| images per second | one scale | three scales |", "|---|---:|---:|"]
    for name, title in titles.items():
        cells = (
            f"{found[scale]['images_per_second'][name]:.1f} "
            f"({found[scale]['ratio_to_plain_loop'][name]:.1f} x)"
            for scale in ("one_scale", "three_scales")
        )
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def views() -> list[str]:
    found = results("views")
    dims = sorted(int(name.removeprefix("dim_")) for name in found if name.startswith("dim_"))
    heads = " | ".join(f"R@1 / NMI at {dim} | R@1 gain" for dim in dims)
    lines = [f"| fitted to | {heads} |", "|---|" + "---:|---:|" * len(dims)]
    titles = {
        "RPML, images": "images alone",
        "RPML, images and views as rows": "images and views as rows",
        "RPML, views as groups": "views as groups",
    }
    for name, title in titles.items():
        cells = []
        for dim in dims:
            row = found[f"dim_{dim}"][name]
            low, high = (f"{100 * end:+.1f}" for end in row["r1_gain_interval"])
            cells.append(f"{100 * row['r1']:.1f} / {100 * row['nmi']:.1f}")
            cells.append(
                "" if name == "RPML, images" else f"{100 * row['r1_gain']:+.1f} [{low}, {high}]"
            )
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return [
        *lines,
        "",
        f"{found['training_images']:,} photographs of birds with two views each, "
        f"{found['test_images']:,} of other species to search; means of {found['seeds']} seeds, "
        "95% intervals (`benchmarks/views.py`).",
    ]


def misled() -> list[str]:
    """How well the calibration holds, and where evidence went with the largest loss."""
    points = calibration.all_points()
    n_sources, held = len({calibration.source(p[0]) for p in points}), calibration.coverage(points)
    name, dim, evidence, gain = min(points, key=lambda point: point[3])
    return [
        f"{len(points)} gains of {n_sources} sources. If each source is left out in turn, the "
        f"range of the others holds {held:.0%} of its gains, mean over the sources. The "
        f"largest loss: {-100 * gain:.1f} points at a rank gain of {evidence:.2f} ({name}, "
        f"{dim} dimensions)."
    ]


def few_labels() -> list[str]:
    """Gains over the fit without labels."""
    return few_labels_table(json.loads((RESULTS / "few_labels.json").read_text())["rows"])


def search() -> list[str]:
    titles = {
        "exact": "ours, exact",
        "cells": "ours: k-means cells, as many searched as a recall of 0.98 needs",
        "hnsw": "faiss HNSW",
        "ivf": "faiss IVF, as many cells as a recall of 0.98 needs, at most a quarter",
    }
    found = {(row["data"], row["search"]): row for row in results("ann")}
    kinds = list(dict.fromkeys(data for data, _ in found))
    lines = [f"| search | {' | '.join(kinds)} |", "|---|" + "---:|" * len(kinds)]
    for name, title in titles.items():
        cells = [found[kind, name] for kind in kinds]
        shown = [f"{row['CPU seconds']:.0f} CPU s, recall {row['recall']:.2f}" for row in cells]
        lines.append(f"| {title} | {' | '.join(shown)} |")
    return lines


def kmeans() -> list[str]:
    found = results("evaluation")
    lines = [
        "| rows, clusters | speed over scikit-learn | inertia over scikit-learn's | NMI gain |",
        "|---|---:|---:|---:|",
    ]
    for row in (found["kmeans_small_k"], found["kmeans_large_k"]):
        lines.append(
            f"| {row['rows']:,} x {row['dimensions']}, {row['clusters']} | "
            f"{row['times_faster']:.1f} x | {row['inertia_ratio_mean'] - 1:+.2%} | "
            f"{row['nmi_gain_points_mean']:+.2f} ± {row['nmi_gain_points_standard_error']:.2f} |"
        )
    return lines


def files() -> list[str]:
    found = results("own-code")
    csv, model = found["csv"], found["model"]
    ours = "rpml, atomic and with a checksum"
    return [
        "| CPU seconds | ours | library |",
        "|---|---:|---:|",
        f"| reading a CSV file of {csv['MB']:.0f} MB (pyarrow) | {csv['rpml']['cpu seconds']:.1f} "
        f"| {csv['pyarrow']['cpu seconds']:.1f} |",
        f"| writing a model file of {model['MB']:.0f} MB (safetensors) | "
        f"{model[ours]['cpu seconds']:.2f} | {model['safetensors']['cpu seconds']:.2f} |",
    ]


PAGES: dict[str, tuple[Callable[[], list[str]], ...]] = {
    "decisions/pairs.md": (pairs, rates),
    "decisions/image-features.md": (images,),
    "decisions/labels.md": (few_labels,),
    "decisions/recommendation.md": (misled,),
    "decisions/written-by-hand.md": (search, kmeans, files),
    "tutorial-images.md": (views,),
}


def main() -> None:
    for name, tables in PAGES.items():
        page = (DOCS / name).read_text(encoding="utf8")
        for table in tables:
            start = f"<!-- table: {table.__name__} -->\n"
            page = replaced(page, start, "<!-- end of table -->\n", table())
        (DOCS / name).write_text(page, encoding="utf8")


if __name__ == "__main__":
    main()
