"""An ONNX graph: float32 rows in (input `features`), embedding out (output `embedding`)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import rpml
from rpml.io.export import Affine, Step, input_size, output_size
from rpml.runtime.errors import require

OPSET = 18  # the first where ReduceMax and ReduceL2 take axes as an input; onnxruntime >= 1.14
HEAD = """<ir_version: 8, opset_import: ["": {opset}], producer_name: "rpml">
rpml (float[rows, {d}] features) => (float[rows, {size}] embedding) {{
"""
# the largest entry divides first, as in `unit_rows`, so that no square overflows
UNIT = """abs_{i} = Abs({x})
most_{i} = ReduceMax <keepdims=1> (abs_{i}, axes)
divisor_{i} = Max(most_{i}, tiny)
scaled_{i} = Div({x}, divisor_{i})
length_{i} = ReduceL2 <keepdims=1> (scaled_{i}, axes)
norm_{i} = Max(length_{i}, tiny)
x_{i} = Div(scaled_{i}, norm_{i})
"""


def write(steps: Sequence[Step], path: Path) -> None:
    """Write the graph and check it with onnx."""
    onnx = require("onnx", "export", "ONNX export")
    parser, checker = (require(f"onnx.{m}", "export", "ONNX export") for m in ("parser", "checker"))
    constants = {"axes": np.array([1], np.int64), "tiny": np.array(np.finfo(np.float32).tiny)}
    text = HEAD.format(opset=OPSET, d=input_size(steps), size=output_size(steps))
    x = "features"
    for i, step in enumerate(steps):
        if isinstance(step, Affine):
            if step.mean is not None:
                constants[f"mean_{i}"] = step.mean.astype(np.float32)
                text += f"centered_{i} = Sub({x}, mean_{i})\n"
                x = f"centered_{i}"
            constants[f"matrix_{i}"] = np.ascontiguousarray(step.matrix, np.float32)
            text += f"x_{i} = MatMul({x}, matrix_{i})\n"
        else:
            text += UNIT.format(i=i, x=x)
        x = f"x_{i}"
    model = parser.parse_model(text + f"embedding = Identity({x})\n}}")
    model.producer_version = rpml.__version__
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in constants.items()
    )
    checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())
