"""The section and the figure of the gains over PCA, from results/zoo.json.

python benchmarks/results_zoo_page.py    draws docs/figures/gains.svg
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import results_safety
from common import RESULTS
from methods import ALL

from rpml.evaluation.registry import PCA_FAMILY

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "gains.svg"
PEERS = (
    "truncation",
    "all-but-the-top",
    "half-whitened",
    "pca-whitened",
    "shrunk-whitened",
    "adaptor-linear",
    "adaptor",
    "rpml",
)
Row = dict[str, Any]


def load() -> list[Row]:
    content = json.loads((RESULTS / "zoo.json").read_text(encoding="utf8"))
    return [row for row in content["rows"] if "rpml" in row["gain"]]


def by_dim(rows: list[Row]) -> dict[int, list[Row]]:
    return {dim: [r for r in rows if r["dim"] == dim] for dim in sorted({r["dim"] for r in rows})}


def points(row: Row, method: str = "rpml") -> float:
    return 100 * row["gain"][method][0]


def hindsight(row: Row) -> float:
    """Gain of RPML over the best of the PCA family by the test labels, in points."""
    return 100 * (row["recall"]["rpml"] - max(row["recall"][name] for name in PCA_FAMILY))


def markdown(header: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines]) + "\n"


def distribution(rows: list[Row]) -> str:
    """How often it helps, how much, where it does not: one line per number of dimensions."""
    lines = []
    for dim, own in by_dim(rows).items():
        gains = np.array([points(row) for row in own])
        worst = own[int(gains.argmin())]
        clear = [
            sum(row["gain"]["rpml"][1] > 0 for row in own),
            sum(row["gain"]["rpml"][2] < 0 for row in own),
        ]
        nmi = np.array([100 * (row["nmi"]["rpml"] - row["nmi"]["pca"]) for row in own])
        lines.append([
            str(dim), str(len(own)), f"{gains.mean():+.1f}", f"{np.median(gains):+.1f}",
            f"{clear[0]} / {clear[1]}", f"{100 * np.mean(gains < -0.3):.0f}%",
            f"{gains.min():+.1f} ({worst['set']})", f"{np.mean([*map(hindsight, own)]):+.1f}",
            f"{nmi.mean():+.1f}", f"{100 * np.mean(nmi < -1):.0f}%",
        ])  # fmt: skip
    header = ["dimensions", "sets", "mean gain", "median gain", "sets clearly better / worse",
              "sets more than 0.3 below", "worst set", "mean gain over the best of PCA, half- and "
              "full whitening, chosen by the test labels", "mean NMI gain",
              "sets with NMI more than 1 below"]  # fmt: skip
    return markdown(header, lines)


def per_set(rows: list[Row]) -> str:
    """Gain over PCA of every set."""
    dims = list(by_dim(rows))
    lines = []
    for name in sorted({row["set"] for row in rows}):
        own = {row["dim"]: row for row in rows if row["set"] == name}
        cells = [_gain(own[dim]["gain"]["rpml"]) if dim in own else "–" for dim in dims]
        middle = own.get(64) or next(iter(own.values()))
        scores = [f"{100 * middle['recall'][m]:.1f}" for m in ("raw", "pca", "rpml")]
        lines.append([name, *scores, *cells])
    header = ["set", *("raw", "PCA 64", "RPML 64"), *(f"gain at {dim}" for dim in dims)]
    return markdown(header, lines)


def _gain(values: list[float]) -> str:
    value, low, high = (100 * v for v in values)
    mark = "**" if low > 0 or high < 0 else ""
    return f"{mark}{value:+.1f}{mark} [{low:+.1f}, {high:+.1f}]"


def peers(rows: list[Row]) -> str:
    """Mean and worst gain over PCA of every method."""
    groups = by_dim(rows)
    lines = []
    for name in PEERS:
        cells = []
        for own in groups.values():
            gains = [points(row, name) for row in own if name in row["gain"]]
            cells.append(f"{np.mean(gains):+.1f} ({min(gains):+.1f})" if gains else "–")
        lines.append([ALL[name].title, *cells])
    return markdown(["mean gain over PCA (worst)", *(f"{dim}" for dim in groups)], lines)


def searched_points(row: Row) -> float:
    """RPML's gain over PCA in points, both fitted on the rows that are searched."""
    return 100 * float(row["searched"]["rpml"] - row["searched"]["pca"])


def searched(rows: list[Row]) -> str:
    """Fitted on the rows that are searched: over PCA, and how much of PCA's loss is new classes."""
    lines = []
    for dim, own in by_dim([row for row in rows if len(row["searched"]) == 2]).items():
        gains = np.array([searched_points(row) for row in own])
        over_raw = (
            np.mean([100 * (row[fit][kind] - row["recall"]["raw"]) for row in own])
            for kind in ("pca", "rpml")
            for fit in ("recall", "searched")
        )
        lines.append([
            str(dim), f"{gains.mean():+.1f}", f"{np.median(gains):+.1f}",
            f"{np.mean(gains < -0.3):.0%}", f"{gains.min():+.1f} ({own[gains.argmin()]['set']})",
            *(f"{gain:+.1f}" for gain in over_raw),
        ])  # fmt: skip
    header = ["dimensions", "mean gain over PCA", "median", "sets more than 0.3 below", "worst set",
              "PCA over raw: new classes", "PCA over raw: searched rows",
              "RPML over raw: new classes", "RPML over raw: searched rows"]  # fmt: skip
    return (
        "The tables above are zero-shot: no class is in both halves. Most people search the rows "
        f"they fitted on. All classes, at most {results_safety.WHOLE:,} rows per set "
        "(`benchmarks/results_safety.py`):\n\n"
        + results_safety.whole_table(results_safety.load())
        + "\nHalf of the classes, three splits, one seed:\n\n"
        + markdown(header, lines)
        + "\n"
        "**Fit on the rows that you search**, or on a sample of them: most of what PCA loses "
        "against the raw vectors on new classes, it does not lose on rows that it was fitted on.\n"
    )


def verdicts(rows: list[Row]) -> str:
    """What the label-free recommendation costs against the best candidate of the size."""
    lines = []
    for dim, own in by_dim(rows).items():
        judged = [row for row in own if row["verdict"]]
        lost = np.array([100 * row["verdict"]["lost"] for row in judged])
        if not len(lost):
            continue
        choices = [choice for row in judged for choice in row["verdict"]["choices"]]
        counts = ", ".join(f"{ALL[m].title} {choices.count(m)}" for m in dict.fromkeys(choices))
        always = [
            100 * (max(r["recall"][m] for m in (*PCA_FAMILY, "rpml")) - r["recall"]["rpml"])
            for r in judged
        ]
        lines.append([
            str(dim), counts, f"{lost.mean():.2f}", f"{np.quantile(lost, 0.9):.2f}",
            f"{lost.max():.2f}", f"{np.quantile(always, 0.9):.2f} / {max(always):.2f}",
        ])  # fmt: skip
    header = ["dimensions", "recommended (splits)", "mean loss", "90% quantile",
              "largest", "always RPML: 90% quantile / largest"]  # fmt: skip
    return markdown(header, lines)


TEXT = ("minilm", "use", "wordllama")  # encoders, as the names of the sets end


def meaning(rows: list[Row]) -> str:
    """What the page says, in three sentences."""
    own = [row for row in rows if row["dim"] == 64]
    gains = np.array([points(row) for row in own])
    gained = gains[gains >= 0.05]
    losses = [(points(row), row, "new classes") for row in rows]
    losses += [(searched_points(row), row, "searched rows") for row in rows if row["searched"]]
    worst, at, use = min(losses, key=lambda loss: loss[0])
    texts = sum(
        row["set"].endswith(TEXT) for row, gain in zip(own, gains, strict=True) if abs(gain) < 0.05
    )
    return (
        f"At 64 dimensions RPML finds the right neighbor more often than PCA of the same size on "
        f"{len(gained)} of {len(own)} sets, by {gained.mean():.1f} points of Recall@1 on average "
        f"and by {gains.max():.1f} at most. On the others no evidence supports more than PCA, so "
        f"the fit falls back to it; {texts} of them are text embeddings. The largest loss at any "
        f"size is {-worst:.1f} points ({at['set']}, {at['dim']} dimensions, {use}). **Fit on the "
        "rows that you search**, or on a sample of them: PCA and RPML both lose on classes they "
        "have not seen.\n\n"
        "PCA means PCA of rows scaled to unit norm, compared by cosine similarity.\n"
    )


def section() -> list[str]:
    """The parts of the page, the most important first."""
    rows = load()
    n_sets = len({row["set"] for row in rows})
    return [
        f"## Gain over PCA on {n_sets} sets\n",
        "Default settings, three random splits of the classes and three seeds per set; points of "
        "Recall@1 on the held-out classes.\n",
        distribution(rows),
        "![Gain over PCA on every set](figures/gains.svg)\n",
        "### Every set\n",
        per_set(rows),
        "### Other methods\n",
        "The adaptors are made for text. They are measured at 64 dimensions on one split per set, "
        "with the same settings everywhere. They start from the first columns, which is a bad "
        "start for features such as HOG.\n",
        peers(rows),
        "### Fitted on the rows that are searched\n",
        searched(rows),
        "### Few rows, other sizes\n",
        "Complete fits with default settings to a sample of the training rows, two splits each "
        "(`benchmarks/results_safety.py`).\n",
        results_safety.table(results_safety.load()),
        "### Recommending a method without labels\n",
        "`rpml.recommend` sees the training rows only, without labels. The loss is how many points "
        "of Recall@1 the recommended method is below the best of PCA, half-whitening, whitening "
        "and RPML, chosen by the test labels.\n",
        verdicts(rows),
    ]


def draw(rows: list[Row], path: Path) -> None:
    """Sets in order of their gain: 64 dimensions with its interval, then 32 and 128."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "rpml"  # the same bytes from the same figures
    from matplotlib import pyplot as plt

    groups = {dim: {row["set"]: row for row in own} for dim, own in by_dim(rows).items()}
    middle = groups.get(64) or next(iter(groups.values()))
    order = sorted(middle, key=lambda name: points(middle[name]))
    fig, axis = plt.subplots(figsize=(7.5, 0.19 * len(order) + 1), layout="constrained")
    axis.axvline(0, color="0.6", lw=1, zorder=0)
    places = np.arange(len(order))
    for dim, mark, color in ((32, "<", "#9ecae1"), (128, ">", "#6baed6")):
        shown = [
            (points(groups[dim][name]), i)
            for i, name in enumerate(order)
            if name in groups.get(dim, {})
        ]
        if shown:
            axis.plot(*zip(*shown, strict=True), mark, color=color, ms=4, label=f"{dim} dimensions")
    values = np.array([[100 * v for v in middle[name]["gain"]["rpml"]] for name in order])
    spread = np.abs(values[:, 1:] - values[:, :1]).T
    axis.errorbar(values[:, 0], places, xerr=spread, fmt="o", color="#08519c", ms=4, lw=1,
                  label="64 dimensions, 95% interval")  # fmt: skip
    axis.set_xscale("symlog", linthresh=2)
    ticks = [-2, -1, 0, 1, 2, 5, 10, 20, 40]
    axis.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks])
    axis.set_yticks(places, order, fontsize=7)
    axis.set_ylim(-0.7, len(order) - 0.3)
    axis.set_xlabel("gain over PCA, points of Recall@1 on classes not seen in training")
    axis.legend(fontsize=7, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, metadata={"Date": None})
    plt.close(fig)


if __name__ == "__main__":
    draw(load(), FIGURE)
