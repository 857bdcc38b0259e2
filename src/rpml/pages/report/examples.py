"""The examples of the report: chosen by rules, shown with their pictures."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.evaluation.metrics.label_free import neighbor_overlap
from rpml.pages.items import Items
from rpml.pages.thumbnails import Thumbnails


@dataclass(frozen=True)
class ItemView:
    """An item with its picture and frame; `tone` is "" (unknown), "query", "right" or "wrong"."""

    id: str
    text: str
    label: str | None
    src: str | None
    tiny: bool
    tone: str = ""
    role: str = ""

    @property
    def alt(self) -> str:
        """The text alternative of the picture."""
        words = {"right": "same label", "wrong": "another label"}
        parts = [self.role, self.text, self.label and f"label {self.label}", words.get(self.tone)]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Strip:
    """Items in a row, with a heading and a remark."""

    heading: str
    items: list[ItemView]
    remark: str = ""


class Gallery:
    """Makes views of items, with thumbnails if there are images."""

    def __init__(self, items: Items, thumbnails: Thumbnails) -> None:
        self.items, self.thumbnails = items, thumbnails

    def view(self, row: int, tone: str = "", role: str = "") -> ItemView:
        """Return the view of one item."""
        picture = self.thumbnails[row]
        return ItemView(
            self.items.ids[row],
            self.items.text(row),
            self.items.label(row),
            None if picture is None else picture.uri,
            picture is not None and picture.tiny,
            tone,
            role,
        )

    def results(self, query: int, rows: Iterable[int]) -> list[ItemView]:
        """Return the views of results, framed as right or wrong if both labels are known."""
        return [self.view(row, self._tone(query, row)) for row in rows]

    def _tone(self, query: int, row: int) -> str:
        wanted, label = self.items.label(query), self.items.label(row)
        if wanted is None or label is None:
            return ""
        return "right" if label == wanted else "wrong"


SHOWN = 6  # neighbors per query
_SAME = 0.02  # relative range below which weights count as equal
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Triplet:
    """A triplet of rows with its weight and probability."""

    rows: tuple[int, int, int]
    weight: float
    probability: float


@dataclass(frozen=True)
class Trust:
    """Extreme triplets by weight, or by probability if all weights are about equal."""

    by: str
    most: list[Triplet]
    least: list[Triplet]


def trusted_triplets(model: RPML, count: int = 4) -> Trust:
    """Return the most and the least trusted triplets with different anchors."""
    weights, probabilities = model.triplet_weights_, model.triplet_probabilities_
    vary = float(np.ptp(weights)) > _SAME * float(weights.max())
    by = "weight" if vary else "probability"
    order = np.argsort(weights if vary else probabilities, kind="stable")

    def pick(ordered: Rows) -> list[Triplet]:
        _, first = np.unique(model.triplets_[ordered, 0], return_index=True)
        chosen = ordered[np.sort(first)[:count]]
        return [
            Triplet(
                tuple(int(r) for r in model.triplets_[t]),  # type: ignore[arg-type]
                float(weights[t]),
                float(probabilities[t]),
            )
            for t in chosen
        ]

    return Trust(by, pick(order[::-1]), pick(order))


def most_changed(
    before: NDArray[np.integer], after: NDArray[np.integer], count: int, rng: np.random.Generator
) -> Rows:
    """Return the rows that keep the fewest neighbors; ties in random order.

    Rows of one region change together, so a row that is a neighbor of an earlier one is skipped.
    """
    k = min(before.shape[1], after.shape[1])
    overlap = neighbor_overlap(before, after, k)
    order = np.lexsort((rng.random(len(overlap)), overlap))
    seen: set[int] = set()
    chosen = []
    for row in order.tolist():
        around = {row, *before[row, :SHOWN].tolist(), *after[row, :SHOWN].tolist()}
        if not around & seen:
            chosen.append(row)
            seen |= around
        if len(chosen) == count:
            break
    return np.array(chosen, dtype=np.intp)


def retrieval_queries(
    nearest: NDArray[np.integer], labels: NDArray[np.str_], count: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Return random queries with mostly right results, and others with mostly wrong ones.

    One per label, and only labels with at least two items, since others can only fail.
    """
    right = (labels[nearest[:, :SHOWN]] == labels[:, None]).mean(axis=1)
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    able = np.flatnonzero(sizes[codes] > 1)

    def pick(score: NDArray[np.floating]) -> Rows:
        order = able[np.lexsort((rng.random(len(able)), -score[able]))]
        _, first = np.unique(codes[order], return_index=True)
        return np.asarray(order[np.sort(first)[:count]])

    successes = pick(right)
    failures = pick(1 - right)
    return successes[right[successes] > 0.5], failures[right[failures] < 0.5]


def cluster_samples(labels: Rows, count: int, members: int) -> list[tuple[int, int, list[int]]]:
    """Return (cluster, size, some members) of clusters from the largest to pairs."""
    names, sizes = np.unique(labels[labels >= 0], return_counts=True)
    names, sizes = names[sizes > 1], sizes[sizes > 1]
    order = np.argsort(-sizes, kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, count).round().astype(int))
    chosen = order[places] if len(order) else order
    shown = []
    for c in chosen:
        rows = np.flatnonzero(labels == names[c])
        step = max(1, len(rows) // members)
        shown.append((int(names[c]), int(sizes[c]), rows[::step][:members].tolist()))
    return shown
