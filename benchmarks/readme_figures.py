"""Write the results paragraph of the README from benchmarks/results, between its two marks.

python benchmarks/readme_figures.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common import RESULTS

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- figures: benchmarks/readme_figures.py -->", "<!-- end figures -->"
PICTURE = "docs/figures/gains.svg"  # drawn by benchmarks/results_zoo.py
PCA_FAMILY = ("pca", "half-whitened", "pca-whitened")
Row = dict[str, Any]


def gains() -> list[Row]:
    """Gain of RPML over the best of the PCA family per set and dimension, in points."""
    found = []
    for path in sorted(RESULTS.glob("comparison-*.json")):
        content = json.loads(path.read_text(encoding="utf8"))
        rows = {(r["method"], r["asked"]): r for r in content["rows"] if "r@1" in r}
        for dim in sorted({dim for method, dim in rows if method == "rpml"}):
            own = rows["rpml", dim]
            rivals = [rows[name, dim] for name in PCA_FAMILY if (name, dim) in rows]
            best = max(rivals, key=lambda rival: rival["r@1"])
            value, low, high = (100 * v for v in own["differences"][best["method"]])
            found.append({
                "set": content["set"], "dim": dim, "r1": value, "low": low, "high": high,
                "nmi": 100 * (own["nmi"] - max(rival["nmi"] for rival in rivals)),
                "raw": 100 * (own["r@1"] - rows["raw", dim]["r@1"]),
                "raw_dim": rows["raw", dim]["dim"],
            })  # fmt: skip
    return found


def span(rows: list[Row], name: str) -> str:
    values = [row[name] for row in rows]
    return f"{min(values):+.1f} to {max(values):+.1f}"


def paragraph(rows: list[Row]) -> str:
    sets = {row["set"] for row in rows}
    better, worse = sum(row["low"] > 0 for row in rows), sum(row["high"] < 0 for row in rows)
    ratios = [row["raw_dim"] / row["dim"] for row in rows]
    small = [row for row in rows if row["dim"] == min(r["dim"] for r in rows)]
    large = [row for row in rows if row["dim"] >= 128]
    nmi = sum(row["nmi"] > 0 for row in rows)
    return (
        f"Zero-shot retrieval: fitted without labels, scored on classes not seen in training, on "
        f"{len(sets)} sets of frozen features (text, birds, characters) at "
        f"{min(r['dim'] for r in rows)} to {max(r['dim'] for r in rows)} dimensions. Against the "
        f"best of PCA, half-whitening and whitening of the same size, chosen with hindsight, "
        f"`RPML(n_components=k)` changes Recall@1 by {span(rows, 'r1')} points: clearly better in "
        f"{better} of {len(rows)} cases (the 95% interval excludes 0), clearly worse in {worse}. "
        f"k-means NMI improves in {nmi} of {len(rows)} cases ({span(rows, 'nmi')} points). Against "
        f"the raw features, which are {min(ratios):.0f} to {max(ratios):.0f} times larger, "
        f"Recall@1 changes by "
        f"{span(small, 'raw')} points at {small[0]['dim']} dimensions and by {span(large, 'raw')} "
        f"at 128 and more."
    )


def main() -> None:
    parts = [paragraph(gains())]
    if (ROOT / PICTURE).exists():
        parts.append(f"![Gain of RPML over PCA and whitening on every set]({PICTURE})")
    readme = ROOT / "README.md"
    before, rest = readme.read_text(encoding="utf8").split(BEGIN)
    after = rest.split(END)[1]
    body = "\n\n".join(parts)
    readme.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf8")
    print("README.md updated")


if __name__ == "__main__":
    main()
