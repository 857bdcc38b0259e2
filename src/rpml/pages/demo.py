"""Demonstrations: learn from unlabeled programs or drawings, score on new classes."""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from rpml.estimator import RPML
from rpml.evaluation.metrics import clustering_scores, first_hit_rank, ndcg_at_10, recall_at_k
from rpml.evaluation.metrics.retrieval import KS
from rpml.evaluation.registry import Transformer, chosen_methods
from rpml.io.datasets import demos
from rpml.io.datasets.demos import Drawings, Solutions
from rpml.io.manifest import check_folder, folder_outputs
from rpml.method.graph.heaps import nearest_rows
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.figures import retrieval_figure
from rpml.runtime.context import Json
from rpml.runtime.errors import MissingExtraError, counted, text_table
from rpml.runtime.rows import AnyArray, Array, Integers, unit_rows

logger = logging.getLogger(__name__)

LEARNED, BEFORE = "RPML", "PCA"
COMPARED = ("raw", "random", "pca", "pca-whitened", "half-whitened", "rpml")
Note = Callable[[str], None]
Embeddings = dict[str, Array]
Fits = dict[str, Callable[[], Transformer]]
"""Titles of methods and calls that return the fitted estimator."""


def run(
    demonstrate: Callable[[Path, int, Note], Json],
    out_dir: Path | str,
    seed: int = 0,
    note: Note = logger.info,
) -> Json:
    """Run a demonstration, publish its files in a folder and return its results as JSON values.

    `demonstrate` writes the model and the picture into a folder and returns the rows of the table
    (`measured`), a verdict, and a picture or examples; table.json is added. `note` receives one
    sentence at a time. Files of an earlier demonstration are replaced; another file under one of
    their names raises InputError.
    """
    folder = Path(out_dir)
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    check_folder(folder, True, ["model.rpml", "table.json", "neighbors.png"])
    with folder_outputs(folder, overwrite=True) as scratch:
        started = time.perf_counter()
        result = {"picture": None, "examples": "", "ndcg": {}, **demonstrate(scratch, seed, note)}
        files = {"picture": result["picture"], "table": "table.json", "model": "model.rpml"}
        result |= {key: name and str(folder / name) for key, name in files.items()}
        result["seconds"] = time.perf_counter() - started
        content = json.dumps(result, indent=2) + "\n"
        (scratch / "table.json").write_text(content, encoding="utf8")
    return result


def fits_of(X: Array, n_components: int, seed: int) -> Fits:
    """Return the fits of RPML and its alternatives to the training rows."""
    return {
        method.title: partial(method.build(n_components, seed).fit, X)
        for method in chosen_methods(COMPARED)
    }


def fit_and_score(
    fits: Fits, X: Array, y: AnyArray, folder: Path, seed: int
) -> tuple[list[Json], Embeddings]:
    """Fit every method, embed and score the rows X of classes y; save the model of RPML.

    `seed` is that of k-means.
    """
    rows, embeddings = [], {}
    for name, fit in fits.items():
        began = time.perf_counter()
        model = fit()
        seconds = time.perf_counter() - began
        Z = embeddings[name] = model.transform(X)
        recall = {f"recall@{k}": share for k, share in recall_at_k(Z, y, ks=KS).items()}
        nmi = clustering_scores(Z, y, random_state=seed)["nmi"]
        rows.append({"method": name, "dim": Z.shape[1], **recall, "nmi": nmi, "seconds": seconds})
        if name == LEARNED and isinstance(model, RPML):
            model.save(folder / "model.rpml")
    return rows, embeddings


def judge(rows: Sequence[Json], embeddings: Embeddings, y: AnyArray) -> str:
    """Say whether RPML helped, compared with the best alternative of the same size.

    The interval is over classes, since rows of one class are not independent. Rows of the table
    after RPML's are variants of it, not alternatives.
    """
    place = [row["method"] for row in rows].index(LEARNED)
    raw, *others = rows[:place]
    learned, best = rows[place], max(others, key=lambda row: float(row["recall@1"]))
    hits = [first_hit_rank(embeddings[row["method"]], y) < 1 for row in (learned, best)]
    codes = np.unique(y, return_inverse=True)[1]
    gains = 100 * (hits[0].astype(float) - hits[1])
    gain, sums = gains.mean(), np.bincount(codes, gains - gains.mean())
    spread = 1.96 * np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum()) / len(y)
    judgment = "RPML made no difference beyond chance"
    if abs(gain) > spread:
        judgment = "RPML helped" if gain > 0 else "RPML did not help"
    return (
        f"{judgment}: Recall@1 at {counted(learned['dim'], 'dimension')} is "
        f"{100 * learned['recall@1']:.1f} against {100 * best['recall@1']:.1f} with the best "
        f"alternative of that size ({best['method']}), a gain of {gain:+z.1f} ± {spread:.1f} "
        f"points; the raw {raw['dim']} give {100 * raw['recall@1']:.1f}"
    )


def text(result: Json) -> str:
    table = [["method", "dim", *(f"R@{k}" for k in KS), "NMI", "fit, s"]]
    for row in result["measured"]:
        scores = [row[f"recall@{k}"] for k in KS] + [row["nmi"]]
        figures = [f"{100 * score:.1f}" for score in scores]
        table.append([row["method"], str(row["dim"]), *figures, f"{row['seconds']:.1f}"])
    files = [result[key] for key in ("picture", "table", "model") if result[key]]
    written = f"Written in {result['seconds']:.0f} s: {', '.join(files)}"
    parts = [text_table(table), result["examples"], f"{result['verdict']}\n{written}"]
    return "\n\n".join(part for part in parts if part)


CODE_SIZE = 32
TITLES_SIZE = 128  # the default of RPML
KNOWN = "RPML, language known"
WITH_TITLES = "RPML with queries"
_CODE_QUERIES, _TITLE_QUERIES, _SHOWN = 4, 3, 5


def demonstrate_code(folder: Path, seed: int, note: Note) -> Json:
    """Learn from solutions of some problems, find the solutions of others, also by their titles."""
    train, test = demos.load_solutions()
    note(
        f"Learning from {len(train):,} programs that solve {len(set(train.problem))} problems in "
        f"{len(set(train.language))} languages, no labels; finding the solutions of "
        f"{len(set(test.problem))} other problems among {len(test):,} programs."
    )
    known = RPML(CODE_SIZE, random_state=seed)
    fits = fits_of(train.vectors, CODE_SIZE, seed) | {
        KNOWN: partial(known.fit, train.vectors, nuisance=train.language)
    }
    rows, embeddings = fit_and_score(fits, test.vectors, test.problem, folder, seed)
    nearest = {
        name: nearest_neighbors(embeddings[name], _SHOWN, metric="cosine").indices
        for name in (BEFORE, LEARNED, KNOWN)
    }
    same = {n: np.mean(test.language[r[:, 0]] == test.language) for n, r in nearest.items()}
    ndcg, found = _search_by_title(train, test, seed)
    verdict = (
        f"{judge(rows, embeddings, test.problem)}. Fitted with nuisance=language it reaches "
        f"{100 * rows[-1]['recall@1']:.1f}. The nearest program is in the same language for "
        f"{same[BEFORE]:.0%} of the programs with {BEFORE}, for {same[LEARNED]:.0%} with RPML and "
        f"for {same[KNOWN]:.0%} with the language known. Titles of new problems find their "
        f"programs with nDCG@10 {100 * ndcg[WITH_TITLES]:.1f}, fitted with queries=titles, against "
        f"{100 * ndcg[LEARNED]:.1f} without them and {100 * ndcg[BEFORE]:.1f} with {BEFORE} of the "
        "same size."
    )
    lines = []
    queries = np.random.default_rng(seed).choice(len(test), _CODE_QUERIES, replace=False)
    for query in np.sort(queries):
        lines.append(f"Nearest to {test.problem[query]} in {test.language[query]}:")
        lines += _listing({name: nearest[name][query] for name in (BEFORE, LEARNED)}, test)
    examples = "\n".join([*lines, "", *found])
    return {"measured": rows, "verdict": verdict, "examples": examples, "ndcg": ndcg}


def _listing(found: Mapping[str, Integers], programs: Solutions) -> list[str]:
    """Return a line per method: the problems and languages of the rows it found."""
    width, shown = max(map(len, found)), {}
    for name, rows in found.items():
        shown[name] = ", ".join(f"{programs.problem[i]} ({programs.language[i]})" for i in rows)
    return [f"  {name:{width}} {listed}" for name, listed in shown.items()]


def _search_by_title(
    train: Solutions, test: Solutions, seed: int
) -> tuple[dict[str, float], list[str]]:
    """Search all programs by titles that no fit has seen; return nDCG@10 and lines about both.

    The programs are the collection and known to every fit; the titles of the training problems
    are the queries known to the last.
    """
    both = zip(vars(train).values(), vars(test).values(), strict=True)
    programs = Solutions(*(np.concatenate(pair) for pair in both))
    known = train.titles[np.unique(train.problem, return_index=True)[1]]
    problems, firsts = np.unique(test.problem, return_index=True)
    X, queries = programs.vectors, test.titles[firsts]
    built = chosen_methods(("raw", "pca", "rpml"))
    fits: dict[str, Transformer] = {m.title: m.build(TITLES_SIZE, seed).fit(X) for m in built}
    fits[WITH_TITLES] = RPML(TITLES_SIZE, random_state=seed).fit(X, queries=known)
    ndcg, tops = {}, {}
    for name, model in fits.items():
        asked, rows = (unit_rows(model.transform(part)) for part in (queries, X))
        tops[name] = nearest_rows(asked, rows, 10)[1]
        ndcg[name] = ndcg_at_10(programs.problem[tops[name]], problems, programs.problem)
    lines = [
        f"{len(queries)} titles of problems as queries for {len(X):,} programs, fitted with "
        f"{len(known)} other titles. nDCG@10 at {TITLES_SIZE} dimensions:",
        "  " + ", ".join(f"{name} {100 * score:.1f}" for name, score in ndcg.items()),
    ]
    shown = np.random.default_rng(seed).choice(len(queries), _TITLE_QUERIES, replace=False)
    for query in np.sort(shown):
        title = problems[query].replace("-", " ").capitalize()
        lines.append(f"Programs nearest to the title {title!r}:")
        found = {name: tops[name][query, :_SHOWN] for name in (BEFORE, WITH_TITLES)}
        lines += _listing(found, programs)
    return ndcg, lines


DRAWINGS_SIZE = 64
WITH_VIEWS = "RPML with views"
VIEWS = 2  # random views per drawing, passed as groups to WITH_VIEWS
_QUERIES = 10


def demonstrate_drawings(folder: Path, seed: int, note: Note) -> Json:
    """Learn from drawings, score on new alphabets, draw the results."""
    train, test = demos.load_drawings()
    X, X_new = (demos.gradient_histograms(part.images) for part in (train, test))
    listed = [", ".join(dict.fromkeys(part.alphabet.tolist())) for part in (train, test)]
    note(
        f"Learning from {len(X):,} drawings of {listed[0]} characters, no labels; "
        f"scoring on {len(X_new):,} of {listed[1]} characters."
    )
    rng = np.random.default_rng(seed)
    views = [demos.gradient_histograms(demos.random_views(train.images, rng)) for _ in range(VIEWS)]
    groups = np.tile(np.arange(len(X)), VIEWS + 1)
    with_views = RPML(DRAWINGS_SIZE, random_state=seed)
    fits = fits_of(X, DRAWINGS_SIZE, seed) | {
        WITH_VIEWS: partial(with_views.fit, np.concatenate([X, *views]), groups=groups)
    }
    rows, embeddings = fit_and_score(fits, X_new, test.character, folder, seed)
    verdict = (
        f"{judge(rows, embeddings, test.character)}, and RPML fitted with "
        f"{VIEWS} random views of each drawing reaches {100 * rows[-1]['recall@1']:.1f}."
    )
    picture = _draw(folder, test, embeddings, rows, seed, note)
    return {"measured": rows, "verdict": verdict, "picture": picture}


def _draw(
    folder: Path, test: Drawings, embeddings: Embeddings, rows: list[Json], seed: int, note: Note
) -> str | None:
    """Draw random queries, one per character, with their neighbors by raw features and RPML."""
    rng = np.random.default_rng(seed)
    firsts = np.unique(test.character, return_index=True)[1]
    queries = np.sort(rng.choice(firsts, _QUERIES, replace=False)) + rng.integers(20, size=_QUERIES)
    neighbors = {}
    for row in rows:
        if row["method"] in (rows[0]["method"], LEARNED):
            nearest = nearest_neighbors(embeddings[row["method"]], 8, metric="cosine").indices
            size = counted(row["dim"], "dimension")
            title = f"{row['method']}, {size}: Recall@1 {100 * row['recall@1']:.1f}"
            neighbors[title] = nearest[queries].astype(np.intp)
    try:
        names = np.array([f"{a} {c}" for a, c in zip(test.alphabet, test.character, strict=True)])
        figure = retrieval_figure(test.images.__getitem__, names, queries, neighbors, width=12)
        figure.savefig(folder / "neighbors.png", dpi=100)
    except MissingExtraError as error:
        note(f"No picture: {error}.")
        return None
    return "neighbors.png"
