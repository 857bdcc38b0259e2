"""Write the figures of the README between their marks.

From results/zoo.json, bytes.json, knowledge.json and, for what training adds, whitening_rules.json.

python benchmarks/readme_figures.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from bytes import load as load_bytes
from bytes_page import FIGURE as BYTES_FIGURE
from bytes_page import OURS, PEER, by_system, gains, raw_rows
from knowledge_page import RESULTS as KNOWLEDGE
from knowledge_page import nuisance_lift, query_lift
from performance_page import replaced
from results_zoo_page import FIGURE, Row, by_dim, hindsight, load, points, searched_points
from whitening_page import ELSEWHERE, MEAN, RULE, rule_cells, training_effects

ROOT = Path(__file__).parent.parent
END = "<!-- end figures -->"
DIM = 64
SAME = 0.05  # points of Recall@1: as PCA
N_BYTES = 16
TEXT = ("minilm", "use", "wordllama")  # encoders, as the names of the sets end


def smaller() -> str:
    """What codes keep at a size, next to the raw vectors and the best peer."""
    rows = load_bytes()
    raw, systems = raw_rows(rows, "searched"), by_system(rows, "searched")
    ours, peer = systems[OURS][N_BYTES], systems[PEER][N_BYTES]
    sizes = [row["bytes"] for row in raw.values()]
    over = gains(ours, raw)
    lead = np.array([100 * (ours[name]["recall"] - peer[name]["recall"]) for name in ours])
    return (
        f"- **Smaller.** {N_BYTES} bytes per vector instead of {min(sizes):,} to {max(sizes):,}: "
        f"{over.mean():+.1f} points of Recall@1 over the raw vectors on average (median "
        f"{np.median(over):+.1f}, worst {over.min():+.1f}, {len(raw)} sets, fitted on the rows "
        f"that are searched), and {lead.mean():+.1f} over faiss' OPQ of the same size (above it on "
        f"{np.sum(lead > 0)} of {len(lead)} sets). "
        "[Codes at equal bytes](docs/results-bytes.md)"
    )


def known() -> str:
    """What a known nuisance and a log of queries gain, over the same fit without them."""
    results = json.loads(KNOWLEDGE.read_text(encoding="utf8"))["results"]
    nuisance, queries = nuisance_lift(results), query_lift(results, 2 * DIM)
    return (
        "- **Better when you say what you know,** without labeling anything. A known nuisance "
        f"(language, camera, batch; `nuisance=`) lifts Recall@1 at {DIM} dimensions {nuisance}; a "
        f"log of queries (`queries=`) lifts nDCG@10 at {2 * DIM} dimensions {queries}. Rows that "
        "show the same instance (`groups=`) and a few labels help too. "
        "[What you know](docs/labels.md), [every set](docs/results-knowledge.md)"
    )


def measured(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The sets on which the fit does as PCA, and the others, by their gain."""
    own = sorted((row for row in rows if row["dim"] == DIM), key=points)
    parts: tuple[list[Row], list[Row]] = ([], [])
    for row in own:
        parts[abs(points(row)) >= SAME].append(row)
    return parts


def short(rows: list[Row]) -> str:
    """What it gains and when it does not, in two bullets."""
    as_pca, beyond = measured(rows)
    text_sets = sum(row["set"].endswith(TEXT) for row in as_pca)
    own = as_pca + beyond
    better = sum(row["gain"]["rpml"][1] > 0 for row in own)
    worse = sum(row["gain"]["rpml"][2] < 0 for row in own)
    return (
        f"Measured on {len(own)} sets of frozen features (text, images, sound, molecules, cells), "
        f"{DIM} dimensions, classes not seen in training, against PCA of the same size:\n\n"
        f"- **{len(as_pca)} sets: no gain.** No label-free evidence supports more than PCA, so the "
        f"fit falls back to PCA and says so. {text_sets} of them are text embeddings.\n"
        f"- **{len(beyond)} sets: {np.mean([*map(points, beyond)]):+.1f} points of Recall@1 on "
        f"average**, median {np.median([*map(points, beyond)]):+.1f}, from "
        f"{points(beyond[0]):+.1f} ({beyond[0]['set']}) to {points(beyond[-1]):+.1f} "
        f"({beyond[-1]['set']}). The 95% interval is above 0 on {better} sets and below 0 on "
        f"{worse}."
    )


def details(rows: list[Row]) -> str:
    """The gain in other uses and against other baselines, and where it comes from."""
    as_pca, beyond = measured(rows)
    own = as_pca + beyond
    nmi = [100 * (row["nmi"]["rpml"] - row["nmi"]["pca"]) for row in own]
    lost = [100 * row["verdict"]["lost"] for row in own if row["verdict"]]
    added = [*training_effects()[DIM].values()]
    place = [*by_dim(rows)].index(DIM)  # the table of the rules has a gain per dimension
    alone = [rule_cells(title)[MEAN].split(" / ")[place] for title in (RULE, ELSEWHERE)]
    searched = np.array([searched_points(row) for row in own])
    over_raw = [100 * (row["searched"]["rpml"] - row["recall"]["raw"]) for row in own]
    return (
        f"Means over all {len(own)} sets, {DIM} dimensions, default settings:\n\n"
        "| | points |\n|---|---:|\n"
        f"| Recall@1 over PCA, classes not seen in training | {np.mean([*map(points, own)]):+.1f} "
        f"(median {np.median([*map(points, own)]):+.1f}) |\n"
        f"| the same, fitted on the rows that are searched | {searched.mean():+.1f} "
        f"({searched.min():+.1f} to {searched.max():+.1f}) |\n"
        f"| Recall@1 over the raw vectors, fitted on the rows that are searched | "
        f"{np.mean(over_raw):+.1f} |\n"
        "| Recall@1 over the best of PCA, half- and full whitening, chosen by the test labels | "
        f"{np.mean([*map(hindsight, own)]):+.1f} |\n"
        f"| NMI of k-means clusters over PCA | {np.mean(nmi):+.1f} |\n"
        f"| Recall@1 of the whitening alone over PCA | {alone[0]} |\n"
        f"| the same, its thresholds chosen on other sources than the one scored | {alone[1]} |\n"
        f"| what training on triplets adds to the whitening | {np.mean(added):+.1f} "
        f"({min(added):+.1f} to {max(added):+.1f}) |\n"
        "| Recall@1 lost by following `rpml.recommend` without labels, against the best method | "
        f"{np.mean(lost):.1f} ({max(lost):.1f} at worst) |"
    )


def main() -> None:
    readme, rows = ROOT / "README.md", load()
    picture = f"![Recall@1 by bytes per vector]({BYTES_FIGURE.relative_to(ROOT)})"
    gain = f"![Gain of RPML over PCA on every set]({FIGURE.relative_to(ROOT)})"
    parts = {"short": short(rows), "smaller": smaller(), "picture": picture}
    parts |= {"known": known(), "details": details(rows), "gains": gain}
    page = readme.read_text(encoding="utf8")
    for name, text in parts.items():
        start = f"<!-- figures: benchmarks/readme_figures.py, {name} -->\n"
        page = replaced(page, start, END, text.splitlines())
    readme.write_text(page, encoding="utf8")
    print("README.md updated")


if __name__ == "__main__":
    main()
