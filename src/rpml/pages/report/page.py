"""One self-contained HTML file from the sections and the data of the maps."""

import base64
import hashlib
import json
from types import ModuleType
from typing import Any

from rpml.pages import assets
from rpml.pages.items import Category, encode_category
from rpml.pages.layout import quantized
from rpml.pages.report.measurements import N_STAGES, Listener, Measurements
from rpml.pages.report.sections import SECTIONS
from rpml.pages.report.verdict import judge
from rpml.runtime.context import Progress
from rpml.runtime.errors import counted, require

_MAP_NEIGHBORS = 6


def map_data(measurements: Measurements) -> dict[str, object]:
    items, gallery = measurements.items, measurements.gallery
    rows = measurements.rows[measurements.drawn].tolist()
    maps = {
        key: base64.b64encode(quantized(points).tobytes()).decode()
        for key, points in measurements.maps.items()
    }
    return {
        "maps": maps,
        "titles": measurements.titles,
        "ids": [items.ids[row] for row in rows],
        "texts": None if items.texts is None else [items.texts[row] for row in rows],
        "categories": _categories(measurements, rows),
        "thumbs": None if items.images is None else [gallery.encoded(row) for row in rows],
        "neighbors": _neighbors(measurements),
    }


def _categories(measurements: Measurements, rows: list[int]) -> dict[str, Category]:
    categories = {}
    for name, values in measurements.items.metadata.items():
        categories[name] = encode_category([values[row] or None for row in rows])
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


def as_script(data: dict[str, object]) -> str:
    """Serialize to JSON that is safe inside a script element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


STYLES = ("base.css", "report.css")
SCRIPTS = ("points.js", "drawing.js", "scatter.js", "legend.js", "report.js")
_MACROS = '{% import "macros.html" as ui %}'


def environment() -> Any:
    """Return the Jinja2 environment of the templates; values are escaped."""
    jinja: ModuleType = require("jinja2", "report", "the report")
    return jinja.Environment(
        loader=jinja.PackageLoader("rpml.pages.report"),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def build_report(measurements: Measurements, listen: Listener = lambda progress: None) -> str:
    """Fill the templates; a policy forbids other code and requests."""
    templates, sections = environment(), []
    for section in SECTIONS:
        content = section.content(measurements)
        if content is not None:
            body = templates.from_string(_MACROS + section.template).render(content)
            sections.append((section.anchor, section.title, content["how"], body))
    texts = {name: content.decode() for name, content in assets("report").items()}
    style, script = ("\n".join(texts[name] for name in part) for part in (STYLES, SCRIPTS))
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; "
        f"script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    page: str = templates.get_template("report.html").render(
        verdict=judge(measurements),
        source=measurements.source,
        items=counted(measurements.n_rows, "item"),
        sections=sections,
        style=style,
        script=script,
        policy=policy,
        data=as_script(map_data(measurements)),
    )
    listen(Progress("report", N_STAGES, N_STAGES))
    return page


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf8")).digest()).decode()
