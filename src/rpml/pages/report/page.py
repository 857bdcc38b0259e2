"""One self-contained HTML file from the sections."""

import base64
import hashlib
from importlib.resources import files
from types import ModuleType

from rpml.pages.assets import assets
from rpml.pages.report.mapdata import as_script, map_data
from rpml.pages.report.measurements import N_STAGES, Listener, Measurements
from rpml.pages.report.sections import SECTIONS
from rpml.pages.report.verdict import judge
from rpml.runtime.context import Progress
from rpml.runtime.extras import require
from rpml.runtime.wording import counted

STYLES = ("base.css", "report.css")
SCRIPTS = ("cells.js", "shapes.js", "drawing.js", "scatter.js", "legend.js", "report.js")
_MACROS = '{% import "macros.html" as ui %}'


def _template(name: str) -> str:
    return (files("rpml.pages.report") / "templates" / name).read_text(encoding="utf8")


def build_report(measurements: Measurements, listen: Listener = lambda progress: None) -> str:
    """Fill the templates; values are escaped, and a policy forbids foreign code and requests."""
    jinja: ModuleType = require("jinja2", "report", "the report")
    environment = jinja.Environment(
        loader=jinja.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = []
    for section in SECTIONS:
        content = section.content(measurements)
        if content is not None:
            body = environment.from_string(_MACROS + section.template).render(content)
            sections.append({"anchor": section.anchor, "title": section.title, "body": body})
            sections[-1]["how"] = content["how"]
    texts = {name: content.decode() for name, content in assets("report").items()}
    style, script = ("\n".join(texts[name] for name in part) for part in (STYLES, SCRIPTS))
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; "
        f"script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    page: str = environment.get_template("report.html").render(
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
