"""rpml inspect: what is in a model, a feature file or a checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, fields_text

EXAMPLES = """\b
Examples:
  rpml inspect model.rpml
  rpml inspect vectors.parquet
  rpml inspect vectors.npz --array X --json
"""


@command
def run(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A model or a file of vectors.")],
    reading: opt.ReadingOptions,
    console: Console,
) -> None:
    """Show the shape, settings and diagnostics of a model or a file of vectors."""
    from rpml.io.features.reading import SUFFIXES

    target = Path(path)
    if os.path.isfile(target / "manifest.json"):
        fields = inspect_checkpoint(target)
    elif path == "-" or os.path.isdir(target) or target.suffix.lower() in SUFFIXES:
        fields = inspect_features(path, reading)
    else:
        fields = inspect_model(path)
    shown = {k: _short(v) for k, v in fields.items()}
    console.result(fields, fields_text(shown))


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={_short(v)}" for k, v in value.items())
    if isinstance(value, list) and len(value) > 8:
        return ", ".join(map(str, value[:8])) + f", ... ({len(value)})"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def inspect_model(path: str) -> dict[str, Any]:
    """What the file says, after the checks every load makes."""
    from rpml.estimator import RPML
    from rpml.io.model_file import read_model

    model = RPML.load(path)
    arrays, metadata = read_model(path)
    training = dict(metadata["training"])
    loss = training.pop("history").get("loss", [])
    weights = model.triplet_weights_
    run = metadata.get("run", {})
    return {
        "kind": "model",
        "path": path,
        "format_version": metadata["format_version"],
        "rpml_version": metadata["rpml_version"],
        "features": model.n_features_in_,
        "dim": len(model.components_),
        "arrays": {name: f"{a.shape} {a.dtype}" for name, a in sorted(arrays.items())},
        "preprocessing": metadata["preprocessing"],
        "normalize": model.normalize,
        "feature_names": metadata["feature_names"] or [],
        "settings": metadata["settings"],
        "training": training,
        "clusters": _clusters(model.labels_),
        "loss": {"first": loss[0], "last": loss[-1]} if loss else {},
        "triplet_weights": _spread(weights),
        "interrupted": bool(run.get("interrupted", False)),
        "trained_on": run.get("options", {}).get("features", "unknown"),
    }


def _clusters(labels: Any) -> dict[str, int]:
    import numpy as np

    sizes = np.bincount(labels[labels >= 0])
    sizes = sizes[sizes > 0]
    if len(sizes) == 0:
        return {"count": 0}
    largest, alone = int(sizes.max()), int((sizes == 1).sum())
    return {"count": len(sizes), "largest": largest, "singletons": alone}


def _spread(values: Any) -> dict[str, float]:
    if len(values) == 0:
        return {}
    import numpy as np

    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95]).tolist()
    return {"mean": float(values.mean()), "5%": low, "50%": middle, "95%": high}


def inspect_features(path: str, reading: opt.ReadingOptions) -> dict[str, Any]:
    """Shape, names and what a fit would stumble over; bad values are counted, not refused."""
    from rpml.io.features.diagnostics import diagnose

    source = reading.open(path)
    found = diagnose(source)
    return {
        "kind": "features",
        "path": path,
        "rows": found.n_rows,
        "features": source.n_features,
        "dtype": str(source.dtype),
        "ids": source.id_name if source.has_ids else None,
        "feature_names": list(source.feature_names or []),
        "not_finite": found.not_finite,
        "first_not_finite": found.first_not_finite,
        "zero_rows": found.zero_rows,
        "constant_columns": found.constant_columns,
        "negative_values": found.has_negative,
        "norms": found.norms,
    }


def inspect_checkpoint(folder: Path) -> dict[str, Any]:
    """Which stages of an unfinished fit are kept."""
    from rpml.runtime.errors import CheckpointError

    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf8"))
        settings = dict(manifest["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder} is not a readable checkpoint") from error
    stages = sorted(folder.glob("*.safetensors"))
    return {
        "kind": "checkpoint",
        "path": str(folder),
        "rpml_version": manifest.get("rpml_version"),
        "stages": [p.stem for p in stages],
        "bytes": sum(p.stat().st_size for p in stages),
        "settings": settings,
    }
