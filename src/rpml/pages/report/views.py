"""Items as the page shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rpml.pages.report.items import Items
from rpml.pages.report.thumbnails import Thumbnails


@dataclass(frozen=True)
class ItemView:
    """An item with its picture, and how it is framed.

    `tone` is "" (no statement), "query", "right" or "wrong".
    """

    id: str
    label: str | None
    src: str | None
    tiny: bool
    tone: str = ""
    role: str = ""

    @property
    def alt(self) -> str:
        """What the picture shows, for those who do not see it."""
        words = {"right": "same label", "wrong": "other label"}
        parts = [self.role, self.id, self.label and f"label {self.label}", words.get(self.tone)]
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
        """One item."""
        picture = self.thumbnails[row]
        labels = self.items.labels
        return ItemView(
            self.items.ids[row],
            None if labels is None else labels[row],
            None if picture is None else picture.uri,
            picture is not None and picture.tiny,
            tone,
            role,
        )

    def found(self, query: int, rows: Iterable[int]) -> list[ItemView]:
        """Results of a query, framed by their label if labels are known."""
        labels = self.items.labels
        if labels is None:
            return [self.view(row) for row in rows]
        return [
            self.view(row, "right" if labels[row] == labels[query] else "wrong") for row in rows
        ]
