"""docs/results-clusters.md, from results/clustering.json.

python benchmarks/clustering_page.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS
from results_zoo_page import markdown

PAGE = Path(__file__).parent.parent / "docs" / "results-clusters.md"
TEXT = """# Clusters

If you know the number of clusters, `AuthorityAscentShift(n_clusters=K)` is about as good as Leiden
and better than k-means, without tuning. If you do not, its number of clusters is often off by a
factor of two or more, as for every method here; EVoC has the higher NMI, and leaves a quarter of
the rows out as noise.

`AuthorityAscentShift` (`rpml cluster`) compared with other clusterings on {count} sets of real
features with {fewest} to {most} classes. The rule that merges clusters and its constants were
chosen on these sets, which favors AAS. One run per method, one thread, CPU seconds on a busy
machine (Leiden's resolution is bisected in up to six steps). NMI and ARI compare with the classes,
which no method sees. Each noise row counts as its own cluster, which raises NMI but not ARI.
"clusters / classes" is the geometric mean over the sets and, in parentheses, the range.{missing}

## Default settings

{defaults}
## With the number of classes given

Leiden and EVoC are tuned to come close to this number; AAS is
`AuthorityAscentShift(n_clusters=K, min_cluster_size=3)`.

{equal}
## Conclusions

{verdict}
Without labels no criterion knows how fine the classes are. If you know their number, pass
`n_clusters=`; if you know how small a cluster may be, pass `min_cluster_size=`. In high dimensions
classes are rarely separated by valleys of low density: merging modes over shallow saddles of the
authority joined nearly everything into one cluster on these sets, which is why basins merge by mean
affinity.

## All sets: NMI / ARI (clusters)

{sets}"""


def missing(names: list[str]) -> str:
    """Say which of the peers these results do not have."""
    absent = [peer for peer in ("k-means", "HDBSCAN", "Leiden", "EVoC") if peer not in str(names)]
    return f" Not measured yet: {' and '.join(absent)}." if absent else ""


def column(results: list[dict[str, Any]], method: str, key: str) -> np.ndarray:
    return np.array([row["methods"][method][key] for row in results])


def table(results: list[dict[str, Any]], methods: list[str]) -> str:
    classes = np.array([row["classes"] for row in results])
    lines = []
    for name in methods:
        ratio = np.maximum(column(results, name, "clusters"), 1) / classes
        nmi, ari = column(results, name, "nmi"), column(results, name, "ari")
        lines.append([
            name, f"{nmi.mean():.3f}", f"{ari.mean():.3f}",
            f"{np.exp(np.log(ratio).mean()):.2f} ({ratio.min():.2f} to {ratio.max():.1f})",
            f"{100 * column(results, name, 'noise').mean():.0f}%",
            f"{np.median(column(results, name, 'seconds')):.1f}",
        ])  # fmt: skip
    header = ["method", "mean NMI", "mean ARI", "clusters / classes", "noise", "median seconds"]
    return markdown(header, lines)


def compare(results: list[dict[str, Any]], ours: str, other: str) -> str:
    nmi = column(results, ours, "nmi") - column(results, other, "nmi")
    ari = column(results, ours, "ari") - column(results, other, "ari")
    worst = results[int(nmi.argmin())]["set"]
    return (
        f"- {ours} against {other}: NMI {nmi.mean():+.3f}, ARI {ari.mean():+.3f} on average; "
        f"higher NMI on {(nmi > 0).sum()} of {len(nmi)} sets, lower by "
        f"{max(0, -nmi.min()):.3f} at worst ({worst}).\n"
    )


def main() -> None:
    content = json.loads((RESULTS / "clustering.json").read_text(encoding="utf8"))
    results = content["results"]["sets"]
    names = list(results[0]["methods"])
    equal = [name for name in names if name.endswith("at K")]
    defaults = [name for name in names if name not in equal]
    verdict = "".join(
        [compare(results, "AAS", other) for other in defaults[1:]]
        + [compare(results, "AAS at K", other) for other in equal[1:]]
    )
    shown = [name for name in names if name != "AAS as printed"]
    lines = [
        [row["set"], str(row["classes"])]
        + [
            f"{m['nmi']:.2f} / {m['ari']:.2f} ({m['clusters']})"
            for m in (row["methods"][name] for name in shown)
        ]
        for row in sorted(results, key=lambda row: row["set"])
    ]
    classes = [row["classes"] for row in results]
    page = TEXT.format(
        count=len(results),
        missing=missing(names),
        fewest=min(classes),
        most=max(classes),
        defaults=table(results, defaults),
        equal=table(results, equal),
        verdict=verdict,
        sets=markdown(["set", "classes", *shown], lines),
    )
    PAGE.write_text(page, encoding="utf8")


if __name__ == "__main__":
    main()
