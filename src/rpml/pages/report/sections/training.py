"""The progress of the solver."""

import numpy as np

from rpml.estimator.description import decisions, mean_losses
from rpml.pages.report import charts
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Figure, Section

_HEADINGS = {
    "loss": "Mean loss per triplet",
    "gradient_norm": "Gradient norm",
    "mean_weight": "Mean triplet weight",
}


def content(measurements: Measurements) -> Content:
    """Show the curves of the history; a constant one is described in words."""
    model = measurements.model
    step = "epoch" if model.solver == "stochastic" else "iteration"
    figures, constants = [], []
    history = {**getattr(model, "history_", {}), "loss": mean_losses(model)}
    for name, heading in _HEADINGS.items():
        values = np.asarray(history.get(name, []), float)
        if len(values) == 0:
            continue
        if len(values) == 1 or charts.is_constant(values):
            throughout = " throughout" if len(values) > 1 else ""
            constants.append(f"{heading}: {charts.number(float(values[0]))}{throughout}.")
            continue
        log = name == "gradient_norm" and bool(values.min() > 0)
        line = charts.Series(heading, "rpml", values)
        figures.append(Figure(heading, charts.line_chart(heading, [line], step, log)))
    constants += [f"{name.capitalize()}: {text}." for name, text in decisions(model).items()]
    how = (
        "The loss should fall and level off, and the gradient norm should fall by orders of "
        "magnitude. A mean triplet weight near 0 means that the fit ignores its triplets."
    )
    return {
        "how": how if figures else "There is no curve: the solver took no step.",
        "figures": figures,
        "summary": " ".join(constants),
    }


TEMPLATE = """
<div class="charts">{% for figure in figures %}{{ ui.chart(figure) }}{% endfor %}</div>
<p>{{ summary }}</p>
"""
SECTION = Section("training", "Training", content, TEMPLATE)
