"""The sections of the report: one module with a `SECTION` per name in this list."""

from importlib import import_module

from rpml.pages.report.section import Section

NAMES = (
    *("scores", "evidence", "maps", "changed", "retrieval", "grid", "checks"),
    *("training", "clusters", "triplets", "spectrum", "sizes", "codes", "settings"),
)
"""In the order of the page."""
SECTIONS: tuple[Section, ...] = tuple(import_module(f"{__name__}.{name}").SECTION for name in NAMES)
