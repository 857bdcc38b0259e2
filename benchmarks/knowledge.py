"""What are a known nuisance and unlabeled queries worth? Every set, several splits.

FOLDER has nuisance/*.npz (X, y, nuisance, train) and queries/*.npz (D, Q, rel, grade). Of a
nuisance set half of the classes are fitted, without labels, and the other half searched: Recall@1
among all rows, and among rows of other values; "training" compares the map with and without its
training on triplets across values. Of a query set half of the queries are known without
their answers, and the other half searched: nDCG@10. Split 0 of a nuisance set is that of its file.

    python benchmarks/knowledge.py --data FOLDER
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from common import RESULTS, publish

from rpml import RPML
from rpml.method.solver import across

SPLITS = (0, 1, 2)
SIZES = (64, 128)
FEW = 20  # known queries


def unit(X):
    X = np.asarray(X, np.float32)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)


def recalls(Z, y, v):
    """Recall@1 among all rows, and among those of other values (None if no class has two)."""
    similarity = unit(Z) @ unit(Z).T
    np.fill_diagonal(similarity, -2)
    has_mate = np.bincount(y)[y] > 1
    found = y[similarity.argmax(axis=1)] == y
    similarity[v[:, None] == v[None]] = -2
    crosses = ((y[:, None] == y[None]) & (v[:, None] != v[None])).any(axis=1)
    across = y[similarity.argmax(axis=1)] == y
    return 100 * float(found[has_mate].mean()), (
        100 * float(across[crosses].mean()) if crosses.any() else None
    )


def ndcg(documents, queries, grades, k=10, unit_length=True):
    if unit_length:
        documents, queries = unit(documents), unit(queries)
    top = np.argsort(-(queries @ documents.T), axis=1)[:, :k]
    discount = 1 / np.log2(np.arange(2, k + 2))
    ideal = (-np.sort(-grades, axis=1)[:, :k] * discount).sum(axis=1)
    gained = (np.take_along_axis(grades, top, axis=1) * discount).sum(axis=1)
    return 100 * float((gained[ideal > 0] / ideal[ideal > 0]).mean())


def nuisance_split(path, split):
    """Rows, classes, values, and which rows are fitted."""
    data = np.load(path, allow_pickle=True)
    X, y, v = (
        unit(data["X"]),
        *(np.unique(data[name], return_inverse=True)[1] for name in ("y", "nuisance")),
    )
    train = data["train"]
    train = train if train.dtype == bool else np.isin(np.arange(len(X)), train)
    if split:
        classes = np.random.default_rng(100 + split).permutation(y.max() + 1)
        train = np.isin(y, classes[: len(classes) // 2])
    return X, y, v, train


def erased(X, v):
    """The affine map of LEACE (arXiv 2306.03819) and then PCA: a peer's use of the same values.

    It removes as little as leaves no value linearly predictable: the directions of the means of
    the values, after whitening.
    """
    mean, rows = X.mean(axis=0), X - X.mean(axis=0)
    means = np.stack([rows[v == value].mean(axis=0) for value in np.unique(v)])
    variances, axes = np.linalg.eigh(np.cov(rows.T))
    kept = variances > 1e-6 * variances.max()
    scale, axes = np.sqrt(variances[kept]), axes[:, kept]
    left, values, _ = np.linalg.svd((means @ axes / scale).T, full_matrices=False)
    left = left[:, values > 1e-4 * values.max()]
    whole = np.eye(X.shape[1]) - (axes * scale) @ (left @ left.T) @ (axes / scale).T
    principal = np.linalg.svd(rows @ whole.T, full_matrices=False)[2][:64]
    return lambda Z: (Z - mean) @ whole.T @ principal.T


def erasure_rows(path, split):
    """LEACE and PCA to 64 dimensions, on the splits of the fits."""
    X, y, v, train = nuisance_split(path, split)
    every, across = recalls(erased(X[train], v[train])(X[~train]), y[~train], v[~train])
    yield {"set": path.stem, "split": split, "recall@1": every, "across": across}


def nuisance_rows(path, split):
    """The fit without and with the nuisance, on one split of the classes."""
    X, y, v, train = nuisance_split(path, split)
    for known in ({}, {"nuisance": v[train]}):
        started = time.perf_counter()
        model = RPML(64, random_state=0).fit(X[train], **known)
        seconds = round(time.perf_counter() - started, 2)
        every, across = recalls(model.transform(X[~train]), y[~train], v[~train])
        found = model.whitening_.nuisance
        yield {
            "set": path.stem,
            "split": split,
            "known": bool(known),
            "recall@1": every,
            "across": across,
            "used": bool(found and found.used),
            "reason": found.reason if found else "",
            "seconds": seconds,
        }


def training_rows(path, split):
    """What training across values adds to the whitening, and the evidence for it."""
    X, y, v, train = nuisance_split(path, split)
    measure, evidence, found = across.training_gain, [], []
    for answer in (-np.inf, np.inf):
        across.training_gain = lambda *a, forced=answer: evidence.append(measure(*a)) or forced
        model = RPML(64, random_state=0).fit(X[train], nuisance=v[train])
        found.append(recalls(model.transform(X[~train]), y[~train], v[~train])[0])
    across.training_gain = measure
    if evidence:
        gain = found[1] - found[0]
        yield {"set": path.stem, "split": split, "evidence": evidence[0], "gain": gain}


def query_rows(path, split):
    """The fit without, with half of the queries and with a few, on one split of the queries."""
    data = np.load(path, allow_pickle=True)
    documents, queries, pairs = unit(data["D"]), unit(data["Q"]), data["rel"]
    order = np.random.default_rng(200 + split).permutation(len(queries))
    given, asked = order[: len(order) // 2], order[len(order) // 2 :]
    grades = np.zeros((len(queries), len(documents)), np.float32)
    grades[pairs[:, 0], pairs[:, 1]] = data["grade"] if "grade" in data.files else 1
    for size in SIZES:
        for n in (0, FEW, len(given)):
            known = {"queries": queries[given[:n]]} if n else {}
            model = RPML(size, random_state=0).fit(documents, **known)
            found = model.whitening_.nuisance
            yield {
                "set": path.stem,
                "split": split,
                "dim": size,
                "queries": min(n, len(given)),
                "known": "none" if n == 0 else "few" if n == FEW else "half",
                "ndcg@10": ndcg(*map(model.transform, (documents, queries[asked])), grades[asked]),
                "used": bool(found and found.used),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=int, nargs="+", default=SPLITS)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS], help="default: all")
    options = parser.parse_args()
    path = RESULTS / "knowledge.json"
    measured = json.loads(path.read_text(encoding="utf8"))["results"] if path.exists() else {}
    for kind in options.kinds:
        measured[kind] = []
        folder = options.data / ("queries" if kind == "queries" else "nuisance")
        for file in sorted(folder.glob("*.npz")):
            for split in options.splits:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    measured[kind] += KINDS[kind](file, split)
                print(kind, file.stem, split, flush=True)
    publish("knowledge", measured)


KINDS = {
    "nuisance": nuisance_rows,
    "queries": query_rows,
    "erasure": erasure_rows,
    "training": training_rows,
}

if __name__ == "__main__":
    main()
