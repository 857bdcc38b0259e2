"""An ONNX network that turns a batch of images into feature maps."""

import hashlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import InputError, explained, reason_of, require
from rpml.runtime.rows import Floats
from rpml.runtime.schema import Number, check_json, read_document

_onnxruntime: ModuleType = require("onnxruntime", "vision", "a backbone")

LRN_BETA = 0.75  # exponent of AlexNet and GoogLeNet: two square roots instead of a power
LRN_OPSET = 13  # the first in which the axes below are an input
_FAST_LRN = """
<domain: "rpml", opset_import: ["": {opset}]> {name} (x) => (y) {{
  axis = Constant <value_ints = [1]> ()
  square = Mul (x, x)
  volume = Unsqueeze (square, axis)
  means = AveragePool <kernel_shape = [{size}, 1, 1], pads = [{before}, 0, 0, {after}, 0, 0],
                       count_include_pad = 1> (volume)
  mean = Squeeze (means, axis)
  alpha = Constant <value_float = {alpha:.9f}> ()
  bias = Constant <value_float = {bias:.9f}> ()
  scaled = Mul (alpha, mean)
  total = Add (scaled, bias)
  root = Sqrt (total)
  fourth = Sqrt (root)
  power = Mul (root, fourth)
  y = Div (x, power)
}}
"""


@dataclass(frozen=True)
class Convention:
    """The input convention of a network; the defaults apply if there is no sidecar."""

    input: str = "image"
    output: str = "feature_map"
    """Names of the graph's input and of its feature-map output."""
    color: str = "RGB"
    """Order of the channels: "RGB" or "BGR"."""
    white: float = 1.0
    """Value of a white pixel before mean and std are applied: 1 or 255."""
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Subtracted and divided by, in the order of `color`."""
    layout: str = "NCHW"
    """Of the input and of the feature map: "NCHW" or "NHWC"."""
    min_side: int = 32
    """Smallest side that the network accepts (its stride)."""

    def __post_init__(self) -> None:
        for name, allowed in (("color", ("RGB", "BGR")), ("layout", ("NCHW", "NHWC"))):
            if (value := getattr(self, name)) not in allowed:
                raise InputError(f"{name} must be {' or '.join(allowed)}, got {value!r}")
        for name in ("mean", "std"):
            value = getattr(self, name)
            if len(value) != 3 or not all(isinstance(v, int | float) for v in value):
                raise InputError(f"{name} must be three numbers, got {value!r}")
        if 0 in self.std or self.white <= 0 or self.min_side < 1:
            raise InputError("std, white and min_side must be positive")

    def prepare(self, images: NDArray[np.uint8]) -> Floats:
        """Convert RGB bytes of shape (n, height, width, 3) to the network's input."""
        x: Floats = images.astype(np.float32) * np.float32(self.white / 255)
        if self.color == "BGR":
            x = x[..., ::-1]
        if any(self.mean) or self.std != (1.0, 1.0, 1.0):
            x = np.subtract(x, self.mean, dtype=np.float32)
            x = np.divide(x, self.std, dtype=np.float32)
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2) if self.layout == "NCHW" else x)


def read_convention(path: Path) -> Convention:
    """Read a .json or .toml sidecar; unknown keys are refused."""
    try:
        fields_read = read_document(path)
        check_json(fields_read, {"*": (str, Number(), [Number()])}, "sidecar")
        names = {f.name for f in fields(Convention)}
        unknown = sorted(set(fields_read) - names)
        if unknown:
            raise InputError(
                f"it has no setting {unknown[0]!r} (known: {', '.join(sorted(names))})"
            )
        lists = {k: tuple(fields_read[k]) for k in ("mean", "std") if k in fields_read}
        return Convention(**{**fields_read, **lists})
    except (OSError, ValueError, TypeError, UnicodeDecodeError) as error:
        raise InputError(f"cannot use the backbone's sidecar {path}: {reason_of(error)}") from error


def find_sidecar(model: Path) -> Path | None:
    """Return x.json or x.toml for x.onnx, if there is one."""
    paths = (model.with_suffix(suffix) for suffix in (".json", ".toml"))
    return next(filter(Path.is_file, paths), None)


def find_convention(network: Path) -> Convention:
    """Return the convention in the sidecar of a network, or the default one."""
    sidecar = find_sidecar(network)
    return read_convention(sidecar) if sidecar else Convention()


class Backbone:
    """An ONNX network that returns feature maps; it may be called from several threads at once.

    The .json or .toml file of the same name, if any, has the input convention; `threads` is the
    number of threads per call.
    """

    def __init__(self, path: str | Path, threads: int = 1) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"cannot read the backbone {path}: there is no such file")
        self.convention = find_convention(self.path)
        self._session = _open(self.path, threads)
        self.fixed_size, self.fixed_batch = self._check_graph()

    def _check_graph(self) -> tuple[tuple[int, int] | None, int | None]:
        """Check the names; return (width, height) and batch size where the graph fixes them."""
        inputs = {node.name: node for node in self._session.get_inputs()}
        outputs = {node.name: node for node in self._session.get_outputs()}
        for kind, there in (("input", inputs), ("output", outputs)):
            if (name := getattr(self.convention, kind)) not in there:
                names = ", ".join(map(repr, there))
                raise InputError(
                    f"{self.path} has no {kind} {name!r}, it has {names}: name the right one in a "
                    f'sidecar {self.path.stem}.toml, {kind} = "{next(iter(there), "name")}"'
                )
        shape = inputs[self.convention.input].shape
        if len(shape) != 4 or len(outputs[self.convention.output].shape or [0] * 4) != 4:
            raise InputError(
                f"{self.path}: input and output must have four dimensions (a batch of images, a "
                "batch of feature maps)"
            )
        height, width = shape[2:] if self.convention.layout == "NCHW" else shape[1:3]
        fixed = isinstance(height, int) and isinstance(width, int)
        return (width, height) if fixed else None, shape[0] if isinstance(shape[0], int) else None

    def __call__(self, images: NDArray[np.uint8]) -> Floats:
        """Return feature maps (n, height, width, channels) of RGB images of one size."""
        x = self.convention.prepare(images)
        step = self.fixed_batch or len(x)
        if missing := -len(x) % step:  # a fixed batch must be full
            x = np.pad(x, ((0, missing), (0, 0), (0, 0), (0, 0)))
        maps = [self._run(x[i : i + step]) for i in range(0, len(x), step)]
        return (maps[0] if len(maps) == 1 else np.concatenate(maps))[: len(images)]

    def _run(self, x: Floats) -> Floats:
        (maps,) = self._session.run([self.convention.output], {self.convention.input: x})
        maps = np.asarray(maps, np.float32)
        if self.convention.layout == "NCHW":
            # channels last: pooling then runs over contiguous vectors
            maps = np.ascontiguousarray(maps.transpose(0, 2, 3, 1))
        return maps

    def fingerprint(self) -> dict[str, object]:
        """Return the digest of the file and the convention."""
        with open(self.path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"sha256": digest, **asdict(self.convention)}


def _open(path: Path, threads: int) -> Any:
    options = _onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # idle threads must not spin: the other cores decode or run the next batch
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    network = with_fast_normalization(path) or str(path)
    with explained(f"{path} is not an ONNX network that can be run"):
        return _onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])


def with_fast_normalization(path: Path) -> bytes | None:
    """Replace the LRN nodes of a network; None if there are none to replace.

    onnxruntime computes the power of every value on one thread, a third of the time of GoogLeNet.
    The mean of squares over neighboring channels is a pooling, and ``s ** 0.75 = sqrt(s) *
    sqrt(sqrt(s))``: the same map up to rounding.
    """
    try:
        import onnx

        model = onnx.load(path, load_external_data=False)
    except Exception:  # not installed, or not a network: onnxruntime gives the reason
        return None
    external = any(w.data_location == onnx.TensorProto.EXTERNAL for w in model.graph.initializer)
    if external or model.opset_import[0].version < LRN_OPSET:
        return None
    for node in model.graph.node:
        settings = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "LRN" and settings.get("beta", LRN_BETA) == LRN_BETA:
            name, defaults = f"LRN{len(model.functions)}", {"alpha": 1e-4, "bias": 1.0}
            settings = {**defaults, **settings, "name": name}
            before, after = (settings["size"] - 1) // 2, settings["size"] // 2
            body = _FAST_LRN.format(before=before, after=after, opset=LRN_OPSET, **settings)
            model.functions.append(onnx.parser.parse_function(body))
            node.op_type, node.domain = name, "rpml"
            del node.attribute[:]
    if not model.functions:
        return None
    model.opset_import.append(onnx.helper.make_opsetid("rpml", 1))
    model.ir_version = max(model.ir_version, 8)  # the first with functions
    return bytes(model.SerializeToString())
