"""rpml inspect: what is in a model, an index, a feature file or a checkpoint."""

import os
from pathlib import Path
from textwrap import fill
from typing import Any

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.console import shown
from rpml.cli.options.reading import ReadingOptions, load_model

EXAMPLES = """
  rpml inspect model.rpml
  rpml inspect vectors.index
  rpml inspect vectors.parquet
  rpml inspect vectors.npz --array X --json
"""
_WIDTH = 78  # of values that are lists


@command
def run(
    *,
    path: str = opt.argument("PATH", "A model, index, checkpoint or file of vectors."),
    reading: ReadingOptions,
    console: Console,
) -> None:
    """Describe a model, an index, a checkpoint or a file of vectors."""
    from rpml.estimator.description import describe_model, outcome_lines
    from rpml.io.checkpoint import describe_checkpoint
    from rpml.io.features.reading import SUFFIXES
    from rpml.search.index import describe_index

    target, lines = Path(path), dict[str, str]()
    if (checkpoint := describe_checkpoint(target)) is not None:
        fields = checkpoint
    elif path == "-" or "://" in path or os.path.isdir(target) or target.suffix.lower() in SUFFIXES:
        fields = inspect_features(path, reading)
    elif _container(path) == "index":
        fields = describe_index(path)
    else:
        model = load_model(path)
        fields = describe_model(model, path)
        lines = {title: fill(text, _WIDTH) for title, text in outcome_lines(model).items()}
    in_lines = ("decisions", "training", "outcome") if lines else ()
    lines |= {
        name: _text(name, value)
        for name, value in fields.items()
        if name not in in_lines and value not in ({}, [], {"count": 0})
    }
    console.result(fields, lines)


def _container(path: str) -> str:
    from rpml.io.container import container_kind
    from rpml.io.features.reading import SUFFIXES
    from rpml.runtime.errors import ModelFormatError

    try:
        return container_kind(path)
    except ModelFormatError as error:
        if Path(path).suffix in (".rpml", ".index"):
            raise
        raise ModelFormatError(
            f"{error}: it is neither a model nor an index; vectors are read from "
            f"{', '.join(SUFFIXES)}"
        ) from None


def _text(name: str, value: Any) -> str:
    """Format a field; settings as --set takes them."""
    match name, value:
        case "arrays", dict():
            return "\n".join(
                f"{a['share']:6.1%}  {array}, {' x '.join(map(str, a['shape']))} {a['dtype']}"
                for array, a in value.items()
            )
        case "settings", dict():
            return fill(", ".join(f"{key}={setting}" for key, setting in value.items()), _WIDTH)
        case "decisions", dict():
            return "\n".join(fill(f"{key}: {reason}", _WIDTH) for key, reason in value.items())
        case _, dict():
            parts = (f"{key.replace('_', ' ')} {_text(key, part)}" for key, part in value.items())
            return fill(", ".join(parts), _WIDTH)
        case _, list():
            more = f", ... ({len(value)})" if len(value) > 8 else ""
            return ", ".join(map(str, value[:8])) + more
    return shown(value)


def inspect_features(path: str, reading: ReadingOptions) -> dict[str, object]:
    """Describe shape, names and problems of a file; bad values are counted, not rejected."""
    from rpml.io.features.source import file_statistics

    source = reading.open(path)
    statistics = file_statistics(source)
    return {
        "kind": "features",
        "path": path,
        "rows": statistics.pop("rows"),
        "features": source.n_features,
        "dtype": str(source.dtype),
        "ids": source.id_name if source.has_ids else None,
        "feature_names": list(source.feature_names or []),
        **statistics,
    }
