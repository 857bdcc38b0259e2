"""Bytes in, configuration out: dimensions times bits for a number of bytes per vector.

RPML is fitted to a sample of the rows, which are searched as a database would: float queries
against codes. Among the codes of equal bytes, the one is chosen that ranks most of the neighbors
by the float embedding among the 10 nearest; with labels the highest Recall@1; with queries the one
that keeps most of the 10 nearest rows of the queries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.estimator import RPML
from rpml.estimator.knowledge import known_subset
from rpml.evaluation.codes import (
    BYTES,
    LEARNED_SIZE,
    coded,
    configurations,
    has_learned_axes,
)
from rpml.evaluation.comparison import Row, figure_text, mean_figure
from rpml.evaluation.metrics.label_free import NEAREST, neighbor_overlap
from rpml.evaluation.metrics.retrieval import checked_codes, checked_embedding
from rpml.method.graph.heaps import nearest_rows
from rpml.method.whitening.linear_map import principal_axes
from rpml.runtime.context import Json
from rpml.runtime.rows import Array, sorted_sample, unit_rows
from rpml.runtime.wording import counted

MAX_ROWS = 5000
MAX_QUERIES = 1000
MIN_ROWS = 100
LARGER = (128, 256)  # bytes that are tried, after BYTES, until enough is kept
# Fewest bytes at which a code was worth trying (benchmarks/bytes.py): with fewer, its few
# dimensions lose more than its bits gain.
WORTH = {"pq": 1, "int2": 1, "int4": 32, "int8": 64}
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class SizeRecommendation:
    """The embedding and code for a number of bytes per vector, and what it keeps."""

    n_components: int
    output: str
    """The code, as in `RPML.transform`."""
    n_bytes: int
    table: list[Row]
    """Per number of bytes the chosen `dim` and `code`, `neighbors_kept` (the share of the raw
    vectors' 10 nearest rows that stay among the 10 nearest), `embedding_kept` (the same of the
    float embedding's) and, with labels, `recall@1`, with 95% intervals. The last row is that of
    the raw vectors."""
    reasons: tuple[str, ...] = ()
    """Sentences; the first one is the advice."""
    seed: int = field(default=0, repr=False)
    known: Json = field(default_factory=dict, repr=False)
    """The nuisance and the queries that the advice was given with, arguments of `RPML.fit`."""

    @property
    def estimator(self) -> RPML:
        """The recommended embedding, not fitted."""
        return RPML(self.n_components, random_state=self.seed)

    def fit(self, X: ArrayLike, **known: Any) -> RPML:
        """Fit the embedding with what the advice knew, and learn the codebooks.

        `known` are further arguments of `RPML.fit`, or others than those.
        """
        return self.complete(self.estimator.fit(X, **{**self.known, **known}), X)

    def complete(self, model: RPML, X: ArrayLike) -> RPML:
        """Learn the codebooks of a fitted model, if its code needs them."""
        if self.output == "pq":
            model.learn_codebooks(X, self.n_bytes, random_state=self.seed)
        return model

    def lines(self) -> list[list[str]]:
        """Return header and rows of the table as text, in percent."""
        figures = {
            "recall@1": "Recall@1",
            "neighbors_kept": "raw neighbors kept",
            "embedding_kept": "embedding neighbors kept",
        }
        shown = [name for name in figures if name in self.table[0]]
        rows = [
            [str(row["bytes"]), str(row["dim"]), row["code"]]
            + [figure_text(row, name) for name in shown]
            for row in self.table
        ]
        return [["bytes", "dim", "code", *(figures[name] for name in shown)], *rows]

    @property
    def next_step(self) -> str:
        """The line of Python that follows the advice."""
        known = "".join(f", {name}={name}" for name in self.known)
        return f"rpml.recommend(X, bytes={self.n_bytes}{known}).fit(X)"

    def __str__(self) -> str:
        return " ".join([*self.reasons, f"Next: {self.next_step}"])


def recommend_size(
    X: ArrayLike,
    n_bytes: int | None = None,
    *,
    keep: float | None = None,
    y: ArrayLike | None = None,
    known: Json | None = None,
    random_state: int = 0,
) -> SizeRecommendation:
    """Recommend dimensions times bits; see `rpml.recommend`.

    `known` may have the nuisance and the queries, with which RPML is fitted.
    """
    if (n_bytes is None) == (keep is None):
        raise ValueError("Give either bytes, or the share to keep.")
    if n_bytes is not None and n_bytes < 1:
        raise ValueError(f"bytes={n_bytes} must be at least 1.")
    if keep is not None and not 0 < keep <= 1:
        raise ValueError(f"keep={keep} must lie in (0, 1].")
    known = known or {}
    trial = _Trial(X, y, random_state, known)
    sizes = sorted({*BYTES, n_bytes}) if n_bytes is not None else (*BYTES, *LARGER)
    table: list[Row] = []
    for size in sizes:
        if (best := trial.best(size)) is not None:
            table.append(best)
            if keep is not None and trial.share(best) >= keep:
                break
    asked = [row for row in table if n_bytes in (None, row["bytes"])]
    if not asked:
        raise ValueError(
            f"No code of {n_bytes or min(sizes)} bytes fits: the rows vary in "
            f"{counted(trial.most, 'direction')}, so int8 codes of all of them are smaller."
        )
    row, whole = asked[-1], [*table, trial.raw]
    reasons = [_advice(row, trial.raw)]
    if keep is not None and trial.share(row) < keep:
        reasons.append(
            f"No size up to {row['bytes']} bytes keeps {keep:.0%}; this one keeps the most."
        )
    return SizeRecommendation(
        row["dim"], row["code"], row["bytes"], whole, tuple(reasons), random_state, known
    )


class _Trial:
    """A sample of the rows, its queries, and fits of RPML at the sizes that were asked for."""

    def __init__(self, X: ArrayLike, y: ArrayLike | None, seed: int, known: Json) -> None:
        rows, queries = checked_embedding(X, "X"), known.get("queries")
        if len(rows) < MIN_ROWS:
            raise ValueError(f"X has {counted(len(rows), 'row')}: at least {MIN_ROWS} are needed.")
        rng, self.seed = np.random.default_rng(seed), seed
        sample = sorted_sample(len(rows), MAX_ROWS, rng)
        self.X = np.asarray(rows[sample], np.float32)
        self.known = known_subset(known, sample)
        self.labels = None if y is None else checked_codes(y, len(rows))[sample]
        self.judged = "embedding_kept" if y is None else "recall@1"
        self.own: Rows | None = None
        if queries is None:
            self.own = sorted_sample(len(self.X), MAX_QUERIES, rng)
            self.queries = self.X[self.own]
        else:
            self.judged = "neighbors_kept"
            asked = sorted_sample(len(queries), MAX_QUERIES, rng)
            self.queries = np.asarray(queries[asked], np.float32)
        self.most = len(principal_axes(self.X, unit_input=True).variances)
        raw = unit_rows(self.X)
        self.near = nearest_rows(unit_rows(self.queries), raw, NEAREST, own=self.own)[1]
        self.raw = self._row(self.near, {"bytes": 4 * rows.shape[1], "code": "float32"})
        self.raw["dim"] = rows.shape[1]
        self._models: dict[int, RPML] = {}
        self._spaces: dict[int, tuple[Array, Array]] = {}

    def share(self, row: Row) -> float:
        """Return what a row keeps of the raw vectors: Recall@1 with labels, else neighbors."""
        if self.judged == "recall@1":
            return float(row["recall@1"] / max(self.raw["recall@1"], 1e-9))
        return float(row["neighbors_kept"])

    def best(self, n_bytes: int) -> Row | None:
        """Return the row of the best code of a number of bytes."""
        learned = has_learned_axes(self._fit(min(self.most, LEARNED_SIZE)))
        worth = [output for output, least in WORTH.items() if n_bytes >= least]
        tried = configurations(n_bytes, self.most, worth, learned)
        if not tried:
            return None
        Z, queries = self._space(tried[0][0])
        by_float = nearest_rows(queries, Z, NEAREST, own=self.own)[1]
        rows = [self._measured(*code, by_float) for code in tried]
        return max(rows, key=lambda row: float(row[self.judged]))

    def _measured(self, size: int, output: str, n_bytes: int, by_float: Rows) -> Row:
        Z, queries = self._space(size)
        found = nearest_rows(queries, coded(Z, output, n_bytes), NEAREST, own=self.own)[1]
        row = self._row(found, {"bytes": n_bytes, "dim": size, "code": output})
        return row | mean_figure("embedding_kept", neighbor_overlap(by_float, found, NEAREST))

    def _row(self, found: Rows, described: Row) -> Row:
        row = {
            **described,
            **mean_figure("neighbors_kept", neighbor_overlap(self.near, found, NEAREST)),
        }
        if self.labels is not None and self.own is not None:
            hits = self.labels[found[:, 0]] == self.labels[self.own]
            row |= mean_figure("recall@1", hits)
        return row

    def _fit(self, size: int) -> RPML:
        if size not in self._models:
            self._models[size] = RPML(size, random_state=self.seed).fit(self.X, **self.known)
        return self._models[size]

    def _space(self, size: int) -> tuple[Array, Array]:
        """Return the unit rows of a fit with so many components, and the queries."""
        if size not in self._spaces:
            model = self._fit(size)
            Z, queries = (
                np.asarray(model.transform(r), np.float32) for r in (self.X, self.queries)
            )
            self._spaces[size] = unit_rows(Z), unit_rows(queries)
        return self._spaces[size]


def _advice(row: Row, raw: Row) -> str:
    name = "recall@1" if "recall@1" in row else "neighbors_kept"
    low, high = (100 * row[f"{name}_{end}"] for end in ("low", "high"))
    smaller = f"{raw['bytes'] / row['bytes']:.0f} times smaller than the raw vectors"
    use = (
        f"Use {counted(row['dim'], 'dimension')} as {row['code']} codes, "
        f"{counted(row['bytes'], 'byte')} per vector, {smaller}: "
    )
    if name == "recall@1":
        return (
            f"{use}Recall@1 is {row[name]:.1%} ({low:.1f} to {high:.1f}), with the raw vectors "
            f"{raw[name]:.1%}."
        )
    return (
        f"{use}{row[name]:.1%} ({low:.1f} to {high:.1f}) of the 10 nearest rows by the raw vectors "
        "stay among the 10 nearest."
    )
