"""An ONNX graph: float32 rows in (input `features`), embedding out (output `embedding`)."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rpml
from rpml.io.export import Affine, Step, input_size, output_size
from rpml.runtime.extras import require

OPSET = 18  # the first where ReduceMax and ReduceL2 take axes as an input; onnxruntime >= 1.14
IR_VERSION = 8


class _Graph:
    """A chain of nodes, each of which reads the output of the previous one."""

    def __init__(self, onnx: ModuleType) -> None:
        self.onnx = onnx
        self.nodes: list[object] = []
        self.constants: list[object] = []
        self.value = "features"

    def constant(self, name: str, array: NDArray[np.generic]) -> str:
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: int) -> str:
        output = f"{operator}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [output], **attributes))
        return output

    def affine(self, step: Affine) -> None:
        number = len(self.nodes)
        if step.mean is not None:
            mean = self.constant(f"mean_{number}", step.mean.astype(np.float32))
            self.value = self.add("Sub", self.value, mean)
        matrix = np.ascontiguousarray(step.matrix, np.float32)
        self.value = self.add("MatMul", self.value, self.constant(f"matrix_{number}", matrix))

    def unit(self) -> None:
        """Divide by the largest entry first, as `unit_rows`, so that no square overflows."""
        largest = self.add("ReduceMax", self.add("Abs", self.value), "axes", keepdims=1)
        scaled = self.add("Div", self.value, self.add("Max", largest, "tiny"))
        norm = self.add("ReduceL2", scaled, "axes", keepdims=1)
        self.value = self.add("Div", scaled, self.add("Max", norm, "tiny"))


def write(steps: Sequence[Step], path: Path) -> None:
    """Write the graph and check it with onnx."""
    onnx = require("onnx", "export", "ONNX export")
    require("onnx.checker", "export", "ONNX export")
    graph = _Graph(onnx)
    graph.constant("axes", np.array([1], np.int64))
    graph.constant("tiny", np.array(np.finfo(np.float32).tiny, np.float32))
    for step in steps:
        if isinstance(step, Affine):
            graph.affine(step)
        else:
            graph.unit()
    graph.nodes.append(onnx.helper.make_node("Identity", [graph.value], ["embedding"]))
    model = _model(onnx, graph, input_size(steps), output_size(steps))
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())


def _model(onnx: ModuleType, graph: _Graph, d: int, size: int) -> Any:
    kind = onnx.TensorProto.FLOAT
    body = onnx.helper.make_graph(
        graph.nodes,
        "rpml",
        [onnx.helper.make_tensor_value_info("features", kind, ["rows", d])],
        [onnx.helper.make_tensor_value_info("embedding", kind, ["rows", size])],
        graph.constants,
    )
    return onnx.helper.make_model(
        body,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="rpml",
        producer_version=rpml.__version__,
    )
