"""The data of the linked maps, as one JSON object for the page's script."""

import base64
import json

from rpml.pages.items import Category, encode_category
from rpml.pages.layout import quantized
from rpml.pages.report.measurements import Measurements
from rpml.pages.thumbnails import Thumbnail

_KINDS = {"image/png": "p", "image/webp": "w"}
_MAP_NEIGHBORS = 6


def map_titles(measurements: Measurements) -> dict[str, str]:
    """Return the titles of the maps and of the lists of neighbors, by space."""
    source = measurements.source
    if source.second:
        return {"raw": "Raw features", "rpml": source.model, "second": source.second}
    return {"raw": "Before: raw features", "rpml": "After: RPML"}


def map_data(measurements: Measurements) -> dict[str, object]:
    """Return everything the script needs to know about the drawn rows."""
    items, thumbnails = measurements.items, measurements.gallery.thumbnails
    rows = measurements.rows[measurements.drawn].tolist()
    maps = {
        key: base64.b64encode(quantized(points).tobytes()).decode()
        for key, points in measurements.maps.items()
    }
    return {
        "maps": maps,
        "titles": map_titles(measurements),
        "ids": [items.ids[row] for row in rows],
        "texts": None if items.texts is None else [items.texts[row] for row in rows],
        "categories": _categories(measurements, rows),
        "thumbs": None if items.images is None else [_short(thumbnails[row]) for row in rows],
        "neighbors": _neighbors(measurements),
    }


def _categories(measurements: Measurements, rows: list[int]) -> dict[str, Category]:
    categories = {}
    if measurements.items.labels is not None:
        categories["label"] = encode_category([measurements.items.label(row) for row in rows])
    if measurements.clusters is not None:
        clusters = measurements.clusters[rows].tolist()
        categories["pseudo-cluster"] = encode_category(
            [None if c < 0 else str(c) for c in clusters]
        )
    return categories


def _neighbors(measurements: Measurements) -> dict[str, list[list[int]]] | None:
    """Return neighbors by position on the map; None if not every measured row is drawn."""
    if len(measurements.drawn) < len(measurements.rows):
        return None
    spaces = [space for space in measurements.spaces if space.key in measurements.maps]
    return {space.key: space.neighbors[:, :_MAP_NEIGHBORS].tolist() for space in spaces}


def _short(picture: Thumbnail | None) -> str:
    if picture is None:
        return ""
    return _KINDS[picture.kind] + base64.b64encode(picture.data).decode("ascii")


def as_script(data: dict[str, object]) -> str:
    """Serialize to JSON that is safe inside a script element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
