"""Figures of small problems along the main paths of the method: python -m tests.method.figures.

The command writes tests/golden/figures.json, with which `test_figures.py` compares them. Write it
again only after a change of the method that is meant to change maps.

Every problem is clear-cut, so that the rounding of another processor decides nothing. Figures of
embeddings are those of inner products, which do not depend on the signs of axes.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import warnings
from pathlib import Path

import numpy as np

import rpml.method
from rpml import RPML
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.codes import learn_codebooks, make_codec
from rpml.method.graph import neighbors
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.solver.conjugate_gradient import fit_triplets
from rpml.method.solver.training import prefix_order
from rpml.method.triplets.sampling import (
    SAMPLERS,
    batch_sampler,
    mine_batch_triplets,
    sample_triplets,
)
from tests.languages import translations
from tests.problems import blobs, classes_with_nuisance, random_problem

STORED = Path(__file__).parents[1] / "golden/figures.json"


def floats(values):
    """Mean size, root mean square, and a mean that depends on the order."""
    a = np.asarray(values, np.float64).ravel()
    swing = np.cos(np.arange(a.size))
    return [a.size, *map(float, (np.abs(a).mean(), np.sqrt(np.mean(a**2)), np.mean(a * swing)))]


def integers(values):
    """Size, range, sum, and a sum that depends on the order."""
    a = np.asarray(values).astype(np.int64).ravel()
    return [a.size, *map(int, (a.min(), a.max(), a.sum(), (a * (np.arange(a.size) % 101)).sum()))]


def products(Y, n=60):
    """Of a few rows, by the first axes and by all."""
    sizes = sorted({1, 2, Y.shape[1] // 2, Y.shape[1]} - {0})
    return {str(k): floats(Y[:n, :k] @ Y[:n, :k].T) for k in sizes}


def of_model(model, X):
    """What a fit decided, measured and made."""
    out = {"embedding": products(model.transform(X)), "message": model.message_}
    if model.whitening_ is not None:
        out["choice"] = model.whitening_.to_json()
    held = vars(model)
    if "labels_" in held:
        out["labels"] = integers(model.labels_)
        rows, sizes = model.exemplars_.rows, model.exemplars_.sizes
        out["exemplars"] = integers(rows[sizes > 2]), integers(sizes)  # of two rows either may be
    if "history_" in held:
        out["triplets"] = integers(model.triplets_)
        out["weights"] = floats(model.triplet_weights_)
        out["probabilities"] = floats(model.triplet_probabilities_)
        out["history"] = {k: v[:6] for k, v in model.history_.items() if k != "trials"}
    scale, ranges = model.similarity_scale_, model.code_ranges_
    out["scale"] = floats(scale.levels), floats(scale.random), floats(scale.nearest)
    half = len(ranges.growth) // 2  # by the first axes alone some rows have no length to speak of
    out["ranges"] = floats(ranges.growth[half:]), floats(ranges.high - ranges.low)
    return out


def fitted(X, size, y=None, known=None, **settings):
    settings = {"random_state": 0, "n_neighbors": 20, "max_iter": 12} | settings
    model = RPML(size, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y, **(known or {}))


def constants():
    """The numbers in capitals of all modules, by name: each is part of what makes the maps."""
    out = {}
    for info in pkgutil.walk_packages(rpml.method.__path__, "rpml.method."):
        module = importlib.import_module(info.name)
        for name in re.findall(
            r"^([A-Z_][A-Z_0-9, ]*) = ", inspect.getsource(module), re.MULTILINE
        ):
            for one in name.split(", "):
                out.setdefault(one, []).extend(_numbers(getattr(module, one)))
    return {name: sorted(set(values)) for name, values in out.items() if values}


def _numbers(value):
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (tuple, list, np.ndarray)):
        return [number for part in value for number in _numbers(part)]
    return [float(value)] if isinstance(value, (int, float, np.number)) else []


def cells():
    """The approximate search, with cells of 100 rows, and how many rows it searched exactly."""
    rng = np.random.default_rng(0)
    centers = 4 * rng.standard_normal((66, 12))
    X = centers[rng.integers(0, 66, 4000)] + 0.7 * rng.standard_normal((4000, 12))
    rows, search, exact = neighbors.CELL_ROWS, neighbors.search_rows, []

    def counted(corpus, queries, *rest):
        exact.append(len(queries))
        return search(corpus, queries, *rest)

    neighbors.CELL_ROWS, neighbors.search_rows = 100, counted
    try:
        out = {}
        for metric in ("cosine", "euclidean"):
            found = nearest_neighbors(X, 15, metric=metric, method="ann")
            out[metric] = [found.recall, floats(found.distances), found.method]
        return out | {"exact": exact}
    finally:
        neighbors.CELL_ROWS, neighbors.search_rows = rows, search


def authority():
    out = {}
    X = blobs(3, classes=12, per_class=30, d=8, spread=0.5)[0]
    for metric, affinity in (("euclidean", "gaussian"), ("cosine", "cosine")):
        for merge in ("average", None):
            aas = AuthorityAscentShift(25, metric=metric, affinity=affinity, merge=merge).fit(X)
            figures = [integers(aas.labels_), integers(aas.modes_), integers(aas.parents_)]
            figures += [floats(aas.authority_), aas.epsilon_, aas.n_clusters_]
            if merge:
                figures += [integers(aas.leaves_), integers(aas.children_), floats(aas.distances_)]
                figures += [integers(aas.counts_)]
            out[f"{affinity} {merge}"] = figures
    return out


def turned():
    X, _ = classes_with_nuisance()
    return of_model(fitted(X, 16), X)


def plain():
    X, _ = blobs(classes=20, per_class=20)
    return of_model(fitted(X, 8), X)


def powers():
    X, _ = classes_with_nuisance()
    half = of_model(fitted(X, 6, whiten=0.5, training="always"), X)
    none = of_model(fitted(X, 6, whiten=None, normalize_input=False, init="random"), X)
    return {"half": half, "none": none}


def grouped():
    rng = np.random.default_rng(0)
    blur = np.where(np.arange(24) < 12, 2.5, 0.15)
    things = rng.standard_normal((30, 24)).repeat(5, 0) + 0.8 * blur * rng.normal(size=(150, 24))
    X = things.repeat(4, 0) + blur * rng.standard_normal((600, 24))
    return of_model(fitted(X, 8, known={"groups": np.arange(150).repeat(4)}), X)


def paired():
    out = {}
    for nuisance, wrong in ((4.0, 0.3), (1.5, 0.0), (0.7, 1.0)):
        X, y = classes_with_nuisance(classes=60, nuisance=nuisance)
        rng = np.random.default_rng(0)
        first = rng.integers(0, len(y), 1200)
        mates = 12 * y[first] + rng.integers(0, 12, 1200)
        mates = np.where(rng.random(1200) < wrong, rng.integers(0, len(y), 1200), mates)
        pairs = np.stack([first, mates], axis=1)[first != mates]
        out[str(wrong)] = of_model(fitted(X, 8, known={"pairs": pairs}), X)
    return out


def labeled():
    out = {}
    for nuisance in (4.0, 1.5):
        X, y = classes_with_nuisance(nuisance=nuisance)
        known = np.where(np.arange(len(y)) % 3 < 2, y, -1)
        out[str(nuisance)] = of_model(fitted(X, 8, known, use_labels=True, training="always"), X)
    return out


def constrained():
    X, _ = blobs(classes=10, per_class=24, d=12, spread=0.8)
    same = np.arange(0, 240, 24)[:, None] + [0, 5]
    links = {"must_link": same, "cannot_link": [[0, 30], [50, 80]], "comparisons": [[1, 2, 60]]}
    return of_model(fitted(X, 4, known=links), X)


def across():
    """A nuisance that is removed, one that is trained across as well, and a number."""
    X, _, v = translations()
    removed = of_model(fitted(X, 16, known={"nuisance": v}), X)
    X, _, v = translations(n=150, languages=3, d=32, shift=1.0)
    trained = of_model(fitted(X, 6, known={"nuisance": v}), X)
    rng = np.random.default_rng(0)
    number = rng.standard_normal(400)
    X = rng.standard_normal((40, 20)).repeat(10, 0) + 0.5 * rng.standard_normal((400, 20))
    X[:, 3] += 6 * number
    numbered = of_model(fitted(X, 8, known={"nuisance": number}), X)
    return {"removed": removed, "trained": trained, "number": numbered}


def wide():
    """More axes than are looked at."""
    X, _, v = translations(n=300, languages=2, d=530)
    return of_model(fitted(X.astype(np.float32), 8, known={"nuisance": v}), X)


def asked():
    """Many queries, few queries, and queries along with a nuisance."""
    rng = np.random.default_rng(0)
    meaning = rng.standard_normal((400, 20)) @ rng.standard_normal((20, 48))
    documents, queries = (meaning + 3 * rng.standard_normal((400, 48)) for _ in range(2))
    queries = queries + 6 * rng.standard_normal(48)
    out = {
        str(n): of_model(fitted(documents, 8, known={"queries": queries[:n]}), documents)
        for n in (20, 250)
    }
    both = {"queries": queries[:60], "nuisance": np.arange(400) % 3}
    documents = documents + 8 * rng.standard_normal((3, 48))[np.arange(400) % 3]
    return out | {"both": of_model(fitted(documents, 8, known=both), documents)}


def rescaled():
    """Neighbors that support no more than a rescaling, alone and before a nuisance is removed."""
    rng = np.random.default_rng(0)
    things, noise = rng.standard_normal((80, 24)).repeat(8, 0), rng.standard_normal((640, 24))
    X = (things + np.where(np.arange(24) < 4, 1.2, 0.5) * noise).astype(np.float32)
    v = np.arange(640) % 2
    moved = things + np.where(np.arange(24) < 4, 0.9, 0.5) * noise
    moved += 0.35 * np.random.default_rng(1).standard_normal((2, 24))[v]
    known = fitted(moved.astype(np.float32), 16, known={"nuisance": v})
    return {"alone": of_model(fitted(X, 16), X), "known": of_model(known, moved)}


def many():
    """More rows than those that judge and those that make the scatter."""
    rng = np.random.default_rng(0)
    spread = np.where(np.arange(24) < 3, 4.0, 0.6)
    X = rng.standard_normal((260, 24)).repeat(25, 0) + spread * rng.standard_normal((6500, 24))
    return of_model(fitted(X.astype(np.float32), 12, subsample=500), X)


def stochastic():
    X, _ = classes_with_nuisance(classes=20)
    settings = {"solver": "stochastic", "training": "always", "batch_size": 60, "n_epochs": 2}
    out = {}
    for mining in ("all", "hard", "semi-hard"):
        model = fitted(X, 8, mining=mining, average=mining != "hard", **settings)
        out[mining] = of_model(model, X)
    return out


def samplers():
    X, _ = classes_with_nuisance(classes=20)
    out = {}
    for sampler in ("hard", "semi-hard"):
        model = fitted(
            X, 8, sampler=sampler, weight="bilinear", training="always", max_triplets=500
        )
        out[sampler] = of_model(model, X)
    return out


def subsampled():
    X, _ = classes_with_nuisance()
    return of_model(fitted(X, 8, subsample=300, training="always"), X)


def updated():
    X, _ = classes_with_nuisance()
    X = np.random.default_rng(0).permutation(X)
    out = {}
    for name, old in (("alone", None), ("with old rows", X[:300])):
        model = fitted(X[:300], 8, training="always").update(X[300:], old)
        out[name] = of_model(model, X) | {"drift": model.drift_}
    del out["with old rows"]["labels"]  # exemplars are copies of old rows, and equally near
    return out | {"suggested": integers(fitted(X, 8, training="always").suggest_labels(12))}


def solvers():
    out = {}
    for weight in ("concat", "bilinear", "constant"):
        X, triplets, L, theta = random_problem(5, weight=weight)
        for solver, ridge in (("cg", None), ("cg", 0.01), ("gd", 0.01)):
            options = {"weight": weight, "weight_ridge": ridge, "solver": solver}
            result = fit_triplets(X, triplets, L, theta, max_iter=12, **options)
            out[f"{weight} {solver} {ridge}"] = result.history | {"message": result.message}
    return out


def prefixes():
    rng = np.random.default_rng(0)
    Z, y = blobs(4, classes=10, per_class=30, d=24, spread=1.0)
    triplets = sample_triplets(y, rng, per_anchor=3)
    shrinkage = 0.1 * np.eye(20)
    L = prefix_order(Z, np.linalg.qr(rng.standard_normal((24, 20)))[0], triplets, 40.0, shrinkage)
    return {str(k): floats(L[:, :k] @ L[:, :k].T) for k in (8, 16, 20)}


def drawn():
    """Triplets and batches by every way of drawing them."""
    Z, y = blobs(5, classes=9, per_class=14, d=6, spread=0.6)
    y = np.where(np.arange(len(y)) % 13 == 5, -1, y)
    near, out = nearest_neighbors(Z, 30), {}
    groups = np.where(np.arange(len(y)) % 2, np.arange(len(y)) // 20, -1)
    for name, sampler in SAMPLERS.items():
        rng = np.random.default_rng(1)
        if name != "uniform":
            sampler = _with(sampler, near, Z)
        for limit in (None, 200):
            found = sample_triplets(y, rng, sampler=sampler, groups=groups, limit=limit)
            out[f"{name} {limit}"] = integers(found)
    for mining in ("all", "hard", "semi-hard"):
        for limit in (None, 70):
            rng = np.random.default_rng(2)
            out[f"batch {mining} {limit}"] = integers(
                mine_batch_triplets(Z, y, rng, mining=mining, limit=limit)
            )
    batches = list(batch_sampler(y, np.random.default_rng(3), batch_size=30))
    return out | {"batches": [integers(batch) for batch in batches]}


def _with(sampler, near, Z):
    return lambda draw, rng: sampler(draw, rng, neighbors=near, X=Z)


def codes():
    Y = np.random.default_rng(0).standard_normal((900, 12)) * np.linspace(2, 0.3, 12)
    Y /= np.linalg.norm(Y, axis=1, keepdims=True)
    learned = learn_codebooks(Y, 4, np.random.default_rng(0))
    out = {}
    for name in ("int4", "int2", "binary", "pq"):
        codec = make_codec(name, 12, None, learned, True)
        decoded = codec.decode(codec.encode(Y))
        out[name] = [codec.width, floats(np.vecdot(decoded, Y)), floats(decoded[:50])]
    return out


PROBLEMS = (
    cells,
    authority,
    turned,
    rescaled,
    many,
    plain,
    powers,
    grouped,
    paired,
    labeled,
    constrained,
    across,
    wide,
    asked,
    stochastic,
    samplers,
    subsampled,
    updated,
    solvers,
    prefixes,
    drawn,
    codes,
)

if __name__ == "__main__":
    STORED.write_text(
        json.dumps({f.__name__: f() for f in (constants, *PROBLEMS)}, indent=0) + "\n"
    )
