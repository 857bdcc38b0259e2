"""Which knobs matter? One setting changed at a time, at 64 dimensions.

python benchmarks/results_ablation.py --data DIR [--seeds N]

Cells are kept in benchmarks/results/cells/ablation-<set>.jsonl, so an interrupted run continues.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from cells import read_cells, run_cells, settings_of, split_digest
from common import RESULTS, machine
from losses import LOSSES, ReferenceLoss
from results_sets import CELLS, FeatureSet, commit, feature_sets, parser

from rpml.estimator import RPML
from rpml.evaluation.registry import Method
from rpml.method.clustering.aas import AuthorityAscentShift

DIM = 64
SOURCE = commit()  # when the code was loaded, not when a cell is done
OUTPUT = RESULTS / "ablation.json"


def _aas(**settings: Any) -> dict[str, Any]:
    return {"clustering": AuthorityAscentShift(metric="cosine", merge=None, **settings)}


# knob -> value as shown -> what changes; {} is the default
KNOBS: dict[str, dict[str, dict[str, Any]]] = {
    "whitening": {"auto": {}, "0": {"whiten": 0.0}, "1/2": {"whiten": 0.5}, "1": {"whiten": 1.0}},
    "loss": {"RPML": {}, **{name: {"loss": name} for name in LOSSES}},
    "weight": {"concat": {}, **{name: {"weight": name} for name in ("bilinear", "constant")}},
    "init": {"pca": {}, "random": {"init": "random"}},
    "alpha": {**{str(a): {"alpha": float(a)} for a in (15, 30)}, "45": {}, "60": {"alpha": 60.0}},
    "epsilon": {"auto": {}, **{str(e): _aas(epsilon=e) for e in (0.2, 0.4, 0.65)}},
    "neighbors": {**{str(k): {"n_neighbors": k} for k in (10, 25)}, "50": {},
                   "100": {"n_neighbors": 100}},
    "triplets": {"1": {"triplets_per_anchor": 1}, "4": {}, "16": {"triplets_per_anchor": 16}},
    "gamma": {**{f"{g:g}": _aas(gamma=g) for g in (0.0, 10.0)}, "100": {},
              "1000": _aas(gamma=1000.0)},
}  # fmt: skip


def method(knob: str, value: str) -> Method:
    """The default estimator with one thing changed."""
    change = KNOBS[knob][value]

    def build(dim: int, seed: int) -> Any:
        kind = ReferenceLoss if "loss" in change else RPML
        return kind(dim, random_state=seed, **change)

    return Method(f"{knob}={value}" if change else "default", f"{knob} {value}", build)


METHODS = {(knob, value): method(knob, value) for knob, values in KNOBS.items() for value in values}


def summarise(data: FeatureSet, seeds: tuple[int, ...]) -> list[dict[str, Any]]:
    """Means over the seeds there are, one row a knob and value."""
    known, digest, rows = (
        read_cells(CELLS / f"ablation-{data.name}.jsonl"),
        split_digest(data.split),
        [],
    )
    for (knob, value), one in METHODS.items():
        keys = [(digest, settings_of(one, DIM, seed), DIM, seed) for seed in seeds]
        cells = [known[key] for key in keys if key in known]
        scored = [cell for cell in cells if "recall@1" in cell]
        row: dict[str, Any] = {"set": data.name, "knob": knob, "value": value, "seeds": len(scored)}
        row["default"] = one.name == "default"
        for score in ("recall@1", "nmi", "effective_rank", "recall@1 rare", "recall@1 frequent"):
            if scored and score in scored[0]:
                row[score] = float(np.mean([cell[score] for cell in scored]))
        row["sources"] = sorted({cell.get("source", "") for cell in cells})
        row["errors"] = sorted({cell["error"] for cell in cells if "error" in cell})
        rows.append(row)
    return rows


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--summary", action="store_true", help="measure nothing more")
    given = arguments.parse_args()
    seeds = tuple(range(given.seeds))
    unique = list({one.name: one for one in METHODS.values()}.values())
    for seed in () if given.summary else seeds:
        for data in feature_sets(given.data, given.sets):
            cache = CELLS / f"ablation-{data.name}.jsonl"
            for cell in run_cells(data.split, unique, (DIM,), (seed,), cache, SOURCE):
                print(data.name, cell["method"], seed, cell.get("recall@1"), flush=True)
    rows = [row for data in feature_sets(given.data) for row in summarise(data, seeds)]
    content = {"dim": DIM, "machine": machine(), "rows": rows}
    OUTPUT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
