"""Write the results paragraph of the README between its two marks.

From results/zoo.json and, for what training adds, results/whitening_rules.json.

python benchmarks/readme_figures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from results_zoo_page import FIGURE, Row, hindsight, load, points
from whitening_page import training_effects

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- figures: benchmarks/readme_figures.py -->", "<!-- end figures -->"
DIM = 64


def paragraph(rows: list[Row]) -> str:
    """How often it helps, how much, and where it does not."""
    own = sorted((row for row in rows if row["dim"] == DIM), key=points)
    gains = np.array([points(row) for row in own])
    better = sum(row["gain"]["rpml"][1] > 0 for row in own)
    worse = sum(row["gain"]["rpml"][2] < 0 for row in own)
    nmi = [100 * (row["nmi"]["rpml"] - row["nmi"]["pca"]) for row in own]
    lost = [100 * row["verdict"]["lost"] for row in own if row["verdict"]]
    added = [*training_effects()[DIM].values()]
    text = (
        f"Zero-shot retrieval on {len(own)} sets of frozen features (text, images, sound, "
        f"molecules, cells): fitted without labels on half of the classes, scored on the others, "
        f"default settings, {DIM} dimensions.\n\n"
        f"- The gain over PCA of the same size is {gains.mean():+.1f} points of Recall@1 on "
        f"average (median {np.median(gains):+.1f}), from {gains[0]:+.1f} ({own[0]['set']}) to "
        f"{gains[-1]:+.1f} ({own[-1]['set']}). The 95% interval is above 0 on {better} sets and "
        f"below 0 on {worse}.\n"
        f"- The mean gain over the best of PCA, half- and full whitening, chosen in hindsight for "
        f"each set, is {np.mean([*map(hindsight, own)]):+.1f}.\n"
        f"- The mean gain in NMI of k-means clusters is {np.mean(nmi):+.1f}.\n"
        f"- Nearly all of the gain comes from the label-free [whitening](docs/decisions/"
        f"whitening.md): training on triplets adds {np.mean(added):+.1f} points on average, from "
        f"{min(added):+.1f} to {max(added):+.1f} on single sets."
    )
    if lost:
        text += (
            "\n- `rpml.recommend`, which sees no labels, picks a method that is "
            f"{np.mean(lost):.1f} points below the best candidate on average "
            f"({max(lost):.1f} at worst)."
        )
    return text


def main() -> None:
    picture = f"![Gain of RPML over PCA on every set]({FIGURE.relative_to(ROOT)})"
    readme = ROOT / "README.md"
    before, rest = readme.read_text(encoding="utf8").split(BEGIN)
    after = rest.split(END)[1]
    body = f"{paragraph(load())}\n\n{picture}"
    readme.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf8")
    print("README.md updated")


if __name__ == "__main__":
    main()
