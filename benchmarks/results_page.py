"""docs/results.md, results-paper.md, results-methods.md and their figures, from benchmarks/results.

Nothing is measured.

python benchmarks/results_page.py
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import results_zoo_page
from common import RESULTS
from methods import ALL

from rpml.evaluation.registry import PCA_FAMILY

DOCS = Path(__file__).parent.parent / "docs"
MAIN = ("raw", "random", *PCA_FAMILY, "rpml", "lda")
Row = dict[str, Any]


def load(pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf8")) for path in sorted(RESULTS.glob(pattern))]


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(header)
    lines = [names, ["---", *["---:"] * (len(names) - 1)], *[list(row) for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def title(row: Row) -> str:
    return f"*{row['title']}*" if row["uses_labels"] else str(row["title"])


def main_table(content: dict[str, Any]) -> str:
    """R@1 / NMI of the main methods at every dimension."""
    rows = {(row["method"], row["asked"]): row for row in content["rows"]}
    dims = sorted({dim for method, dim in rows if method == "rpml"})
    lines = []
    for method in MAIN:
        found = [rows.get((method, dim)) for dim in dims]
        shown = [f"{percent(r['recall@1'])} / {percent(r['nmi'])}" if r and "recall@1" in r else "–"
                 for r in found]  # fmt: skip
        first = next((r for r in found if r), None)
        if first:
            lines.append([title(first), *shown])
    return table(["R@1 / NMI", *(f"{dim} dimensions" for dim in dims)], lines)


def against_best(sets: list[dict[str, Any]]) -> str:
    """Gain of RPML over the best of the PCA family, chosen in hindsight, and over raw."""
    lines = []
    for content in sets:
        rows = {(row["method"], row["asked"]): row for row in content["rows"]}
        for (method, dim), row in rows.items():
            rivals = [rows[name, dim] for name in PCA_FAMILY if (name, dim) in rows]
            if method != "rpml" or not rivals or "recall@1" not in row:
                continue
            best = max(rivals, key=lambda rival: rival["recall@1"])
            nmi = max(rivals, key=lambda rival: rival["nmi"])
            lines.append([
                content["set"], str(dim), best["title"], _gain(row["differences"][best["method"]]),
                f"{100 * (row['nmi'] - nmi['nmi']):+.1f} ({nmi['title']})",
                _gain(row["differences"].get("raw")), str(row["seeds"]),
            ])  # fmt: skip
    header = ["set", "dim", "best of the PCA family", "R@1 gain over it",
              "NMI gain over the best", "R@1 gain over raw", "seeds"]  # fmt: skip
    return table(header, lines)


def _gain(values: list[float] | None) -> str:
    if values is None:
        return "–"
    value, low, high = (100 * v for v in values)
    mark = "**" if low > 0 or high < 0 else ""
    return f"{mark}{value:+.1f}{mark} [{low:+.1f}, {high:+.1f}]"


_HEADERS = {"nmi": "NMI", "f": "F", "precision": "P", "recall": "R"}


def variants_table(content: dict[str, Any], dim: int) -> str:
    """Everything measured at one dimension."""
    rows = [row for row in content["rows"] if row["asked"] == dim]
    frequency = any("recall@1 rare" in row for row in rows)
    names = ["recall@1", "recall@2", "recall@4", "recall@8", "nmi", "f", "precision", "recall"]
    names += ["recall@1 rare", "recall@1 frequent"] if frequency else []
    lines = []
    for row in sorted(rows, key=lambda row: list(ALL).index(row["method"])):
        if "error" in row:
            lines.append([title(row), "–", *["–"] * len(names), "–", "–", str(row["seeds"])])
            continue
        gain = _gain(row["differences"].get("pca")) if row["method"] != "pca" else ""
        scores = [percent(row.get(name)) for name in names]
        lines.append([title(row), str(row["dim"]), *scores, gain, f"{row['seconds']:.1f}",
                      str(row["seeds"])])  # fmt: skip
    shown = [_HEADERS.get(name, name.replace("recall@", "R@")) for name in names]
    header = ["method", "dim", *shown, "R@1 gain over PCA", "fit, s", "seeds"]
    return table(header, lines)


CLAIMS = {
    "AAS gives better pseudo-labels than other clusterings": (
        "rpml", "rpml-kmeans", "rpml-hdbscan", "rpml-leiden"),
    "learned weights help": ("rpml", "rpml-bilinear", "rpml-constant"),
    "a smooth angular loss is better than hinge losses": (
        "loss-smooth", "loss-hinge-angular", "loss-hinge-triplet"),
}  # fmt: skip


def claim_gains(sets: list[dict[str, Any]], methods: tuple[str, ...], dim: int) -> str:
    """R@1 of the first method minus that of each other one: lowest to highest over the sets."""
    parts = []
    for other in methods[1:]:
        gains = []
        for content in sets:
            rows = {row["method"]: row for row in content["rows"] if row["asked"] == dim}
            both = [rows.get(name, {}).get("recall@1") for name in (methods[0], other)]
            if None not in both:
                gains.append(100 * (both[0] - both[1]))
        parts.append(f"{min(gains):+.1f} to {max(gains):+.1f} over {ALL[other].title}")
    return f"R@1 gain of {ALL[methods[0]].title}: {', '.join(parts)}."


def claims_section(sets: list[dict[str, Any]], dim: int) -> str:
    """Each claim of the paper next to the same fit with that part replaced."""
    parts = []
    for claim, methods in CLAIMS.items():
        lines = []
        for content in sets:
            rows = {row["method"]: row for row in content["rows"] if row["asked"] == dim}
            lines.append([content["set"], *(_score(rows.get(name)) for name in methods)])
        header = ["R@1 / NMI", *(ALL[name].title for name in methods)]
        text = f"*{claim[0].upper()}{claim[1:]}*. {claim_gains(sets, methods, dim)}"
        parts.append(f"{text}\n\n{table(header, lines)}")
    orthonormal, free = "loss-smooth", "loss-free"
    lines = []
    for content in sets:
        rows = {row["method"]: row for row in content["rows"] if row["asked"] == dim}
        both = [rows.get(orthonormal, {}), rows.get(free, {})]
        if all("recall@1 rare" in row for row in both):
            shares = [row[f"recall@1 {kind}"] for kind in ("rare", "frequent") for row in both]
            lines.append([content["set"], *map(percent, shares)])
    header = ["R@1", "rare, orthonormal", "rare, free", "frequent, orthonormal", "frequent, free"]
    parts.append(
        "*Orthogonality helps rare classes*. (Unweighted smooth loss; mean R@1 of the rarest and "
        "of the most frequent third of the test classes; sets with classes of equal size are left "
        f"out.)\n\n{table(header, lines)}"
    )
    return "\n".join(parts)


def ablation_figure(content: dict[str, Any], path: Path) -> None:
    """Small multiples: one panel per setting, one line per set, R@1 gain over the default."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "rpml"  # the same bytes from the same figures
    from matplotlib import pyplot as plt

    knobs = list(dict.fromkeys(row["knob"] for row in content["rows"]))
    sets = list(dict.fromkeys(row["set"] for row in content["rows"] if "recall@1" in row))
    fig, axes = plt.subplots(3, 3, figsize=(10, 8), sharey=True, layout="constrained")
    for axis, knob in zip(axes.flat, knobs, strict=False):
        rows = [row for row in content["rows"] if row["knob"] == knob]
        values = list(dict.fromkeys(row["value"] for row in rows))
        for name in sets:
            own = {r["value"]: r for r in rows if r["set"] == name and "recall@1" in r}
            base = next((r["recall@1"] for r in own.values() if r["default"]), None)
            if base is not None:
                shown = [v for v in values if v in own]
                gains = [100 * (own[v]["recall@1"] - base) for v in shown]
                axis.plot([values.index(v) for v in shown], gains, "o-", label=name, lw=1, ms=4)
        axis.axhline(0, color="0.7", lw=0.8, zorder=0)
        axis.set_title(knob, fontsize=10)
        axis.set_xticks(range(len(values)), values, fontsize=8, rotation=20 * (knob == "loss"))
    for axis in axes[:, 0]:
        axis.set_ylabel("R@1 gain over the default", fontsize=8)
    axes.flat[0].legend(fontsize=7)
    fig.savefig(path, metadata={"Date": None})
    plt.close(fig)


def ablation_section(content: dict[str, Any]) -> str:
    sets = list(dict.fromkeys(row["set"] for row in content["rows"] if "recall@1" in row))
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in content["rows"]:
        found.setdefault((row["knob"], row["value"]), {})[row["set"]] = row
    lines = []
    for (knob, value), by_set in found.items():
        default = any(row["default"] for row in by_set.values())
        shown = [_score(by_set.get(name)) for name in sets]
        lines.append([f"{knob} = {value}" + (" (default)" if default else ""), *shown])
    return table([f"R@1 / NMI at {content['dim']}", *sets], lines)


def groups_section(content: dict[str, Any]) -> str:
    """Mean over the seeds, one line per method and set."""
    rows = content["results"]["rows"]
    dims = sorted({row["dim"] for row in rows})
    lines = []
    for key in dict.fromkeys((row["set"], row["method"]) for row in rows):
        cells = []
        for dim in dims:
            own = [r for r in rows if (r["set"], r["method"]) == key and r["dim"] == dim]
            mean = [sum(r[name] for r in own) / len(own) for name in ("recall@1", "nmi")]
            cells.append(f"{mean[0]:.1f} / {mean[1]:.1f} ({len(own)})")
        lines.append([*key, *cells])
    header = ["set", "method", *(f"R@1 / NMI at {dim} (seeds)" for dim in dims)]
    return table(header, lines)


def limits_section(content: dict[str, Any]) -> str:
    """Purity of the triplets, and scores with better clusters and better whitening."""
    names = ["positives right", "negatives right", "nearest neighbor right", "rows alone"]
    fits = ["aas", "classes as clusters", "classes known"]
    lines = [
        [row["set"], *(percent(row[name]) for name in names), *(_score(row[fit]) for fit in fits)]
        for row in content["results"]["rows"]
    ]
    shown = ["correct positives", "correct negatives", "correct nearest neighbors", "singletons"]
    header = ["set", *shown, "RPML", "*true classes as clusters*",
              "*and in the whitening*"]  # fmt: skip
    return table(header, lines)


def limits_text(rows: list[Row]) -> str:
    """What better clusters, and better whitening, would gain."""
    clusters, whitening = (
        {row["set"]: 100 * (row[fit]["recall@1"] - row["aas"]["recall@1"]) for row in rows}
        for fit in ("classes as clusters", "classes known")
    )
    most = max(whitening, key=whitening.__getitem__)
    return (
        "128 dimensions, one seed. With the true classes instead of AAS clusters, R@1 gains at "
        f"most {max(clusters.values()):.1f} points: better pseudo-labels would not help much. If "
        f"the whitening sees the classes as well, it gains up to {whitening[most]:.1f} ({most}). "
        "An orthonormal L cannot rescale directions, so the within-class scatter has to come from "
        "the whitening, and neighborhoods alone do not reveal it.\n"
    )


def _score(row: Row | None) -> str:
    if row is None or "recall@1" not in row:
        return "–"
    return f"{percent(row['recall@1'])} / {percent(row['nmi'])}"


def comparisons() -> list[dict[str, Any]]:
    sets = load("comparison-*.json")
    return [content for content in sets if any(r["method"] == "lda" for r in content["rows"])]


def page() -> str:
    """The gain over PCA: what it means, then the tables."""
    zoo = (RESULTS / "zoo.json").exists()
    parts = [
        "# Results\n",
        *([results_zoo_page.meaning(results_zoo_page.load())] if zoo else ()),
        "How it was measured: retrieval on frozen features. A method is fitted on the training "
        "classes without their labels and scored on other classes by cosine similarity. Scores are "
        "percentages, gains are points.\n",
        "- NMI is computed on k-means clusters, one per class.\n"
        "- Intervals are 95% paired bootstrap intervals over queries (2,000 resamples); bold gains "
        "exclude 0.\n"
        "- The thresholds of the fit were chosen on these sets, which favors RPML a little "
        "([by how much](decisions/whitening.md#why)).\n"
        "- More: [three sets in detail and the paper's claims](results-paper.md), [all methods and "
        "settings](results-methods.md). These pages are generated by `make results DATA=...`; do "
        "not edit them.\n",
        *(results_zoo_page.section() if zoo else ()),
    ]
    return "\n".join(parts)


def paper_page() -> str:
    """Three sets in detail: the best baseline, groups, limits, and the claims of the paper."""
    sets = comparisons()
    parts = [
        "# Three sets in detail, and the paper's claims\n",
        "Sentences, photographs of birds and handwritten characters. RPML is above the best of "
        "PCA, half-whitening and whitening on the pictures and equal to it on the sentences. "
        "Nearly all of its gain comes from the whitening: the choice of clustering, weights and "
        "loss changes little, and true classes instead of clusters would, too. Labels in the "
        "whitening would gain most.\n",
        "The protocol is that of [Results](results.md). Methods in *italics* use the labels of the "
        "training classes and serve as upper bounds. LDA has at most one dimension fewer than "
        "there are training classes.\n",
        "## RPML against the best of PCA, half-whitening and whitening\n",
        "The baseline of each row is the best one by the test labels.\n",
        against_best(sets),
    ]
    for content in sets:
        parts += [f"## {content['set']}\n", main_table(content)]
    if (RESULTS / "groups.json").exists():
        parts += [
            "## Groups: rows known to show the same instance\n",
            "Three affine views of each training image; scored on the original images. RCA "
            "(metric-learn) and LDA use the same groups, after PCA to 256 dimensions.\n",
            groups_section(load("groups.json")[0]),
        ]
    if (RESULTS / "limits.json").exists():
        parts += [
            "## What limits RPML\n",
            limits_text(load("limits.json")[0]["results"]["rows"]),
            limits_section(load("limits.json")[0]),
        ]
    parts += ["## The paper's claims, tested\n", "64 dimensions.\n", claims_section(sets, 64)]
    return "\n".join(parts)


def methods_page() -> str:
    """Every method and every setting."""
    sets = comparisons()
    parts = [
        "# All methods and settings\n",
        "Every method on three sets, and every setting of RPML. Half-whitened PCA is the baseline "
        "to beat; methods that use labels are in italics. Of the settings of RPML only the "
        "whitening and the loss matter by more than about a point.\n",
        "The protocol is that of [Results](results.md), at 64 dimensions. The machine was shared "
        "and busy: read fit times as orders of magnitude. The rows were not all "
        "measured by the same version; `sources` in `benchmarks/results/comparison-*.json` and "
        "`ablation.json` has the commits.\n",
    ]
    for content in sets:
        parts += [f"## {content['set']}\n", variants_table(content, 64)]
    if (RESULTS / "ablation.json").exists():
        content = load("ablation.json")[0]
        (DOCS / "figures").mkdir(exist_ok=True)
        ablation_figure(content, DOCS / "figures" / "ablation.svg")
        seeds = sorted({row["seeds"] for row in content["rows"] if row["seeds"]})
        parts += [
            "## Which settings matter\n",
            "One setting is changed at a time; seeds per point: "
            f"{', '.join(map(str, seeds))}. With one seed, differences below about one point are "
            "within the noise.\n",
            "![Recall@1 as one setting changes](figures/ablation.svg)\n",
            ablation_section(content),
        ]
    return "\n".join(parts)


if __name__ == "__main__":
    pages = {
        "results.md": page(),
        "results-paper.md": paper_page(),
        "results-methods.md": methods_page(),
    }
    for name, text in pages.items():
        (DOCS / name).write_text(text, encoding="utf8")
        print(f"written to {DOCS / name}")
