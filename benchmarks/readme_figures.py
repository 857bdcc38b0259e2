"""Write the results paragraph of the README between its two marks.

From results/zoo.json and, for what training adds, results/whitening_rules.json.

python benchmarks/readme_figures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from results_zoo_page import FIGURE, Row, hindsight, load, points, searched_points
from whitening_page import training_effects

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- figures: benchmarks/readme_figures.py -->", "<!-- end figures -->"
DIM = 64
SAME = 0.05  # points of Recall@1: as PCA
TEXT = ("minilm", "use", "wordllama")  # encoders, as the names of the sets end


def paragraph(rows: list[Row]) -> str:
    """How often it helps, how much, and where it does not."""
    own = sorted((row for row in rows if row["dim"] == DIM), key=points)
    beyond = [row for row in own if abs(points(row)) >= SAME]
    as_pca = [row["set"] for row in own if abs(points(row)) < SAME]
    text_sets = sum(name.endswith(TEXT) for name in as_pca)
    better = sum(row["gain"]["rpml"][1] > 0 for row in own)
    worse = sum(row["gain"]["rpml"][2] < 0 for row in own)
    nmi = [100 * (row["nmi"]["rpml"] - row["nmi"]["pca"]) for row in own]
    lost = [100 * row["verdict"]["lost"] for row in own if row["verdict"]]
    added = [*training_effects()[DIM].values()]
    searched = np.array([searched_points(row) for row in own])
    over_raw = [100 * (row["searched"]["rpml"] - row["recall"]["raw"]) for row in own]
    text = (
        f"Zero-shot retrieval on {len(own)} sets of frozen features (text, images, sound, "
        f"molecules, cells): fitted without labels on half of the classes, scored on the others, "
        f"default settings, {DIM} dimensions.\n\n"
        f"- On {len(as_pca)} sets, {text_sets} of them text embeddings, there is no label-free "
        f"evidence for more than PCA: the fit is PCA and says so.\n"
        f"- On the other {len(beyond)} the gain over PCA of the same size is "
        f"{np.mean([*map(points, beyond)]):+.1f} points of Recall@1 on average, from "
        f"{points(beyond[0]):+.1f} ({beyond[0]['set']}) to {points(beyond[-1]):+.1f} "
        f"({beyond[-1]['set']}). Over all sets it is {np.mean([*map(points, own)]):+.1f} (median "
        f"{np.median([*map(points, own)]):+.1f}). The 95% interval is above 0 on {better} sets and "
        f"below 0 on {worse}.\n"
        f"- Fitted on the rows that are searched, as most people do, the mean gain over PCA is "
        f"{searched.mean():+.1f}, from {searched.min():+.1f} to {searched.max():+.1f}, and over "
        f"the raw vectors of all dimensions {np.mean(over_raw):+.1f}.\n"
        f"- The mean gain over the best of PCA, half- and full whitening, chosen in hindsight for "
        f"each set, is {np.mean([*map(hindsight, own)]):+.1f}. In NMI of k-means clusters, the "
        f"mean gain over PCA is {np.mean(nmi):+.1f}.\n"
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
