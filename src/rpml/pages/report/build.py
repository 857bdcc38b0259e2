"""The report of a fitted model on a set of vectors."""

from __future__ import annotations

from rpml.estimator import RPML
from rpml.pages.report.items import Items
from rpml.pages.report.mapdata import map_data
from rpml.pages.report.measurements import N_STAGES, Listener, Source, measure
from rpml.pages.report.page import render
from rpml.pages.report.verdict import judge
from rpml.runtime.context import Progress
from rpml.runtime.rows import Array

__all__ = ["Source", "build_report"]


def build_report(
    model: RPML,
    X: Array,
    items: Items,
    source: Source,
    seed: int = 0,
    listen: Listener = lambda progress: None,
) -> str:
    """Measure, and write the HTML page; the parameters are those of `measure`."""
    measurements = measure(model, X, items, source, seed, listen)
    page = render(measurements, judge(measurements), map_data(measurements))
    listen(Progress("report", N_STAGES, N_STAGES))
    return page
