"""One HTML file out of the parts: everything inline, nothing executable but our own script."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from rpml.pages.report.mapdata import as_script
from rpml.runtime.extras import require

STYLES = ("base.css", "report.css")
SCRIPTS = ("scatter.js", "report.js")


def static(name: str) -> str:
    """A style sheet or script of the package."""
    return (files("rpml.pages.report") / "static" / name).read_text(encoding="utf8")


def _template(name: str) -> str:
    return (files("rpml.pages.report") / "templates" / name).read_text(encoding="utf8")


def render(parts: dict[str, Any], data: dict[str, Any]) -> str:
    """Fill the template; every value is escaped, and a policy forbids foreign code and requests."""
    jinja: Any = require("jinja2", "report", "the report")
    environment = jinja.Environment(
        loader=jinja.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = "\n".join(static(name) for name in STYLES)
    side = int(parts["grid"]["side"])  # in the sheet, since the policy forbids style attributes
    style += f".mosaic {{ --side: {side}; }}\n"
    script = "\n".join(static(name) for name in SCRIPTS)
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; "
        f"script-src '{_digest(script)}'; base-uri 'none'; form-action 'none'"
    )
    page: str = environment.get_template("report.html").render(
        **parts, style=style, script=script, policy=policy, data=as_script(data)
    )
    return page


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf8")).digest()).decode()
