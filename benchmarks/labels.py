"""What are a few labels worth, do updates keep up with a refit, does one fit serve every size?

python benchmarks/labels.py --data DIR              everything
python benchmarks/labels.py --data DIR --part curves

Classes are never shared between the rows learned from and the rows scored. Every cell is written
as soon as it is measured (benchmarks/results/cells/labels-SET.jsonl), so an interrupted run goes
on where it was. docs/results-labels.md is written from the cells by labels_page.py.
"""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import publish
from numpy.typing import NDArray
from results_sets import CELLS, SEEDS, FeatureSet, commit, feature_sets, parser
from sklearn.semi_supervised import LabelSpreading

from rpml import RPML
from rpml.evaluation.metrics import clustering_scores, first_hit_rank
from rpml.evaluation.registry import LDA, NCA
from rpml.runtime.rows import unit_rows

DIM = 128
BUDGETS = (0, 1, 2, 5, 10, "all")
SIZES = (16, 32, 64, 128)
BATCHES = 10
Cell = dict[str, Any]
Labels = NDArray[np.integer]
SOURCE = commit()


def some_labels(y: Labels, budget: Any, seed: int) -> Labels:
    """`budget` labels per class, -1 for the other rows."""
    if budget == "all":
        return y
    rng = np.random.default_rng(seed)
    known = np.full(len(y), -1)
    for c in np.unique(y):
        known[rng.permutation(np.flatnonzero(y == c))[: int(budget)]] = c
    return known


def rpml(X: Any, known: Labels, seed: int) -> Any:
    return RPML(DIM, use_labels=True, random_state=seed).fit(X, known)


def lda(X: Any, known: Labels, seed: int) -> Any:
    return LDA(DIM).fit(X[known >= 0], known[known >= 0])


def nca(X: Any, known: Labels, seed: int) -> Any:
    """On at most 2,500 of the labeled rows, whose number limits its size."""
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(known >= 0))[:2500]
    return NCA(min(DIM, len(rows) - 1), random_state=seed).fit(X[rows], known[rows])


def spread_lda(X: Any, known: Labels, seed: int) -> Any:
    """scikit-learn's LabelSpreading on the unit rows, then LDA on what it says of every row."""
    spreading = LabelSpreading(kernel="knn", n_neighbors=10).fit(unit_rows(X), known)
    return LDA(DIM).fit(X, spreading.transduction_)


METHODS: dict[str, Callable[..., Any]] = {
    "rpml": rpml,
    "lda": lda,
    "nca": nca,
    "spreading": spread_lda,
}


def score(model: Any, data: FeatureSet, size: int | None = None) -> Cell:
    split = data.split
    Z = model.transform(split.X_test) if size is None else model.transform(split.X_test, size)
    return {
        "recall@1": float(np.mean(first_hit_rank(Z, split.y_test) < 1)),
        "nmi": clustering_scores(Z, split.y_test, 0)["nmi"],
    }


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return work(), round(time.process_time() - start, 2)


def curve_cells(data: FeatureSet) -> Iterator[tuple[Cell, Callable[[], Cell]]]:
    """Each method at each budget; peers need two labels per class."""
    split = data.split
    for seed, budget, name in itertools.product(SEEDS, BUDGETS, METHODS):
        needed = {"rpml": 0, "spreading": 1}.get(name, 2)
        enough = budget == "all" or int(budget) >= needed
        if not enough or (name == "spreading" and budget == "all"):
            continue
        key = {"part": "curves", "method": name, "budget": budget, "seed": seed}

        def measure(name: str = name, budget: Any = budget, seed: int = seed) -> Cell:
            known = some_labels(split.y_train, budget, seed)
            model, seconds = timed(lambda: METHODS[name](split.X_train, known, seed))
            return {**score(model, data), "cpu_seconds": seconds}

        yield key, measure


def query_cells(data: FeatureSet) -> Iterator[tuple[Cell, Callable[[], Cell]]]:
    """As many labels as 1, 2 or 4 a class, chosen by suggest_labels or at random, in one round."""
    split = data.split
    n_classes = len(np.unique(split.y_train))
    fits: dict[int, Any] = {}

    def unlabelled(seed: int) -> Any:
        if seed not in fits:
            fits[seed] = RPML(DIM, random_state=seed).fit(split.X_train)
        return fits[seed]

    for seed in SEEDS:
        for share in (1, 2, 4):
            for how in ("suggested", "random"):
                key = {"part": "queries", "method": how, "budget": share, "seed": seed}

                def measure(how: str = how, share: int = share, seed: int = seed) -> Cell:
                    total = share * n_classes
                    rows = random_rows(split.y_train, total, seed)
                    if how == "suggested":
                        rows = unlabelled(seed).suggest_labels(total, split.X_train)
                    known = np.full(len(split.y_train), -1)
                    known[rows] = split.y_train[rows]
                    return score(rpml(split.X_train, known, seed), data)

                yield key, measure


def random_rows(y: Labels, total: int, seed: int) -> Labels:
    return np.random.default_rng(seed).permutation(len(y))[:total]


def naming_cells(data: FeatureSet) -> Iterator[tuple[Cell, Callable[[], Cell]]]:
    """Share of the other rows learned from whose nearest labelled row is of their class."""
    split = data.split
    y, fits = split.y_train, {}
    n_classes = len(np.unique(y))

    def named(how: str, total: int, seed: int) -> Cell:
        if seed not in fits:
            fits[seed] = RPML(DIM, random_state=seed).fit(split.X_train)
        Z = fits[seed].transform(split.X_train)
        rows = random_rows(y, total, seed)
        if how == "suggested":
            rows = fits[seed].suggest_labels(total, split.X_train)
        rest = np.setdiff1d(np.arange(len(y)), rows)
        nearest = rows[(Z[rest] @ Z[rows].T).argmax(axis=1)]
        classes = len(np.unique(y[rows])) / n_classes
        return {"named": float(np.mean(y[nearest] == y[rest])), "classes": classes}

    for seed in SEEDS:
        for share in (1, 2, 4):
            for how in ("suggested", "random"):
                key = {"part": "naming", "method": how, "budget": share, "seed": seed}
                yield (
                    key,
                    lambda how=how, share=share, seed=seed: named(how, share * n_classes, seed),
                )


def size_cells(data: FeatureSet) -> Iterator[tuple[Cell, Callable[[], Cell]]]:
    """A prefix of one fit of 128 against a fit of that size."""
    split = data.split
    fits: dict[tuple[int, int], Any] = {}

    def fit(size: int, seed: int) -> Any:
        if (size, seed) not in fits:
            fits[size, seed] = RPML(size, random_state=seed).fit(split.X_train)
        return fits[size, seed]

    for seed in SEEDS:
        for size in SIZES:
            for how, fitted in (("prefix", SIZES[-1]), ("own fit", size)):
                key = {"part": "sizes", "method": how, "budget": size, "seed": seed}
                yield (
                    key,
                    lambda fitted=fitted, size=size, seed=seed: score(
                        fit(fitted, seed), data, size
                    ),
                )


def stream_cells(data: FeatureSet) -> Iterator[tuple[Cell, Callable[[], Cell]]]:
    """Rows arrive in ten batches: updates after the first, against a refit of all so far."""
    split = data.split
    for seed in SEEDS[:1]:
        key = {"part": "stream", "method": "stream", "budget": BATCHES, "seed": seed}

        def measure(seed: int = seed) -> Cell:
            order = np.random.default_rng(seed).permutation(len(split.X_train))
            batches = np.array_split(order, BATCHES)
            model = RPML(64, random_state=seed).fit(split.X_train[batches[0]])
            steps = []
            for i in range(1, BATCHES):
                old, new = np.concatenate(batches[:i]), batches[i]
                X_new, X_old = split.X_train[new], split.X_train[old]
                _, seconds = timed(lambda X_new=X_new, X_old=X_old: model.update(X_new, X_old))
                steps.append({"update": score(model, data), "drift": model.drift_,
                              "cpu_seconds": seconds, "rows": len(old) + len(new)})  # fmt: skip
            refit, seconds = timed(lambda: RPML(64, random_state=seed).fit(split.X_train))
            return {"steps": steps, "refit": score(refit, data), "refit_cpu_seconds": seconds}

        yield key, measure


PARTS = {
    "sizes": size_cells,
    "stream": stream_cells,
    "curves": curve_cells,
    "queries": query_cells,
    "naming": naming_cells,
}


def identity(cell: Cell) -> tuple[Any, ...]:
    return tuple(str(cell[name]) for name in ("part", "method", "budget", "seed"))


def read(name: str) -> list[Cell]:
    path = CELLS / f"labels-{name}.jsonl"
    lines = path.read_text(encoding="utf8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--part", choices=PARTS, help="only this question")
    arguments.add_argument("--methods", default="", help="only these methods, by comma")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    methods = [name for name in given.methods.split(",") if name]
    for part in [given.part] if given.part else PARTS:
        for data in feature_sets(given.data, given.sets):
            done = {identity(cell) for cell in read(data.name)}
            for key, measure in PARTS[part](data):
                if identity(key) in done or (methods and key["method"] not in methods):
                    continue
                cell = {**key, **measure(), "source": SOURCE}
                with open(CELLS / f"labels-{data.name}.jsonl", "a", encoding="utf8") as file:
                    file.write(json.dumps(cell) + "\n")
                print(data.name, *key.values(), cell.get("recall@1", cell.get("named")), flush=True)
    names = [data.name for data in feature_sets(given.data)]
    publish("labels", {name: read(name) for name in names})


if __name__ == "__main__":
    main()
