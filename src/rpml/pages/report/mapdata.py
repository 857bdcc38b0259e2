"""The data behind the linked maps, as one JSON object that the page's script reads."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.pages.report.items import Items
from rpml.pages.report.thumbnails import Thumbnails

_KINDS = {"image/png": "p", "image/webp": "w"}


def quantized(points: NDArray[np.floating]) -> NDArray[np.uint16]:
    """Points of the unit square as little-endian 16-bit integers."""
    return np.asarray(np.rint(np.clip(points, 0, 1) * 65535), "<u2")


def coded(values: list[str]) -> dict[str, Any]:
    """Categories as names and a number a row, the most frequent first."""
    names, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    return {"names": names[order].tolist(), "codes": place[codes].tolist()}


def map_data(
    maps: dict[str, NDArray[np.floating]],
    items: Items,
    rows: NDArray[np.intp],
    categories: dict[str, list[str]],
    thumbnails: Thumbnails,
) -> dict[str, Any]:
    """What the script needs of the drawn rows."""
    return {
        "maps": {k: base64.b64encode(quantized(v).tobytes()).decode() for k, v in maps.items()},
        "ids": [items.ids[row] for row in rows],
        "categories": {name: coded(values) for name, values in categories.items()},
        "thumbs": None if items.images is None else [_short(thumbnails, row) for row in rows],
    }


def _short(thumbnails: Thumbnails, row: int) -> str:
    picture = thumbnails[int(row)]
    if picture is None:
        return ""
    return _KINDS[picture.kind] + base64.b64encode(picture.data).decode("ascii")


def as_script(data: dict[str, Any]) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
