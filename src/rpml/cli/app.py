"""The `rpml` program and its commands."""

import os
import sys
from importlib import import_module
from typing import Annotated

import typer

from rpml.cli.command import INTERRUPTED, Commands, Parser
from rpml.cli.progress import answering, stop

COMMANDS = (
    "features",
    "finetune",
    "fit",
    "update",
    "suggest",
    "embed",
    "index",
    "search",
    "bridge",
    "cluster",
    "evaluate",
    "compare",
    "benchmark",
    "figures",
    "report",
    "explore",
    "inspect",
    "estimate",
    "export",
    "demo",
    "doctor",
)
"""In the order of the help; each is a module of `rpml.cli.commands` with `run` and `EXAMPLES`."""

app = typer.Typer(
    name="rpml",
    cls=Commands,
    help="Learn a smaller linear embedding from unlabeled vectors.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help is instant and reads well in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        import rpml

        typer.echo(f"rpml {rpml.__version__}")
        raise typer.Exit


@app.callback(
    epilog="\b\nA first run:\n  rpml fit vectors.npy -o model.rpml\n"
    "  rpml embed model.rpml vectors.npy -o small.npy\n\n"
    "Exit codes: 0 done, 1 the method failed, 2 wrong usage or bad input, "
    "3 finished but images were skipped (rpml features), 130 interrupted."
)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Learn a smaller linear embedding from unlabeled vectors."""


for name in COMMANDS:
    module = import_module(f"rpml.cli.commands.{name}")
    app.command(name, cls=Parser, epilog=module.EXAMPLES)(module.run)


def open_closed_streams() -> None:
    """Replace standard streams that the caller has closed, or the next open file would be one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the program ends)


def main() -> None:
    """Entry point of the installed program."""
    open_closed_streams()
    try:
        with answering(stop):
            app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
