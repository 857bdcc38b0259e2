"""What does a rank gain say about Recall@1? The table of `rpml.method.calibration`.

python benchmarks/calibration.py [--write]

Fits that are more than PCA: their rank gains and gains over PCA are those of results/cells/zoo
(new classes) and of results/safety.json (new classes, and rows that were fitted). Every source of
data counts the same in the median of a range of rank gains; the ends are the lowest and the highest
single gain, so that no range promises more than every fit in it has kept. Printed, too: how often
the range of the other sources holds the gain of a fit to a source that was left out. --write puts
the table into the package; a test compares the two.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import results_safety
from common import RESULTS
from performance_page import replaced

import rpml

MODULE = Path(rpml.__file__).parent / "method" / "calibration.py"
EDGES = (0.0, 0.05, 0.15, 0.3, np.inf)
QUANTILES = (0.0, 0.5, 1.0)
ROUNDING = 0.0005  # of the table
Point = tuple[str, int, float, float]  # set, dim, rank gain, gain in Recall@1
Table = dict[float, tuple[float, ...]]


def zoo_points() -> list[Point]:
    """From the cells of results_zoo.py, the mean over seeds."""
    points = []
    for path in sorted((RESULTS / "cells" / "zoo").glob("*.jsonl")):
        evidence: dict[tuple[int, int], float] = {}
        recall: dict[tuple[int, str, int], list[float]] = {}
        for cell in map(json.loads, path.read_text().splitlines()):
            split, name, dim, _ = cell["key"]
            if "evidence" in cell:
                evidence[split, dim] = cell["evidence"]["rpml"]
            elif "hits" in cell:
                bits = np.frombuffer(base64.b64decode(cell["hits"]), np.uint8)
                hits = np.unpackbits(bits)[: cell["rows"]]
                recall.setdefault((split, name, dim), []).append(float(hits.mean()))
        points += [
            (path.stem, dim, gain, np.mean(recall[split, "rpml", dim]) - np.mean(pca))
            for (split, dim), gain in evidence.items()
            if (pca := recall.get((split, "pca", dim))) and (split, "rpml", dim) in recall
        ]
    return points


def all_points() -> list[Point]:
    """Of fits that are more than PCA."""
    safety = [
        (row["set"], row["dim"], row["rank_gain"], row[use])
        for row in results_safety.load()
        for use in (*results_safety.USES, "gain")
        if use in row
    ]
    return [point for point in (*zoo_points(), *safety) if point[2] > 0]


def source(name: str) -> str:
    """Sets of one source are not independent."""
    return name.split("_")[0]


def table(points: list[Point]) -> Table:
    """Where a range of rank gains begins -> quantiles of the gains; sources weigh the same."""
    out = {}
    for low, high in pairwise(EDGES):
        own = sorted((p[3], source(p[0])) for p in points if low <= p[2] < high)
        fits = Counter(name for _, name in own)
        shares = np.cumsum([1 / fits[name] for _, name in own]) / len(fits)
        places = np.minimum(np.searchsorted(shares, QUANTILES), len(own) - 1)
        out[low] = tuple(round(float(own[place][0]), 3) for place in places)
    return out


def coverage(points: list[Point]) -> float:
    """How often the other sources' range holds the gain of a fit; mean over the sources."""
    shares = []
    for left_out in sorted({source(p[0]) for p in points}):
        others = table([p for p in points if source(p[0]) != left_out])
        held = []
        for *_, rank_gain, gain in (p for p in points if source(p[0]) == left_out):
            low, _, high = others[max(begin for begin in others if begin <= rank_gain)]
            held.append(low - ROUNDING <= gain <= high + ROUNDING)
        shares.append(np.mean(held))
    return float(np.mean(shares))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into the package")
    arguments, points = parser.parse_args(), all_points()
    lines = [f"    {begin}: {values}," for begin, values in table(points).items()]
    print("\n".join(lines))
    sources = {source(point[0]) for point in points}
    print(f"{len(points)} gains, {len(sources)} sources; coverage {coverage(points):.0%}")
    if arguments.write:
        text = replaced(MODULE.read_text(encoding="utf8"), "CALIBRATION = {\n", "}\n", lines)
        MODULE.write_text(text, encoding="utf8")


if __name__ == "__main__":
    main()
