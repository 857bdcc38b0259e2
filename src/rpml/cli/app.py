"""The `rpml` program: its commands, each in a file of its own."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rpml.cli import cluster, demo, doctor, embed, evaluate, export, features, fit, inspect
from rpml.cli.command import INTERRUPTED

app = typer.Typer(
    name="rpml",
    help="Learn a better, smaller embedding from vectors that nobody labelled.",
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
    "Exit codes: 0 done, 1 the method failed, 2 wrong usage or bad input, 130 interrupted."
)
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Learn a better, smaller embedding from vectors that nobody labelled."""


for module in (features, fit, embed, cluster, evaluate, inspect, export, demo, doctor):
    name = module.__name__.rpartition(".")[2]
    app.command(name, epilog=module.EXAMPLES)(module.run)


def main() -> None:
    """Entry point of the installed program."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
