"""How often does RPML help, how much, and where not? Gain over PCA on every set of a folder.

python benchmarks/results_zoo.py --data DIR [--sets A,B] [--dims 32,64,128] [--again rpml,recommend]

Three splits of the classes and three seeds per set. The label-free recommendation of each training
side is noted next to the scores. Every cell is written to results/cells/zoo as soon as it is
measured, so an interrupted run goes on where it was; `--again` measures methods anew, for instance
after their code changed. The summary is results/zoo.json; results_page.py makes the page from it.
"""

from __future__ import annotations

import base64
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, machine
from methods import ALL
from numpy.typing import NDArray
from results_sets import FeatureSet, commit, feature_sets, parser

from rpml.evaluation.metrics import clustering_scores, first_hit_rank
from rpml.evaluation.recommendation import CANDIDATES, recommend
from rpml.runtime.intervals import paired

DIMS = (32, 64, 128)
SPLITS = (0, 1, 2)
SEEDS = (0, 1, 2)
UNSEEDED = (
    "raw",
    "truncation",
    "pca",
    "half-whitened",
    "pca-whitened",
    "shrunk-whitened",
    "all-but-the-top",
)
SEEDED = ("rpml",)
SLOW = ("adaptor-linear", "adaptor")  # the file's own split only, at MIDDLE dimensions
SEARCHED = ":searched"  # fitted on the test rows, as someone does who searches what they fit on
MIDDLE = 64
VERDICT = "recommend"
CELLS = RESULTS / "cells" / "zoo"
Cell = dict[str, Any]
Key = tuple[int, str, int, int]  # split, method, dim, seed


def class_split(data: FeatureSet, split: int) -> NDArray[np.bool_]:
    """Training rows: the file's own split, then random halves of the classes."""
    if split == 0:
        return data.train
    classes = np.random.default_rng(100 + split).permutation(np.unique(data.y))
    return np.isin(data.y, classes[: len(classes) // 2])


def keys(data: FeatureSet, dims: tuple[int, ...]) -> Iterator[Key]:
    """Every cell, first splits and seeds first: an interrupted run is a whole table."""
    fitting = [dim for dim in dims if dim < data.X.shape[1]]
    for seed in SEEDS:
        for split in SPLITS:
            for dim in fitting:
                names = (*UNSEEDED, *SEEDED, VERDICT) if seed == 0 else SEEDED
                names += tuple(m + SEARCHED for m in ("pca", "rpml")) if seed == 0 else ()
                names += SLOW if (seed, split, dim) == (0, 0, MIDDLE) else ()
                yield from ((split, name, dim, seed) for name in names)


def measure(data: FeatureSet, key: Key) -> Cell:
    """Fit on the training side, score on the other; or recommend from the training side."""
    split, name, dim, seed = key
    train = class_split(data, split)
    start = time.process_time()
    if name == VERDICT:
        advice = recommend(data.X[train], dim, random_state=seed)
        cell: Cell = {"choice": advice.choice, "certainty": advice.certainty}
        cell["evidence"] = {
            method: round(gain.value, 4) for method, gain in advice.evidence.items()
        }
        return cell | {"seconds": round(time.process_time() - start, 2)}
    fitted_on = ~train if name.endswith(SEARCHED) else train
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            method = ALL[name.removesuffix(SEARCHED)]
            fitted = method.build(dim, seed).fit(data.X[fitted_on])
        except ValueError as error:  # the rows do not have the rank
            return {"error": str(error)}
    seconds = round(time.process_time() - start, 2)
    Z, y = fitted.transform(data.X[~train]), data.y[~train]
    hits = first_hit_rank(Z, y) < 1
    cell = {"hits": base64.b64encode(np.packbits(hits)).decode(), "rows": len(hits)}
    if seed == 0 and name in CANDIDATES:
        cell["nmi"] = round(clustering_scores(Z, y, 0)["nmi"], 5)
    return cell | {"seconds": seconds}


def hits_of(cell: Cell) -> NDArray[np.float64]:
    packed = np.frombuffer(base64.b64decode(cell["hits"]), np.uint8)
    return np.unpackbits(packed)[: cell["rows"]].astype(float)


class Cells:
    """The measured cells of one set, in a file of JSON lines."""

    def __init__(self, name: str) -> None:
        self.path = CELLS / f"{name}.jsonl"
        self.known: dict[Key, Cell] = {}
        lines = self.path.read_text(encoding="utf8").splitlines() if self.path.exists() else []
        for line in lines:
            cell = json.loads(line)
            self.known[tuple(cell["key"])] = cell

    def add(self, key: Key, cell: Cell) -> None:
        self.known[key] = {"key": list(key), **cell}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf8") as file:
            file.write(json.dumps(self.known[key]) + "\n")

    def forget(self, methods: list[str]) -> None:
        self.known = {key: cell for key, cell in self.known.items() if key[1] not in methods}
        lines = [json.dumps(cell) + "\n" for cell in self.known.values()]
        if self.path.exists():
            self.path.write_text("".join(lines), encoding="utf8")

    def hits(
        self, method: str, dim: int, splits: tuple[int, ...] = SPLITS
    ) -> NDArray[np.float64] | None:
        """Share of the seeds in which each test row is right, all splits one after the other."""
        parts = []
        for split in splits:
            cells = (self.known.get((split, method, dim, seed), {}) for seed in SEEDS)
            own = [cell for cell in cells if "hits" in cell]
            if not own:
                return None
            parts.append(np.mean([hits_of(cell) for cell in own], axis=0))
        return np.concatenate(parts)

    def mean(self, method: str, dim: int, what: str) -> float | None:
        own = [
            cell[what]
            for key, cell in self.known.items()
            if key[1:3] == (method, dim) and what in cell
        ]
        return float(np.mean(own)) if own else None


def summary(name: str, cells: Cells) -> Iterator[dict[str, Any]]:
    """One row per number of dimensions: scores, gains over PCA with intervals, the verdict."""
    for dim in sorted({key[2] for key in cells.known}):
        hits = {m: found for m in (*UNSEEDED, *SEEDED) if (found := cells.hits(m, dim)) is not None}
        if "pca" not in hits:
            continue
        gains = {
            m: paired(found, hits["pca"], np.random.default_rng(0)) for m, found in hits.items()
        }
        for m in SLOW:
            found, pca = cells.hits(m, dim, SPLITS[:1]), cells.hits("pca", dim, SPLITS[:1])
            if found is not None and pca is not None:
                gains[m] = paired(found, pca, np.random.default_rng(0))
        searched = {m: cells.hits(m + SEARCHED, dim) for m in ("pca", "rpml")}
        yield {
            "set": name,
            "dim": dim,
            "recall": {m: float(found.mean()) for m, found in hits.items()},
            "gain": {m: [g.value, g.low, g.high] for m, g in gains.items() if m != "pca"},
            "searched": {m: float(h.mean()) for m, h in searched.items() if h is not None},
            "nmi": {m: nmi for m in hits if (nmi := cells.mean(m, dim, "nmi")) is not None},
            "seconds": {m: cells.mean(m, dim, "seconds") for m in (*hits, VERDICT)},
            "verdict": verdict(cells, dim, hits),
        }


def verdict(cells: Cells, dim: int, hits: dict[str, NDArray[np.float64]]) -> dict[str, Any] | None:
    """What was recommended per split, and the Recall@1 lost against the best of the candidates."""
    advice = [cells.known.get((split, VERDICT, dim, 0)) for split in SPLITS]
    if any(cell is None for cell in advice) or not set(CANDIDATES) <= set(hits):
        return None
    sizes = [cells.known[split, "pca", dim, 0]["rows"] for split in SPLITS]
    parts = {m: np.split(hits[m], np.cumsum(sizes)[:-1]) for m in CANDIDATES}
    got = np.concatenate([parts[cell["choice"]][i] for i, cell in enumerate(advice)])  # type: ignore[index]
    best = max(float(hits[m].mean()) for m in CANDIDATES)
    choices = [cell["choice"] for cell in advice]  # type: ignore[index]
    gains = [cell["evidence"] for cell in advice]  # type: ignore[index]
    return {"choices": choices, "evidence": gains, "lost": best - float(got.mean())}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--dims", default=",".join(map(str, DIMS)))
    arguments.add_argument("--methods", default="", help="measure these only, by comma")
    arguments.add_argument("--again", default="", help="methods to measure anew, by comma")
    arguments.add_argument("--output", type=Path, default=RESULTS / "zoo.json")
    given = arguments.parse_args()
    dims = tuple(int(dim) for dim in given.dims.split(","))
    again, only = ([n for n in names.split(",") if n] for names in (given.again, given.methods))
    rows = []
    for data in feature_sets(given.data, given.sets):
        cells = Cells(data.name)
        cells.forget(again)
        for key in keys(data, dims):
            if key not in cells.known and (not only or key[1] in only):
                cells.add(key, measure(data, key))
        print(data.name, len(cells.known), flush=True)
        rows += summary(data.name, cells)
    content = {"source": commit(), "machine": machine(), "rows": rows}
    given.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
