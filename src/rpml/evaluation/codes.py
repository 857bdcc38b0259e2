"""Quality against bytes per vector: codes of PCA and RPML at equal bytes, and which one to use.

Queries are floats, rows are codes, and ranges and codebooks are learned from the rows that are
searched, as an index would. To recommend a size, RPML is fitted to a sample of the rows. The
dimensions of its product code depend on whether the fit has learned axes. With labels the highest
Recall@1 decides instead, with queries the largest share of their 10 nearest rows that stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.estimator import RPML
from rpml.estimator.knowledge import known_subset
from rpml.evaluation.comparison import Row, figure_text, make_split, mean_figure
from rpml.evaluation.metrics.label_free import NEAREST, neighbor_overlap
from rpml.evaluation.metrics.retrieval import checked_codes, checked_embedding
from rpml.evaluation.registry import Method, Transformer, chosen_methods, seeded
from rpml.method.calibration import AxisRanges
from rpml.method.codes import BITS, learn_codebooks, make_codec
from rpml.method.graph.heaps import nearest_rows
from rpml.method.whitening.linear_map import principal_axes
from rpml.runtime.context import Json
from rpml.runtime.errors import counted
from rpml.runtime.rows import Array, sorted_sample, to_common_scale, unit_rows

logger = logging.getLogger(__name__)
CODED_METHODS = ("pca", "rpml")
BYTES = (8, 16, 32, 64)
SHOWN = ("int8", "int2", "pq")
MAX_ROWS = 10_000  # of a comparison
TRIAL_ROWS, TRIAL_QUERIES, MIN_ROWS = 5000, 2500, 100  # of a recommendation
LARGER = (128, 256)  # bytes that are tried, after BYTES, until enough is kept
# Dimensions that `pq` codes (docs/decisions/codes.md). Learned axes have the signal in fewer of
# them; more axes are better for rows and queries that the map was not fitted on.
LEARNED_SIZE = 128
PRINCIPAL_SIZE, LARGE_SIZE, LARGE_BYTES = 192, 256, 33  # the larger one from so many bytes on
PRODUCT_SIZES = (32, 64, 128, 192, 256)  # from which labels or queries choose
# Share of the mean that principal axes subtract before codes (docs/decisions/codes.md): the rest
# keeps more of the raw neighbors, and documents nearer to queries that no fit knows.
CENTER = 0.5
COLUMNS = {
    "bytes": "bytes",
    "title": "method",
    "code": "code",
    "dim": "dim",
    "recall@1": "Recall@1",
    "neighbors_kept": "raw neighbors kept",
}
Rows = NDArray[np.intp]


def product_size(n_bytes: int, learned: bool) -> int:
    """Return how many dimensions `pq` codes: at least one per byte."""
    principal = PRINCIPAL_SIZE if n_bytes < LARGE_BYTES else LARGE_SIZE
    return max(n_bytes, LEARNED_SIZE if learned else principal)


def configurations(
    n_bytes: int, most: int, outputs: Sequence[str] = (*BITS, "pq"), learned: bool = True
) -> list[tuple[int, str, int]]:
    """Return (n_components, output, n_bytes) of the codes with at most `most` dimensions.

    More dimensions get fewer bits. How many `pq` codes depends on whether the fit has `learned`
    axes; at least one per byte.
    """
    sizes = {output: 8 * n_bytes // bits for output, bits in BITS.items()}
    sizes["pq"] = max(n_bytes, min(most, product_size(n_bytes, learned)))
    return [(sizes[o], o, n_bytes) for o in outputs if sizes[o] <= most]


def coded_methods(names: Sequence[str | Method]) -> list[Method]:
    """Return methods as codes use them."""
    coded = seeded(RPML, center=CENTER)
    methods = chosen_methods(names)
    return [replace(m, build=coded) if m.name == "rpml" else m for m in methods]


def has_learned_axes(model: object) -> bool:
    """Whether a fitted model is more than principal axes."""
    return str(getattr(model, "outcome_", "")).startswith("learned")


def coded(rows: Array, output: str, n_bytes: int = 0, seed: int = 0) -> Array:
    """Return unit rows after encoding and decoding, with ranges or codebooks of their own."""
    rng = np.random.default_rng(seed)
    learned = learn_codebooks(rows, n_bytes, rng) if output == "pq" else None
    ranges = AxisRanges.from_rows(rows, unit=True)
    codec = make_codec(output, rows.shape[1], ranges, learned, unit=True)
    return codec.decode(codec.encode(rows))


@dataclass(frozen=True)
class Search:
    """Rows that are searched by float queries, and what is right to find."""

    rows: Array
    queries: Array
    own: Rows | None
    """The queries' numbers among the rows; None if they are others."""
    labels: NDArray[np.generic] | None

    @cached_property
    def nearest(self) -> Rows:
        """The 10 nearest rows by the raw vectors."""
        return self.find(unit_rows(self.queries), unit_rows(self.rows))

    def find(self, queries: Array, rows: Array) -> Rows:
        return nearest_rows(queries, rows, NEAREST, own=self.own)[1]

    def figures(self, found: Rows) -> dict[str, float]:
        """Return the shares of raw neighbors and of right labels among the rows found."""
        figures = mean_figure("neighbors_kept", neighbor_overlap(self.nearest, found))
        if self.labels is not None and self.own is not None:
            hits = self.labels[found[:, 0]] == self.labels[self.own]
            figures |= mean_figure("recall@1", hits)
        return figures

    def raw_figures(self) -> Row:
        d = self.rows.shape[1]
        return {"bytes": 4 * d, "dim": d, "code": "float32", **self.figures(self.nearest)}


class Fits:
    """A method fitted once per number of components, and its embeddings of a search."""

    def __init__(self, search: Search, most: int, fit: Callable[[int], Transformer]) -> None:
        self.search, self.most = search, most
        self.fit = cache(fit)
        self.embedded = cache(self._embedded)

    def _embedded(self, size: int) -> tuple[Array, Array]:
        """Return the unit rows and queries by a fit with so many components."""
        both = (self.search.rows, self.search.queries)
        Z, queries = (np.asarray(self.fit(size).transform(part), np.float32) for part in both)
        return unit_rows(Z), unit_rows(queries)

    def configurations(self, n_bytes: int, outputs: Sequence[str]) -> list[tuple[int, str, int]]:
        learned = "pq" in outputs and has_learned_axes(self.fit(min(self.most, LEARNED_SIZE)))
        return configurations(n_bytes, self.most, outputs, learned)

    def measure(self, size: int, output: str, n_bytes: int) -> Row:
        """Return the row of a code for a table."""
        Z, queries = self.embedded(size)
        found = self.search.find(queries, coded(Z, output, n_bytes))
        return {"bytes": n_bytes, "dim": size, "code": output, **self.search.figures(found)}

    def product_code(self, n_bytes: int, judged: str | None) -> list[Row]:
        """Return the row of the product code to use; none if the rows have too few dimensions.

        It has the highest of the figures `judged`; without one, its dimensions follow from the fit.
        """
        codes = self.configurations(n_bytes, ["pq"])
        if codes and judged:
            sizes = {max(n_bytes, min(size, self.most)) for size in PRODUCT_SIZES}
            codes = [(size, "pq", n_bytes) for size in sorted(sizes)]
        rows = [self.measure(*code) for code in codes]
        return sorted(rows, key=lambda row: float(row[judged]))[-1:] if judged else rows


def code_lines(rows: Sequence[Row]) -> list[list[str]]:
    """Return header and rows of a table of codes as text, in percent."""
    shown = [name for name in COLUMNS if name in rows[0]]
    return [[COLUMNS[name] for name in shown]] + [
        [figure_text(row, n) if "_" in n or "@" in n else str(row[n]) for n in shown]
        for row in rows
    ]


def compare_bytes(
    X: ArrayLike,
    y: ArrayLike | None = None,
    sizes: Sequence[int] = BYTES,
    *,
    methods: Sequence[str | Method] = CODED_METHODS,
    outputs: Sequence[str] = SHOWN,
    seed: int = 0,
) -> list[Row]:
    """Compare codes of equal bytes on at most 10,000 held-out rows: one row per method and code.

    The map is learned on the training half, as in `compare`, whose arguments these are; `sizes` are
    bytes per vector, and `outputs` codes as in `RPML.transform`, of which those with more
    dimensions than the vectors have are left out. `neighbors_kept` is the share of the 10 nearest
    rows of the raw vectors that remain among the 10 nearest by the code, `recall@1` the Recall@1 of
    the labels; both with 95% intervals. The first row is that of the raw vectors.
    """
    split = make_split(to_common_scale(checked_embedding(X, "X"), as_they_are=True)[0], y)
    sampled = sorted_sample(len(split.X_test), MAX_ROWS, np.random.default_rng(seed))
    labels = None if split.y_test is None else split.y_test[sampled]
    rows = np.asarray(split.X_test[sampled], np.float32)
    search = Search(rows, rows, np.arange(len(rows)), labels)
    out: list[Row] = [{"method": "raw", "title": "raw features", **search.raw_figures()}]
    most = len(principal_axes(split.X_train, unit_input=True).variances)
    if not any(configurations(size, most, outputs) for size in sizes):
        raise ValueError(f"No code of {list(sizes)} bytes has at most {most} dimensions.")
    for method in coded_methods(methods):

        def fit(size: int, method: Method = method) -> Transformer:
            return method.fit(split.X_train, split.y_train, size, seed)[0]

        fits = Fits(search, most, fit)
        for n_bytes in sizes:
            for code in fits.configurations(n_bytes, outputs):
                logger.info("%s, %d bytes, %s", method.name, n_bytes, code[1])
                place = {"method": method.name, "title": method.title}
                out.append(place | fits.measure(*code))
    return sorted(out, key=lambda row: -row["bytes"])


@dataclass(frozen=True)
class SizeRecommendation:
    """The embedding and code for a number of bytes per vector, and what it keeps."""

    n_components: int
    output: str
    """The code, as in `RPML.transform`."""
    n_bytes: int
    table: list[Row]
    """Per number of bytes the chosen `dim` and `code`, `neighbors_kept` (the share of the raw
    vectors' 10 nearest rows that stay among the 10 nearest) and, with labels, `recall@1`, with 95%
    intervals. The last row is that of the raw vectors."""
    reasons: tuple[str, ...] = ()
    """Sentences; the first one is the advice."""
    seed: int = field(default=0, repr=False)
    known: Json = field(default_factory=dict, repr=False)
    """The nuisance and the queries that the advice was given with, arguments of `RPML.fit`."""

    @property
    def estimator(self) -> RPML:
        """The recommended embedding, not fitted."""
        return RPML(self.n_components, center=CENTER, random_state=self.seed)

    def fit(self, X: ArrayLike, **known: Any) -> RPML:
        """Fit the embedding with what the advice knew, and learn the codebooks.

        `known` are further arguments of `RPML.fit`, or others than those.
        """
        model = self.estimator.fit(X, **{**self.known, **known})
        if self.output == "pq":
            model.learn_codebooks(X, self.n_bytes, random_state=self.seed)
        return model

    def lines(self) -> list[list[str]]:
        """Return header and rows of the table as text, in percent."""
        return code_lines(self.table)

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
    known: Json | None = None,
    random_state: int = 0,
    others: Sequence[int] = BYTES,
) -> SizeRecommendation:
    """Recommend dimensions and a code; see `rpml.recommend`.

    `known` may have the nuisance and the queries, with which RPML is fitted, and the labels `y`;
    `others` are sizes that the table lists besides `n_bytes`.
    """
    if (n_bytes is None) == (keep is None):
        raise ValueError("Give either bytes, or the share to keep.")
    if n_bytes is not None and not (isinstance(n_bytes, Integral) and n_bytes >= 1):
        raise ValueError(f"bytes={n_bytes!r} must be an integer of at least 1.")
    if keep is not None and not 0 <= keep <= 1:
        raise ValueError(f"keep={keep} must lie in [0, 1].")
    known = dict(known or {})
    y = known.pop("y", None)
    fits = _trial(X, y, known, random_state)
    judged = "neighbors_kept" if "queries" in known else None if y is None else "recall@1"
    raw = fits.search.raw_figures()
    # of what a code keeps of the raw vectors
    kept, whole = ("recall@1", raw["recall@1"]) if judged == "recall@1" else ("neighbors_kept", 1.0)
    sizes = sorted({*others, n_bytes}) if n_bytes is not None else (*BYTES, *LARGER)
    table: list[Row] = []
    for size in sizes:
        table += fits.product_code(size, judged)
        if keep is not None and table and table[-1][kept] >= keep * whole:
            break
    asked = [row for row in table if n_bytes in (None, row["bytes"])]
    if not asked:
        raise ValueError(
            f"No code of {n_bytes or min(sizes)} bytes fits: the rows vary in "
            f"{counted(fits.most, 'direction')}, so int8 codes of all of them are smaller."
        )
    row = asked[-1]
    reasons = [_advice(row, raw)]
    if keep is not None and row[kept] < keep * whole:
        reasons.append(
            f"No size up to {row['bytes']} bytes keeps {keep:.0%}; this one keeps the most."
        )
    if (n := len(fits.search.rows)) < np.shape(X)[0]:
        reasons.append(f"Measured among {n:,} of the rows: among all of them fewer neighbors stay.")
    place = row["dim"], row["code"], row["bytes"]
    return SizeRecommendation(*place, [*table, raw], tuple(reasons), random_state, known)


def _trial(X: ArrayLike, y: ArrayLike | None, known: Json, seed: int) -> Fits:
    """Return fits of RPML to a sample of the rows, searched by some of them or by the queries."""
    rows, queries, own = checked_embedding(X, "X"), known.get("queries"), None
    if len(rows) < MIN_ROWS:
        raise ValueError(f"{len(rows)} rows of X are too few: at least {MIN_ROWS} are needed.")
    rng = np.random.default_rng(seed)
    sample = sorted_sample(len(rows), TRIAL_ROWS, rng)
    sampled = _searched(rows[sample])
    given = known_subset(known, sample)
    if queries is not None:
        given["queries"] = queries = _searched(queries)
    labels = None if y is None else checked_codes(y, len(rows))[sample]
    if queries is None:
        own = sorted_sample(len(sampled), TRIAL_QUERIES, rng)
        asked = sampled[own]
    else:
        asked = queries[sorted_sample(len(queries), TRIAL_QUERIES, rng)]
    most = len(principal_axes(sampled, unit_input=True).variances)
    if not most:
        raise ValueError("The rows of X are all the same after scaling to unit norm.")
    return Fits(
        Search(sampled, asked, own, labels),
        most,
        lambda size: RPML(size, center=CENTER, random_state=seed).fit(sampled, **given),
    )


def _searched(rows: Array) -> Array:
    """Return rows in single precision, whose range they may exceed: only directions count."""
    return np.asarray(to_common_scale(rows, as_they_are=True)[0], np.float32)


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
