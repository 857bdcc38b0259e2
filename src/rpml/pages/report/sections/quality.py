"""Sections about the quality of the embedding: scores, evidence, spectrum, sizes, codes."""

import numpy as np

from rpml.evaluation.codes import coded
from rpml.evaluation.metrics import first_hit_rank
from rpml.evaluation.metrics.label_free import NEAREST, neighbor_overlap
from rpml.evaluation.registry import METHODS, REFERENCE
from rpml.method.calibration import expected_gain
from rpml.method.codes import BITS
from rpml.method.graph.heaps import nearest_rows
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.solver.training import sizes_below
from rpml.pages.report.measurements import Measurements, Space, Texts
from rpml.pages.report.section import Cell, Content, Table, figure_cell, line_chart, score_table
from rpml.pages.report.verdict import bounds, signed
from rpml.runtime.errors import counted
from rpml.runtime.intervals import Interval, interval
from rpml.runtime.rows import Array, sorted_sample, unit_rows

_COMPARED = (1, 4)  # K of the gains
_SIZES_ROWS, _CODES_ROWS = 3000, 2000
_MAX_AXES = 256
_CODES = {"float32": 32, **BITS}  # bits per dimension


def show_scores(measurements: Measurements) -> Content:
    """Show scores with and without labels; a clearly best value is marked."""
    labels, spaces = measurements.labels, measurements.spaces
    how = (
        "Small figures are 95% intervals; bold marks a value that is better than all others "
        "beyond chance."
    )
    tables = [score_table("Without labels", spaces, measurements.label_free_scores)]
    if labels is not None:
        table = score_table("With labels", spaces, measurements.label_scores)
        tables.insert(0, table._replace(lines=[*table.lines, *_gains(measurements)]))
        if (labels == "").any():
            how += (
                f" {(labels != '').sum():,} of {len(labels):,} items have a label: the scores with "
                "labels are measured on these alone, searching among these alone."
            )
    return {"how": how, "tables": tables}


def _gains(measurements: Measurements) -> list[tuple[str, str, list[Cell]]]:
    name, gains = measurements.source.models[0], measurements.gains
    reading = f"points that {name} has more; beyond chance if the interval excludes 0"
    lines = []
    for k in _COMPARED:
        found = [gains[s.key][k] if s.key in gains else None for s in measurements.spaces]
        cells = [Cell(signed(100 * g.value), [bounds(g)]) if g else Cell("") for g in found]
        lines.append((f"Gain in Recall@{k}", reading, cells))
    return lines


def show_evidence(measurements: Measurements) -> Content | None:
    """Show the rank gains of the methods; None with labels or too few rows."""
    advice = measurements.advice
    if advice is None or not advice.evidence:
        return None
    ranked = sorted(advice.evidence.items(), key=lambda pair: -pair[1].value)
    gains = [
        (METHODS[name].title, "", [_rank_gain(name, gain), _expected(name, gain.value)])
        for name, gain in ranked
    ]
    expected = "Gain in Recall@1 on other data with such a rank gain: median, lowest and highest"
    kept = [
        (str(size), "", [figure_cell(share, ".1%")])
        for size, share in advice.neighbors_kept.items()
    ]
    return {
        "how": (
            "The features were split into two halves. Rows that are near by one half should rank "
            "high by the other: the rank gain is how much the mean logarithm of that rank falls, "
            "compared with PCA. RPML is judged with its default settings. Small figures are 95% "
            "intervals unless stated otherwise."
        ),
        "tables": [
            Table(
                f"Method, {advice.n_components} dimensions",
                [("", "Rank gain"), ("", expected)],
                gains,
            ),
            Table("Dimensions of PCA", [("", "Of the 10 nearest neighbors, retained")], kept),
        ],
    }


def _rank_gain(name: str, gain: Interval) -> Cell:
    exact = name == REFERENCE or gain.low == gain.high  # RPML fell back to PCA
    ends = [] if exact else [f"{signed(gain.low, 2)} to {signed(gain.high, 2)}"]
    return Cell(signed(gain.value, 2), ends)


def _expected(name: str, rank_gain: float) -> Cell:
    """Return the gain at such a rank gain on the calibration sets, at least zero."""
    if name == "raw":  # of another size, where the rank gain is not calibrated
        return Cell("not known")
    if name == REFERENCE or rank_gain < 0:
        return Cell("reference" if name == REFERENCE else "none")
    gain = expected_gain(rank_gain)
    return Cell(f"{signed(100 * gain.value)} points", [bounds(gain)])


def show_spectrum(measurements: Measurements) -> Content:
    lines = [
        (s.title, s.key, np.maximum(s.spectrum[0][:_MAX_AXES], 1e-9)) for s in measurements.spaces
    ]
    how = (
        "A flat line uses all directions, a steep one wastes most of them. The effective rank in "
        "the first table says how many directions are in use."
    )
    figure = line_chart("Share of variance per axis", lines, "axis, strongest first", log=True)
    return {"how": how, "figures": [figure]}


def show_sizes(measurements: Measurements) -> Content | None:
    rng = measurements.rng("sizes")
    table = quality_by_size(measurements.embedding.vectors, measurements.labels, rng)
    how = (
        "One fit serves every smaller size: the first components are an embedding of their own, "
        "rescaled to unit norm. Small figures are 95% intervals. Choose the smallest size that is "
        "good enough."
    )
    return {"how": how, "tables": [table]} if len(table.lines) > 1 else None


def quality_by_size(vectors: Array, labels: Texts | None, rng: np.random.Generator) -> Table:
    """Measure 8, 16, 32, ... and all components on a sample of the rows."""
    sizes = [*reversed(sizes_below(vectors.shape[1])), vectors.shape[1]]
    sample = vectors[sorted_sample(len(vectors), _SIZES_ROWS, rng)]
    k = min(NEAREST, len(sample) - 1)
    near = [nearest_neighbors(sample[:, :s], k, metric="cosine").indices for s in sizes]
    heading = f"Of the {k} nearest neighbors at full size, retained"
    measured = {heading: [interval(neighbor_overlap(near[-1], n, k), rng) for n in near]}
    if labels is not None:
        labeled = np.flatnonzero(labels != "")
        rows = labeled[sorted_sample(len(labeled), _SIZES_ROWS, rng)]
        hits = [first_hit_rank(vectors[rows][:, :s], labels[rows]) < 1 for s in sizes]
        measured["Recall@1"] = [interval(per_row, rng) for per_row in hits]
    lines = [
        (str(size), "", [figure_cell(figure, ".1%") for figure in figures])
        for size, *figures in zip(sizes, *measured.values(), strict=True)
    ]
    return Table("Components", [("", name) for name in measured], lines)


def show_codes(measurements: Measurements) -> Content:
    table = quality_by_code(measurements.spaces, measurements.labels, measurements.rng("codes"))
    how = (
        "The same vectors in fewer bytes: 8, 4, 2 bits or one bit per dimension. Queries are "
        "floats. Fewer bits leave bytes for more dimensions, which is often the better use of them "
        "(rpml compare --bytes). Small figures are 95% intervals."
    )
    return {"how": how, "tables": [table]}


def quality_by_code(spaces: list[Space], labels: Texts | None, rng: np.random.Generator) -> Table:
    """Measure the codes on a sample of the rows, labeled ones if any."""
    rows = np.arange(len(spaces[0].vectors)) if labels is None else np.flatnonzero(labels != "")
    rows = rows[sorted_sample(len(rows), _CODES_ROWS, rng)]
    k = min(NEAREST, len(rows) - 1)
    near = nearest_neighbors(spaces[0].vectors[rows], k, metric="cosine").indices
    cells: dict[str, list[Cell]] = {code: [] for code in _CODES}
    for space in spaces:
        units = unit_rows(np.asarray(space.vectors[rows], np.float32))
        for code, bits in _CODES.items():
            stored = units if code == "float32" else coded(units, code)
            nearest = nearest_rows(units, stored, k, own=np.arange(len(units)))[1]
            hits = neighbor_overlap(near, nearest, k)
            if labels is not None:
                hits = labels[rows[nearest[:, 0]]] == labels[rows]
            n_bytes = counted(-(-units.shape[1] * bits // 8), "byte")
            cells[code].append(figure_cell(interval(hits, rng), ".1%", n_bytes))
    title = "Of the nearest neighbors by the raw features, retained"
    columns = [(space.key, space.title) for space in spaces]
    lines = [(code, "", row) for code, row in cells.items()]
    return Table(title if labels is None else "Recall@1", columns, lines)
