"""rpml demo: learn an embedding without labels, print the table, write the picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console

EXAMPLES = """\b
Examples:
  rpml demo -o demo-output
"""


@command
def run(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="Where the picture goes.")
    ] = "demo-output",
    seed: opt.Seed = 0,
    threads: opt.Threads = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Learn from handwritten characters that nobody labelled; score on alphabets never seen."""
    opt.use_threads(threads)
    from rpml.pages import demo

    console = Console(quiet, json_output)
    result = demo.run(Path(output), seed, console.note)
    console.result(result.fields(), demo.text(result, sys.stdout.isatty()))
