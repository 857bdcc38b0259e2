"""Write the tables of docs/decisions/whitening.md from whitening_rules, shrinkages and zoo.json.

python benchmarks/whitening_page.py
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import results_shrinkage
import whitening_rules
from performance_page import replaced, results
from results_zoo_page import Row, by_dim, hindsight, load, points, searched_points

PAGE = Path(__file__).parent.parent / "docs" / "decisions" / "whitening.md"
CODE = "leetcode"  # how the names of the two sets of programs begin
BEST = "*the best candidate per set, by the test labels*"
RULE, ELSEWHERE = "the rule of a fit", "the rule, constants chosen without the source"
MEAN = "new classes: mean gain over PCA"


def rules() -> list[str]:
    content = json.loads(whitening_rules.OUTPUT.read_text(encoding="utf8"))
    return whitening_rules.tables(content["rows"])


def rule_cells(title: str) -> dict[str, str]:
    """The cells of a row in the table of the rules, by the heads of their columns."""
    heads, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in rules())
    return dict(zip(heads, next(line for line in lines if line[0] == title), strict=True))


def training_effects() -> dict[int, dict[str, float]]:
    """What training adds to the whitening alone, in points: per number of dimensions and set."""
    content = json.loads(whitening_rules.OUTPUT.read_text(encoding="utf8"))
    alone = whitening_rules.gains_of(whitening_rules.Rule(), content["rows"])
    return {
        dim: {row["set"]: points(row) - alone[row["set"], dim]["new"] for row in own}
        for dim, own in by_dim(load()).items()
    }


def training() -> list[str]:
    lines = ["| dimensions | mean | lowest | highest |", "|---|---:|---:|---:|"]
    for dim, effects in training_effects().items():
        low, high = (pick(effects, key=effects.__getitem__) for pick in (min, max))
        ends = (f"{effects[name]:+.1f} ({name})" for name in (low, high))
        lines.append(f"| {dim} | {np.mean([*effects.values()]):+.2f} | {' | '.join(ends)} |")
    return lines


def shrinkages() -> list[str]:
    return results_shrinkage.as_table(results("shrinkages")["rows"]).splitlines()


def targets() -> list[str]:
    """What whole fits reach, per number of dimensions, against what we had set."""
    best = rule_cells(BEST)
    groups = by_dim(load())

    def line(
        title: str,
        measure: Callable[[list[Row]], float],
        shown: str,
        wanted: Sequence[float],
        most: bool = False,
        bound: str = "",
    ) -> str:
        """One row; `wanted` has a bound for all numbers of dimensions, or one for each."""
        found = [measure(own) for own in groups.values()]
        bounds = list(wanted) * (len(found) // len(wanted))
        met = [
            str(dim)
            for dim, value, limit in zip(groups, found, bounds, strict=True)
            if (value <= limit if most else value >= limit)
        ]
        verdict = "yes" if len(met) == len(found) else f"at {' and '.join(met)}" if met else "no"
        cells = (" / ".join(format(v, shown) for v in values) for values in (found, wanted))
        mine, target = cells
        return f"| {title} | {mine} | {bound} | {'at most ' * most}{target} | {verdict} |"

    return [
        "| gain over PCA | the rule | the best candidate by the test labels | target | met |",
        "|---|---:|---:|---:|---|",
        line("mean", mean_gain, "+.1f", (4.0, 3.2, 2.7),
             bound=best[MEAN]),
        line("mean without the two code sets", without_code(mean_gain), "+.1f", (1.8, 1.5, 1.5)),
        line("median", median_gain, "+.1f", (0.6,), bound=best["median"]),
        line("sets more than 0.3 below PCA", share(lambda row: points(row) < -0.3), ".0%", (0.05,),
             most=True, bound=best["below PCA by more than 0.3"]),
        line("worst set", lambda own: min(map(points, own)), "+.1f", (-1.0,), bound=best["worst"]),
        line("mean over the best of PCA, half- and full whitening in hindsight, without the code "
             "sets", without_code(lambda own: float(np.mean([*map(hindsight, own)]))), "+.2f",
             (0.5, 0.3, 0.2)),
        line("sets with NMI more than 1 below PCA", share(lambda row: nmi(row) < -1), ".0%", (0.1,),
             most=True),
        line("fitted on the searched rows: sets more than 0.3 below PCA",
             share(lambda row: searched_points(row) < -0.3), ".0%", (0.05,), most=True),
        line("R@1 lost by `recommend`, 90% quantile",
             lambda own: float(np.quantile(lost(own), 0.9)), ".2f", (0.5,), most=True),
        line("R@1 lost by `recommend`, at most", lambda own: max(lost(own)), ".2f", (1.5,),
             most=True),
    ]  # fmt: skip


def mean_gain(own: list[Row]) -> float:
    return float(np.mean([*map(points, own)]))


def median_gain(own: list[Row]) -> float:
    return float(np.median([*map(points, own)]))


def without_code(measure: Callable[[list[Row]], float]) -> Callable[[list[Row]], float]:
    return lambda own: measure([row for row in own if not row["set"].startswith(CODE)])


def share(holds: Callable[[Row], bool]) -> Callable[[list[Row]], float]:
    return lambda own: float(np.mean([holds(row) for row in own]))


def nmi(row: Row) -> float:
    return 100 * float(row["nmi"]["rpml"] - row["nmi"]["pca"])


def lost(own: list[Row]) -> list[float]:
    return [100 * row["verdict"]["lost"] for row in own if row["verdict"]]


TABLES: dict[str, Callable[[], list[str]]] = {
    "rules": rules,
    "training": training,
    "shrinkages": shrinkages,
    "targets": targets,
}


def main() -> None:
    page = PAGE.read_text(encoding="utf8")
    for name, table in TABLES.items():
        page = replaced(page, f"<!-- table: {name} -->\n", "<!-- end of table -->\n", table())
    PAGE.write_text(page, encoding="utf8")


if __name__ == "__main__":
    main()
