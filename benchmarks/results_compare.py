"""What does RPML gain over its alternatives, and which of its parts matter?

python benchmarks/results_compare.py --data DIR                 everything
python benchmarks/results_compare.py --data DIR --stage main    the main table only

Every cell is written as soon as it is measured (benchmarks/results/cells/), so an interrupted run
continues where it was. `--again METHODS` measures these anew, for instance after their code
changed.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cells import read_cells, run_cells
from common import RESULTS, machine
from methods import ALL
from results_sets import CELLS, DIMS, SEEDS, FeatureSet, commit, feature_sets, parser

from rpml.evaluation.comparison import Comparison
from rpml.evaluation.registry import PCA_FAMILY


@dataclass(frozen=True)
class Stage:
    """A part of the table: methods, dimensions and seeds."""

    methods: tuple[str, ...]
    dims: tuple[int, ...] = DIMS
    seeds: tuple[int, ...] = SEEDS


SOURCE = commit()  # when the code was loaded, not when a cell is done
MAIN = ("raw", *PCA_FAMILY, "random", "rpml", "lda")
HEADS = tuple(name for name in ALL if name.startswith("head-"))
OTHERS = ("rpml-untrained", "lpp", "aas-lda", "nca")
VARIANTS = tuple(name for name in ALL if name not in (*MAIN, *OTHERS, *HEADS))
STAGES = {
    "main": Stage(MAIN, (*DIMS, 512)),
    "others": Stage(OTHERS, (64,), (0,)),
    "variants": Stage(VARIANTS, (64,), (0,)),
    "heads": Stage(HEADS, (64,), (0,)),
    "seeds": Stage((*OTHERS, *VARIANTS), (64,)),
}


def forget(path: Path, methods: list[str]) -> None:
    """Drop the cells of some methods."""
    if path.exists() and methods:
        lines = path.read_text(encoding="utf8").splitlines()
        kept = [line for line in lines if json.loads(line)["method"] not in methods]
        path.write_text("".join(line + "\n" for line in kept), encoding="utf8")


def run_stage(data: FeatureSet, stage: Stage) -> None:
    methods = [ALL[name] for name in stage.methods]
    dims = tuple(dim for dim in stage.dims if 2 * dim <= data.X.shape[1])
    cache = CELLS / f"{data.name}.jsonl"
    for cell in run_cells(data.split, methods, dims, stage.seeds, cache, SOURCE):
        print(
            data.name, cell["method"], cell["asked"], cell["seed"], cell.get("recall@1"), flush=True
        )


def summarise(path: Path) -> None:
    """One JSON file per set with the means, intervals and paired differences."""
    cells = list(read_cells(path).values())
    order = [
        (method, dim)
        for dim in sorted({c["asked"] for c in cells})
        for name, method in ALL.items()
        if any(c["method"] == name and c["asked"] == dim for c in cells)
    ]
    table = Comparison(cells, order)
    rows = table.rows
    for row in rows:
        row["differences"] = {
            other: [gain.value, gain.low, gain.high]
            for other in ("raw", *PCA_FAMILY)
            if (gain := table.difference(row["method"], other, row["asked"])) is not None
        }
        own = [c for c in cells if (c["method"], c["asked"]) == (row["method"], row["asked"])]
        row["sources"] = sorted({c.get("source", "") for c in own})
        for name in ("recall@1 rare", "recall@1 frequent"):
            if scored := [c[name] for c in own if name in c]:
                row[name] = float(np.mean(scored))
    content = {"set": path.stem, "machine": machine(), "rows": rows}
    (RESULTS / f"comparison-{path.stem}.json").write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--stage", choices=[*STAGES, "summary"], help="only this part")
    arguments.add_argument("--again", default="", help="methods to measure anew, by comma")
    given = arguments.parse_args()
    logging.basicConfig(level=logging.WARNING)
    stages = [given.stage] if given.stage else list(STAGES)
    for data in feature_sets(given.data, given.sets) if given.again else ():
        forget(CELLS / f"{data.name}.jsonl", given.again.split(","))
    for stage in (name for name in stages if name in STAGES):
        for data in feature_sets(given.data, given.sets):
            run_stage(data, STAGES[stage])
    for data in feature_sets(given.data):
        if (path := CELLS / f"{data.name}.jsonl").exists():
            summarise(path)


if __name__ == "__main__":
    main()
