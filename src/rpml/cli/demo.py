"""rpml demo: learn an embedding without labels, print the table, write the figure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console

EXAMPLES = """\b
Examples:
  rpml demo -o demo-output
"""


@command
def run(
    output: Annotated[str, opt.output("FOLDER", "Folder for the figure.")] = "demo-output",
    seed: opt.Seed = 0,
    *,
    console: Console,
) -> None:
    """Learn from unlabelled handwritten characters; score on alphabets never seen."""
    from rpml.pages import demo

    result = demo.run(Path(output), seed, console.note)
    console.result(result.fields(), demo.text(result, sys.stdout.isatty()))
