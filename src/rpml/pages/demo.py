"""The demonstration: learn from drawings nobody labelled, score on alphabets never seen."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.atomic import atomic_output
from rpml.runtime.extras import MissingExtraError
from rpml.runtime.locks import locked
from rpml.runtime.outputs import check_folder, mark_folder

logger = logging.getLogger(__name__)

N_COMPONENTS = 64
ALTERNATIVES = ("raw", "random", "pca", "pca-whitened", "half-whitened")
LEARNED, WITH_VIEWS = "RPML", "RPML with views"
VIEWS = 2  # random views of each drawing, given as groups to WITH_VIEWS
KS = (1, 2, 4, 8)
_QUERIES = 10
Note = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One line of the table: scores in [0, 1], seconds to learn the map."""

    method: str
    dimensions: int
    recall: dict[int, float]
    nmi: float
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration found and where it wrote it (the picture may be missing)."""

    rows: tuple[Row, ...]
    verdict: str
    table: Path
    model: Path
    picture: Path | None
    seconds: float

    def fields(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON."""
        plain = asdict(self)
        return {k: str(v) if isinstance(v, Path) else v for k, v in plain.items()}


def run(out_dir: Path | str, seed: int = 0, note: Note = logger.info) -> DemoResult:
    """Learn, score and draw; `out_dir` appears whole, or stays as it was.

    A folder that holds anything but the files of an earlier demonstration is refused.

    Parameters
    ----------
    out_dir : path
        Folder of table.json, model.rpml and neighbours.png.
    seed : int
        Seed of everything random.
    note : callable
        Told what is going on, one sentence at a time.
    """
    folder = Path(out_dir)
    check_folder(folder)
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    with locked(folder), atomic_output(folder) as temporary:
        temporary.mkdir()
        result = _run(temporary, folder, seed, note)
        mark_folder(temporary)
        check_folder(folder)
    return result


def _run(folder: Path, final: Path, seed: int, note: Note) -> DemoResult:
    """The demonstration in one folder, with the names its files will have in another."""
    from rpml.io.datasets.descriptors import gradient_histograms
    from rpml.io.datasets.omniglot import load_drawings

    started = time.perf_counter()
    train, test = load_drawings()
    X, X_new = (gradient_histograms(part.images) for part in (train, test))
    note(
        f"Learning from {len(X):,} drawings of {_listed(train.alphabet)} characters, no labels; "
        f"scoring on {len(X_new):,} of {_listed(test.alphabet)} characters."
    )
    rows, embeddings = [], {}
    for name, fit in _methods(X, train.images, seed).items():
        began = time.perf_counter()
        model = fit()
        seconds = time.perf_counter() - began
        embeddings[name] = model.transform(X_new)
        rows.append(_score(name, embeddings[name], test.character, seconds, seed))
        if name == LEARNED:
            model.save(folder / "model.rpml")
    verdict = _verdict(rows, embeddings, test.character)
    picture = _draw(folder / "neighbours.png", test, embeddings, rows, seed, note)
    result = DemoResult(
        rows=tuple(rows),
        verdict=verdict,
        table=final / "table.json",
        model=final / "model.rpml",
        picture=picture and final / picture.name,
        seconds=time.perf_counter() - started,
    )
    (folder / "table.json").write_text(
        json.dumps(result.fields(), indent=2) + "\n", encoding="utf8"
    )
    return result


def _methods(X: NDArray[Any], images: NDArray[Any], seed: int) -> dict[str, Callable[[], Any]]:
    """What is compared: title -> a call that learns from the training rows."""
    from rpml.estimator import RPML
    from rpml.evaluation.registry import chosen_methods

    learn: dict[str, Callable[[], Any]] = {
        method.title: partial(method.build(N_COMPONENTS, seed).fit, X)
        for method in chosen_methods((*ALTERNATIVES, "rpml"))
    }
    seen = np.concatenate([X, *_views(images, seed)])
    groups = np.tile(np.arange(len(X)), VIEWS + 1)
    learn[WITH_VIEWS] = partial(RPML(N_COMPONENTS, random_state=seed).fit, seen, groups=groups)
    return learn


def _views(images: NDArray[Any], seed: int) -> list[NDArray[np.float32]]:
    from rpml.io.datasets.descriptors import gradient_histograms
    from rpml.io.datasets.views import random_views

    rng = np.random.default_rng(seed)
    return [gradient_histograms(random_views(images, rng)) for _ in range(VIEWS)]


def _listed(alphabet: NDArray[Any]) -> str:
    *most, last = dict.fromkeys(alphabet.tolist())
    return f"{', '.join(most)} and {last}"


def _score(name: str, Z: NDArray[Any], y: NDArray[Any], seconds: float, seed: int) -> Row:
    from rpml.evaluation.metrics import clustering_scores, recall_at_k

    nmi = clustering_scores(Z, y, random_state=seed)["nmi"]
    return Row(name, Z.shape[1], recall_at_k(Z, y, ks=KS), nmi, seconds)


def _verdict(rows: list[Row], embeddings: dict[str, NDArray[Any]], y: NDArray[Any]) -> str:
    """Say whether RPML helped against the best alternative of its own size.

    The interval is over characters, not drawings: the drawings of one character stand and fall
    together.
    """
    from rpml.evaluation.metrics import first_hit_rank

    learned, viewed = (next(r for r in rows if r.method == n) for n in (LEARNED, WITH_VIEWS))
    others = [r for r in rows[1:] if r.method not in (LEARNED, WITH_VIEWS)]
    best = max(others, key=lambda row: row.recall[1])
    hits = [(first_hit_rank(embeddings[n], y) < 1).astype(float) for n in (LEARNED, best.method)]
    codes = np.unique(y, return_inverse=True)[1]
    gains = np.bincount(codes, hits[0] - hits[1]) / np.bincount(codes)
    gain, spread = 100 * gains.mean(), 196 * gains.std(ddof=1) / np.sqrt(len(gains))
    if gain > spread:
        judgement = "RPML helped"
    elif gain < -spread:
        judgement = "RPML did not help"
    else:
        judgement = "RPML made no difference beyond chance"
    ours, theirs, raw, more = (100 * r.recall[1] for r in (learned, best, rows[0], viewed))
    return (
        f"{judgement}: Recall@1 at {learned.dimensions} dimensions is {ours:.1f} against "
        f"{theirs:.1f} with the best alternative of that size ({best.method}), a gain of "
        f"{gain:+.1f} ± {spread:.1f} points; the raw {rows[0].dimensions} give "
        f"{raw:.1f}, and RPML told of {VIEWS} random views of each drawing gives {more:.1f}."
    )


def _draw(
    path: Path,
    test: Any,
    embeddings: dict[str, NDArray[Any]],
    rows: list[Row],
    seed: int,
    note: Note,
) -> Path | None:
    """Draw random queries, one a character, and what the raw features and RPML find for them."""
    from rpml.method.graph.neighbors import nearest_neighbors
    from rpml.pages.report.figures import retrieval_rows

    rng = np.random.default_rng(seed)
    firsts = np.unique(test.character, return_index=True)[1]
    queries = np.sort(rng.choice(firsts, _QUERIES, replace=False)) + rng.integers(20, size=_QUERIES)
    found = {}
    for row in rows:
        if row.method in (rows[0].method, LEARNED):
            nearest = nearest_neighbors(embeddings[row.method], 8, metric="cosine").indices
            title = f"{row.method}, {row.dimensions} dimensions: Recall@1 {100 * row.recall[1]:.1f}"
            found[title] = nearest[queries].astype(np.intp)
    try:
        retrieval_rows(test.images, test.character, queries, found, path)
    except MissingExtraError as error:
        note(f"No picture: {error}.")
        return None
    return path


def text(result: DemoResult, terminal: bool = False) -> str:
    """The table, the verdict and the files; with colours and lines for a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=terminal)
    table.add_column("method", no_wrap=True)
    for head in ("dim", *(f"R@{k}" for k in KS), "NMI", "fit, s"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in result.rows:
        scores = [f"{100 * value:.1f}" for value in (*row.recall.values(), row.nmi)]
        style = "bold" if row.method in (LEARNED, WITH_VIEWS) else None
        cells = [row.method, str(row.dimensions), *scores, f"{row.seconds:.1f}"]
        table.add_row(*cells, style=style)
    written = StringIO()
    out = Console(file=written, force_terminal=terminal, width=100, highlight=False)
    out.print(table)
    files = [str(p) for p in (result.picture, result.table, result.model) if p is not None]
    for line in ("", result.verdict, f"Written in {result.seconds:.0f} s: {', '.join(files)}"):
        out.print(line, soft_wrap=True, markup=False)
    return written.getvalue().rstrip("\n")
