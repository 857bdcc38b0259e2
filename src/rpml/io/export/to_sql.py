"""A script in standard SQL: one table of weights per linear step, and a view that embeds rows.

Vectors are in long form, as `rpml_input (id, axis, value)` with axes counted from 0; the view
`rpml_embedding` has the same columns. It runs on PostgreSQL, DuckDB and SQLite.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rpml.io.export import Affine, Step, bias, input_size, output_size
from rpml.runtime.rows import Array

HEAD = """-- An embedding by rpml: {features} features to {size} dimensions.
-- Define rpml_input (id, axis, value) first, a table or a view, with axes from 0 to {last};
-- rpml_embedding (id, axis, value) then holds the embedding.
"""
ROWS_PER_INSERT = 500
BIAS = -1  # an extra axis on which every row is 1


def write(steps: Sequence[Step], path: Path) -> None:
    features, size = input_size(steps), output_size(steps)
    views, current = [], "rpml_input"
    with open(path, "w", encoding="utf8") as file:
        file.write(HEAD.format(features=features, size=size, last=features - 1))
        for i, step in enumerate(steps):
            if isinstance(step, Affine):
                file.writelines(_table(f"rpml_weights_{i}", np.vstack([step.matrix, bias(step)])))
                views.append((f"rpml_step_{i}", _multiplied(current, f"rpml_weights_{i}")))
            else:
                views.append((f"rpml_step_{i}", _scaled(current)))
            current = f"rpml_step_{i}"
        chain = ",\n".join(f"{name} AS (\n{query})" for name, query in views)
        file.write(f"CREATE VIEW rpml_embedding AS WITH\n{chain}\nSELECT * FROM {current};\n")


def _table(name: str, weights: Array) -> Iterator[str]:
    """Yield the SQL of a table of weights, whose last row is the bias."""
    yield f"CREATE TABLE {name} (input INTEGER, output INTEGER, weight DOUBLE PRECISION);\n"
    inputs = [*range(len(weights) - 1), BIAS]
    cells = [
        f"({i},{j},{value!r})"
        for i, row in zip(inputs, weights.tolist(), strict=True)
        for j, value in enumerate(row)
    ]
    for start in range(0, len(cells), ROWS_PER_INSERT):
        yield f"INSERT INTO {name} VALUES {','.join(cells[start : start + ROWS_PER_INSERT])};\n"


def _multiplied(source: str, weights: str) -> str:
    return (
        "  SELECT v.id, w.output AS axis, SUM(v.value * w.weight) AS value\n"
        f"  FROM (SELECT id, axis, value FROM {source} UNION ALL\n"
        f"        SELECT DISTINCT id, {BIAS}, 1.0 FROM {source}) v\n"
        f"  JOIN {weights} w ON w.input = v.axis GROUP BY v.id, w.output"
    )


def _scaled(source: str) -> str:
    return (
        "  SELECT v.id, v.axis, v.value / CASE WHEN n.norm > 0 THEN n.norm ELSE 1 END AS value\n"
        f"  FROM {source} v JOIN (SELECT id, SQRT(SUM(value * value)) AS norm FROM {source}\n"
        "  GROUP BY id) n ON n.id = v.id"
    )
