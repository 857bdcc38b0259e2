"""Sections about the fit: checks, training, clusters, triplets, settings."""

import sys

import numpy as np
from sklearn.base import clone

from rpml.estimator import RPML
from rpml.estimator.description import mean_losses, outcome_lines
from rpml.estimator.fitted import describe_settings
from rpml.evaluation.diagnostics import of_clusters, of_stability, of_triplets, of_whitening
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Cell, Content, Strip, Table, histogram, line_chart
from rpml.runtime.environment import versions
from rpml.runtime.errors import counted, one_line
from rpml.runtime.rows import Indices, Labels, sorted_sample

_MIN_ROWS, _STABILITY_ROWS = 60, 3000  # range in which the stability of clusters is measured
_HEADINGS = {
    "loss": "Mean loss per triplet",
    "gradient_norm": "Gradient norm",
    "mean_weight": "Mean triplet weight",
}
_SAME = 0.02  # relative range below which weights count as equal
_OTHER_ROWS = "These features are not the training rows, so the {} cannot be shown as items."


def _cluster_labels(measurements: Measurements) -> Labels:
    """Return the clusters of the fit, or of the measured rows if it made none."""
    fitted: Labels | None = getattr(measurements.model, "labels_", None)
    if fitted is not None:
        return fitted
    assert measurements.clusters is not None
    return measurements.clusters[measurements.rows]


def show_checks(measurements: Measurements) -> Content:
    """Show diagnostics of clusters, triplets and whitening; the first table has the neighbors'."""
    model, X = measurements.model, measurements.X
    checks = list(of_clusters(_cluster_labels(measurements)))
    if len(X) >= _MIN_ROWS:
        rng = measurements.rng("checks")
        checks.append(of_stability(model, X[sorted_sample(len(X), _STABILITY_ROWS, rng)], rng))
    checks += [*of_triplets(model), *of_whitening(model)]
    lines = [
        (d.title, d.meaning, [Cell(d.shown, mark="concern" if d.concern else "")]) for d in checks
    ]
    how = "Properties of the fit that need no labels; a line marked ▲ needs attention."
    return {"how": how, "tables": [Table("Check", [("", "Value")], lines)]}


def show_training(measurements: Measurements) -> Content:
    model = measurements.model
    step = "epoch" if model.solver == "stochastic" else "iteration"
    history = {**getattr(model, "history_", {}), "loss": mean_losses(model)}
    figures = []
    for name, heading in _HEADINGS.items():
        values = np.asarray(history.get(name, []), float)
        if len(values) > 1:
            log = name == "gradient_norm"
            figures.append(line_chart(heading, [(heading, "rpml", values)], step, log))
    how = (
        "The loss should fall and level off, and the gradient norm should fall by orders of "
        "magnitude. A mean triplet weight near 0 means that the fit ignores its triplets."
    )
    return {
        "how": how if figures else "What the fit came to, and why.",
        "figures": figures,
        "lines": [f"{name.capitalize()}: {text}." for name, text in outcome_lines(model).items()],
    }


def show_clusters(measurements: Measurements) -> Content:
    labels, shown = _cluster_labels(measurements), measurements.clusters
    sizes = np.bincount(labels[labels >= 0])
    strips: list[Strip] = [
        (
            [measurements.gallery.view(row) for row in rows],
            counted(size, "item"),
            f"Pseudo-cluster {name}",
        )
        for name, size, rows in ([] if shown is None else cluster_samples(shown, 5, 10))
    ]
    role = "take the place of labels in the fit"
    if not hasattr(measurements.model, "labels_"):
        role = "were made for this report, since the fit had no use for clusters"
    title, axis = "Sizes of the pseudo-clusters", "items per pseudo-cluster"
    return {
        "how": (
            f"The pseudo-clusters {role}. Many small and pure ones are good; a single giant or "
            "mostly singletons are a warning."
        ),
        "figures": [histogram(title, sizes[sizes > 0], axis, doubling=True)] if sizes.any() else [],
        "strips": {"Examples, from the largest to the smallest": strips} if strips else {},
        "note": _OTHER_ROWS.format("pseudo-clusters") if shown is None else "",
    }


def cluster_samples(labels: Labels, count: int, members: int) -> list[tuple[int, int, list[int]]]:
    """Return (cluster, size, some members) of clusters from the largest to pairs."""
    names, sizes = np.unique(labels[labels >= 0], return_counts=True)
    names, sizes = names[sizes > 1], sizes[sizes > 1]
    order = np.argsort(-sizes, kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, count).round().astype(int))
    shown = []
    for c in order[places] if len(order) else order:
        rows = np.flatnonzero(labels == names[c])
        step = max(1, len(rows) // members)
        shown.append((int(names[c]), int(sizes[c]), rows[::step][:members].tolist()))
    return shown


def show_triplets(measurements: Measurements) -> Content | None:
    """Show weights and probabilities, and examples for training rows; None without triplets."""
    model, trained = measurements.model, measurements.trained
    if not len(getattr(model, "triplets_", ())):
        return None
    weights, probabilities = model.triplet_weights_, model.triplet_probabilities_
    by, most, least = trusted_triplets(model)
    columns = {f"Highest {by}": most, f"Lowest {by}": least} if trained else {}
    return {
        "how": (
            "A triplet asks that the positive be closer to the anchor than the negative. Its "
            "weight says how much the fit relies on it, its probability (at most 0.5) how well "
            "the embedding satisfies it."
        ),
        "figures": [
            histogram("Triplet weights", weights, "weight"),
            histogram("Triplet probabilities", probabilities, "probability"),
        ],
        "lines": [f"{counted(len(weights), 'triplet')}."],
        "strips": {
            title: [_triplet_strip(measurements, int(t)) for t in part]
            for title, part in columns.items()
        },
        "note": "" if trained else _OTHER_ROWS.format("triplets"),
    }


def trusted_triplets(model: RPML, count: int = 4) -> tuple[str, Indices, Indices]:
    """Return the most and the least trusted triplets with different anchors, by number.

    They are ordered by weight, or by probability if all weights are about equal; the first value
    says by which.
    """
    weights, probabilities = model.triplet_weights_, model.triplet_probabilities_
    vary = float(np.ptp(weights)) > _SAME * float(weights.max())
    order = np.argsort(weights if vary else probabilities, kind="stable")

    def pick(ordered: Indices) -> Indices:
        _, first = np.unique(model.triplets_[ordered, 0], return_index=True)
        return ordered[np.sort(first)[:count]]

    return "weight" if vary else "probability", pick(order[::-1]), pick(order)


def _triplet_strip(measurements: Measurements, t: int) -> Strip:
    model, gallery = measurements.model, measurements.gallery
    roles = zip(model.triplets_[t].tolist(), ("anchor", "positive", "negative"), strict=True)
    weight, probability = model.triplet_weights_[t], model.triplet_probabilities_[t]
    views = [gallery.view(row, "", role) for row, role in roles]
    return views, f"weight {weight:.3g}, probability {probability:.3g}", ""


def show_settings(measurements: Measurements) -> Content:
    facts = {**versions(), "seed of this report": str(measurements.seed)}
    measured = len(measurements.rows)
    if measured < measurements.n_rows:
        facts["rows measured"] = f"{measured:,} of {measurements.n_rows:,}"
    return {
        "how": "Everything needed to repeat the fit and this report.",
        "commands": [call(measurements.model), measurements.source.command],
        "settings": settings(measurements.model),
        "versions": facts,
    }


def settings(model: RPML) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in describe_settings(model).items():
        if isinstance(value, dict):
            (kind, inner), *_ = value.items()
            flat |= {name: kind, **{f"{name}: {key}": v for key, v in inner.items()}}
        else:
            flat[name] = value
    return flat


def call(model: RPML) -> str:
    """Return the Python call that builds this estimator, without default settings."""
    return one_line(clone(model).set_params(callback=None).__repr__(N_CHAR_MAX=sys.maxsize))
