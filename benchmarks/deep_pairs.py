"""How many of the pairs that label-free methods learn from are of the same class?

    python benchmarks/deep_pairs.py --data cub_googlenet.npz --array rmac

The samplers see the whitened features of the training images, not their classes; the classes only
score the pairs. Writes results/cub_deep_pairs.json and the table of docs/results-deep-details.md.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from common import RESULTS, machine
from deep import revision
from deep_baselines import CLUSTERS, kmeans_labels, mine_pools
from deep_choice import agreed_labels
from deep_page import DOCS, replace_table

from rpml.deep.methods.base import FeatureBank, aas_labels
from rpml.deep.methods.baselines import nearest_images
from rpml.estimator import RPML

BEGIN = "<!-- table: python benchmarks/deep_pairs.py -->"
Pairs = tuple[np.ndarray, np.ndarray]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help=".npz with features, y and train")
    parser.add_argument("--array", default="rmac", help="name of the features")
    return parser.parse_args()


def from_labels(labels: np.ndarray) -> Pairs:
    """All pairs of rows with equal labels."""
    same = labels[:, None] == labels[None]
    return np.nonzero(np.triu(same, 1))


def from_lists(anchors: np.ndarray, lists: list[np.ndarray]) -> Pairs:
    """(anchor, member) of one list per anchor."""
    return np.repeat(anchors, [len(members) for members in lists]), np.concatenate(lists)


def scored(name: str, pairs: Pairs, classes: np.ndarray) -> dict:
    """Precision and recall of the pairs, and the share of the images that are in one."""
    first, second = pairs
    same = classes[first] == classes[second]
    right = {(min(i, j), max(i, j)) for i, j in zip(first[same], second[same], strict=True)}
    sizes = np.bincount(classes)
    return {
        "sampler": name,
        "pairs": len(first),
        "precision": float(same.mean()),
        "recall": len(right) / float((sizes * (sizes - 1) / 2).sum()),
        "images": len(np.union1d(first, second)) / len(classes),
    }


def measure(bank: FeatureBank, classes: np.ndarray) -> list[dict]:
    neighbors = nearest_images(bank)[:, 1:]
    everyone = np.arange(len(classes))
    pools = mine_pools(bank)
    anchors = np.array([pool[0] for pool in pools])
    samplers = {
        "AAS": from_labels(aas_labels(bank, 1)),
        "AAS, two levels (sRPML)": from_labels(aas_labels(bank, 2)),
        "AAS, two levels, halves of the features agree": from_labels(agreed_labels(bank, 2)),
        "AAS, three levels": from_labels(aas_labels(bank, 3)),
        "AAS, three levels, halves of the features agree": from_labels(agreed_labels(bank, 3)),
        f"k-means, {CLUSTERS} clusters (DeepCluster)": from_labels(kmeans_labels(bank, CLUSTERS)),
        "four nearest neighbors (STML's batches)": from_lists(everyone, list(neighbors)),
        "manifold, not Euclidean neighbors (MOM's positives)": from_lists(
            anchors, [pool[1] for pool in pools]
        ),
        "Euclidean, not manifold neighbors (MOM's negatives)": from_lists(
            anchors, [pool[2] for pool in pools]
        ),
    }
    return [scored(name, pairs, classes) for name, pairs in samplers.items()]


def table(rows: list[dict]) -> str:
    lines = [
        "| pairs from | pairs | same class | same-class pairs covered | images in a pair |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        shares = " | ".join(f"{100 * row[k]:.1f}%" for k in ("precision", "recall", "images"))
        lines.append(f"| {row['sampler']} | {row['pairs']:,} | {shares} |")
    return "\n".join(lines)


def main() -> None:
    chosen = arguments()
    with np.load(chosen.data) as data:
        train = data["train"].astype(bool)
        X, y = data[chosen.array][train], data["y"][train]
    whitening = RPML(128, max_iter=0, random_state=0).fit(X).preprocessing_
    features = np.asarray(whitening.apply(X), np.float32)
    classes = np.unique(y, return_inverse=True)[1]
    rows = measure(FeatureBank(features, None, 0), classes)
    content = {"machine": machine(), "revision": revision(), "rows": rows}
    path = RESULTS / "cub_deep_pairs.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
    replace_table(DOCS / "results-deep-details.md", table(rows), BEGIN)


if __name__ == "__main__":
    main()
