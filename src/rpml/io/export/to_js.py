"""An ES module for browsers and Node.js: `embed(vector)` and the steps as JSON."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rpml.io.export import Affine, Step, bias
from rpml.runtime.context import Json

PROGRAM = """
function unit(x) {
  let norm = 0;
  for (const value of x) norm = Math.hypot(norm, value);
  return norm > 0 ? x.map((value) => value / norm) : x;
}

function affine(x, {weights, bias}) {
  if (x.length !== weights.length) throw new RangeError(`${weights.length} features expected`);
  const out = Float64Array.from(bias);
  weights.forEach((row, i) => row.forEach((weight, j) => { out[j] += x[i] * weight; }));
  return out;
}

/** The embedding of one vector: numbers in, a Float64Array out. */
export function embed(vector) {
  return steps.reduce(
    (x, step) => (step.weights ? affine(x, step) : unit(x)), Float64Array.from(vector));
}
"""


def write(steps: Sequence[Step], path: Path) -> None:
    data = json.dumps([_described(step) for step in steps])
    path.write_text(f"// An embedding by rpml.\nexport const steps = {data};\n{PROGRAM}", "utf8")


def _described(step: Step) -> Json:
    """Convert a step to JSON: {} for unit norm, else float32 weights of shape (input, output)."""
    if not isinstance(step, Affine):
        return {}
    weights, offset = (np.asarray(a, np.float32) for a in (step.matrix, bias(step)))
    rows = [[float(str(value)) for value in row] for row in weights]
    return {"weights": rows, "bias": [float(str(value)) for value in offset]}
