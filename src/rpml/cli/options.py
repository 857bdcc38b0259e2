"""Options that several commands share, declared once."""

from __future__ import annotations

import os
import re
import tomllib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpml.cli.config import load_config
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from rpml.io.features import ReadOptions

KINDS = ".npy, .npz, .parquet, .csv, .tsv, a folder of these, or - for standard input"

Features = Annotated[str, typer.Argument(metavar="FEATURES", help=f"Vectors: {KINDS}.")]
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="A model written by rpml fit.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but the result and errors.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        callback=load_config,
        is_eager=True,
        help="TOML file with any of these options.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="Feature columns of a table, by comma; * stands for any."),
]
IdColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column (or array) with the ids.")
]
ArrayName = Annotated[
    str | None, typer.Option("--array", metavar="NAME", help="Which array of an .npz file.")
]
LabelColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column (or array) with the labels.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads to use; all cores if not given.")]


def read_options(
    columns: str | None, id_column: str | None, array: str | None, exclude: tuple[str, ...] = ()
) -> ReadOptions:
    """The reading options of a command line."""
    from rpml.io.features import ReadOptions

    names = tuple(c.strip() for c in columns.split(",")) if columns else None
    return ReadOptions(columns=names, id_column=id_column, array=array, exclude=exclude)


def use_threads(count: int | None) -> None:
    """Bound the threads of BLAS and of our kernels; must run before numpy is imported."""
    if count is not None:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(count)


def parse_size(text: str | None, option: str) -> int | None:
    """800MB or 4GB in bytes."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if found is None:
        raise InputError(f"{option} must be a size such as 800MB or 4GB, got {text!r}")
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2] or " "))


def parse_settings(pairs: list[str], known: dict[str, Any], option: str) -> dict[str, Any]:
    """name=value pairs as settings, with the value's type as in TOML (text needs no quotes)."""
    settings = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise InputError(f"{option} takes NAME=VALUE, got {pair!r}")
        if name not in known:
            close = get_close_matches(name, list(known), n=1)
            hint = f", did you mean {close[0]!r}?" if close else ""
            raise InputError(f"{option} {pair}: there is no setting {name!r}{hint}")
        settings[name] = _value(text.strip())
    return settings


def _value(text: str) -> Any:
    if text.lower() in ("none", "null"):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
