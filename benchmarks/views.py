"""What augmented views of the training images bring to the embedding of frozen features.

    rpml features photos/train --backbone X.onnx -o train/features.npy --views 3 --folder-labels
    rpml features photos/test --backbone X.onnx -o test/features.npy --folder-labels
    python benchmarks/views.py --train train --test test

A .txt list of paths in place of photos/train describes a part of the images.
Three fits on the same training images, scored on test classes never seen: the images alone; images
and views as so many rows; images and views, knowing which rows show the same image (groups).
Labels are used for the scores only. Differences to the first come with a 95% interval by a
bootstrap over the test classes.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from common import publish

from rpml import RPML
from rpml.evaluation.metrics import clustering_scores, first_hit_rank
from rpml.evaluation.registry import METHODS
from rpml.io.features import read_features
from rpml.io.features.labels import as_label_array, read_values

RESAMPLES = 2000


def load(folder):
    features = read_features(folder / "features.npy")
    labels = as_label_array(read_values(folder / "features.labels.csv", features))
    groups = None
    if (folder / "features.groups.csv").exists():
        groups = as_label_array(read_values(folder / "features.groups.csv", features, "group"))
    return np.asarray(features.values, np.float32), labels, groups


def is_original(groups):
    """The first row of each group is the image itself."""
    first = np.zeros(len(groups), bool)
    first[np.unique(groups, return_index=True)[1]] = True
    return first


def fits(X, groups, dim, seed):
    """Name -> fitted estimator."""
    own = is_original(groups)
    return {
        "half-whitened, images": METHODS["half-whitened"].build(dim, seed).fit(X[own]),
        "RPML, images": RPML(dim, random_state=seed).fit(X[own]),
        "RPML, images and views as rows": RPML(dim, random_state=seed).fit(X),
        "RPML, views as groups": RPML(dim, random_state=seed).fit(X, groups=groups),
    }


def interval(gains, classes, rng):
    """95% interval of the mean over resampled classes."""
    codes = np.unique(classes, return_inverse=True)[1]
    sums, counts = np.bincount(codes, gains), np.bincount(codes)
    chosen = rng.integers(len(sums), size=(RESAMPLES, len(sums)))
    means = sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1)
    return [float(v) for v in np.percentile(means, [2.5, 97.5])]


def measure(train, test, dim, seeds):
    (X, _, groups), (X_test, y, _) = train, test
    hits, nmi = {}, {}
    for seed in seeds:
        for name, model in fits(X, groups, dim, seed).items():
            Z = model.transform(X_test)
            hits.setdefault(name, []).append(first_hit_rank(Z, y) < 1)
            nmi.setdefault(name, []).append(clustering_scores(Z, y, seed)["nmi"])
    rng = np.random.default_rng(0)
    base = np.mean(hits["RPML, images"], axis=0)
    return {
        name: {
            "r1": float(np.mean(found)),
            "nmi": float(np.mean(nmi[name])),
            "r1_gain": float(np.mean(np.mean(found, axis=0) - base)),
            "r1_gain_interval": interval(np.mean(found, axis=0) - base, y, rng),
        }
        for name, found in hits.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, required=True, help="folder of features with views")
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    train, test = load(options.train), load(options.test)
    raw = {"r1": float((first_hit_rank(test[0], test[1]) < 1).mean())}
    raw["nmi"] = clustering_scores(test[0], test[1], 0)["nmi"]
    results = {
        "training_images": int(is_original(train[2]).sum()),
        "training_rows": len(train[0]),
        "test_images": len(test[0]),
        "seeds": options.seeds,
        "raw": raw,
    }
    for dim in options.dims:
        results[f"dim_{dim}"] = measure(train, test, dim, range(options.seeds))
    publish("views", results)


if __name__ == "__main__":
    main()
