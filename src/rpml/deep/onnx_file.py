"""The trained network and its embedding as one ONNX file for `rpml features`."""

import json
import warnings
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from rpml.deep.backbones import Network
from rpml.deep.embedder import Embedder
from rpml.runtime.digest import file_fingerprint
from rpml.runtime.errors import InputError
from rpml.runtime.extras import require
from rpml.runtime.files import atomic_outputs
from rpml.runtime.outputs import check_output
from rpml.runtime.schema import read_json
from rpml.vision.backbone import Convention, find_sidecar

OPSET = 17
_NAMES = {"input": "image", "output": "feature_map"}
_SIGNATURE = "rpml.fingerprint"


def write_onnx(
    network: Network,
    embedder: Embedder,
    size: int,
    path: str | Path,
    fingerprint: str | None = None,
    overwrite: bool = True,
) -> None:
    """Write the ONNX file, and a sidecar with the input convention if it is not the default.

    `size` is the height and width of the training images; `fingerprint` identifies the run.
    """
    require("onnx", "vision", "ONNX export")
    # a 1 x 1 feature map, which every pooling leaves unchanged
    as_map = nn.Unflatten(1, (embedder.projection.shape[1], 1, 1))
    whole = nn.Sequential(network.trunk, embedder.cpu(), as_map).eval()
    bf16, embedder.bf16 = embedder.bf16, False
    sidecar = sidecar_of(path)

    def replaces(file: Path) -> bool:
        return overwrite and (file.name != sidecar.name or _is_ours(file))

    try:
        with atomic_outputs(path, replaces) as outputs, warnings.catch_warnings():
            temporary = outputs.new(path)
            warnings.simplefilter("ignore")  # from the exporter
            torch.onnx.export(
                whole,
                (torch.zeros(1, 3, size, size),),
                str(temporary),
                input_names=["image"],
                output_names=["feature_map"],
                dynamic_axes={"image": {0: "images"}, "feature_map": {0: "images"}},
                opset_version=OPSET,
                dynamo=False,  # the other exporter needs another package
            )
            _sign(temporary, fingerprint)
            if network.convention == Convention():
                outputs.remove(sidecar)
            else:
                about = {"fingerprint": file_fingerprint(temporary)}
                written = {**asdict(network.convention), **_NAMES, **about}
                text = json.dumps(written, indent=2) + "\n"
                outputs.new(sidecar).write_text(text, encoding="utf8")
    finally:
        embedder.bf16 = bf16


def sidecar_of(path: str | Path) -> Path:
    """Return the path of the input convention of an ONNX file."""
    return Path(path).with_suffix(".json")


def check_onnx_output(path: str | Path, overwrite: bool) -> None:
    """Raise InputError if the file exists, or if an unknown file would be read as its sidecar."""
    check_output(path, overwrite)
    sidecar = find_sidecar(Path(path))
    if sidecar is None or (overwrite and sidecar == sidecar_of(path) and _is_ours(sidecar)):
        return
    raise InputError(f"{sidecar} is in the way: choose another name for the network")


def _is_ours(sidecar: Path) -> bool:
    """Whether `write_onnx` wrote the sidecar."""
    try:
        fields = read_json(sidecar)
        return all(fields[name] == value for name, value in _NAMES.items())
    except (OSError, ValueError, TypeError, LookupError):
        return False


def fingerprint_of(path: str | Path) -> str | None:
    """Return the fingerprint of the run that wrote an ONNX file; None if there is none."""
    onnx = require("onnx", "vision", "reading ONNX files")
    try:
        properties = onnx.load(str(path), load_external_data=False).metadata_props
    except Exception:  # not written by rpml
        return None
    return next((p.value for p in properties if p.key == _SIGNATURE), None)


def _sign(path: Path, fingerprint: str | None) -> None:
    if fingerprint is not None:
        onnx = require("onnx", "vision", "ONNX export")
        model = onnx.load(str(path))
        model.metadata_props.add(key=_SIGNATURE, value=fingerprint)
        onnx.save(model, str(path))
