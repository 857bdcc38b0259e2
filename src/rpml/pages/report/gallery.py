"""Items as the page shows them."""

from collections.abc import Iterable
from dataclasses import dataclass

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
