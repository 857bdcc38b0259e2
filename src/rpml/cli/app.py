"""The `rpml` program and its commands."""

import os
import signal
import sys
from importlib import import_module
from typing import Any

import typer

from rpml.cli import options as opt
from rpml.cli.command import INTERRUPTED, Commands, Console
from rpml.cli.console import answering
from rpml.runtime.errors import text_table

GROUPS = {
    "Learn": ("fit", "update", "recommend"),
    "Use": ("embed", "export", "bridge"),
    "Search": ("index", "search"),
    "Look": ("report", "explore", "inspect", "cluster"),
    "Measure": ("evaluate", "compare"),
    "Weak labels": ("suggest",),
    "Images": ("features", "finetune"),
    "Paper": ("benchmark", "figures", "demo"),
}
"""The commands as the help shows them; each is a module of `rpml.cli.commands`."""

app = typer.Typer(
    name="rpml",
    cls=Commands,
    help="Learn a smaller linear embedding from unlabeled vectors.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help is instant and reads well in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(
    invoke_without_command=True,
    epilog="\b\nA first run:\n  rpml recommend vectors.npy\n  rpml fit vectors.npy -o model.rpml\n"
    "  rpml embed model.rpml vectors.npy -o small.npy\n\n"
    "Exit codes: 0 done, 1 the method failed, 2 wrong usage or bad input, "
    "3 finished but images were skipped (rpml features), 130 interrupted.",
)
def _root(
    context: typer.Context,
    version: bool = opt.flag("Print the version.", "--version"),
    verbose: bool = opt.flag("With --version: also extras, libraries, machine.", "--verbose"),
    json_output: bool = opt.flag("With --version --verbose: as one JSON object.", "--json"),
) -> None:
    """Learn a smaller linear embedding from unlabeled vectors."""
    if context.invoked_subcommand is not None:
        return
    if not version:
        context.fail("Missing command.")
    if verbose:
        from rpml.runtime.environment import describe_environment

        fields = describe_environment()
        Console(json_output=json_output).result(fields, environment_text(fields))
    else:
        import rpml

        typer.echo(f"rpml {rpml.__version__}")


def environment_text(fields: dict[str, Any]) -> str:
    rows = [("rpml", fields["rpml"]), ("python", fields["python"]), *fields["packages"].items()]
    rows += [("cores, threads", f"{fields['cores']}, {fields['threads']}")]
    rows += [("memory", f"{fields['memory_gb']} GB"), ("blas", "; ".join(fields["blas"]))]
    versions = [(name, value or "missing") for name, value in rows]
    extras = [
        (name, extra["install"] or "present", extra["purpose"])
        for name, extra in fields["extras"].items()
    ]
    tables = (versions, [("extra", "state", "for"), *extras])
    return "\n\n".join(text_table(rows, "left") for rows in tables)


for group, names in GROUPS.items():
    for name in names:
        module = import_module(f"rpml.cli.commands.{name}")
        examples = f"\b\nExamples:{module.EXAMPLES}"
        app.command(name, epilog=examples, rich_help_panel=group)(module.run)


def main() -> None:
    # streams that the caller has closed are replaced, or the next open file would be one of them
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (until the program ends)
    try:
        with answering(signal.default_int_handler):
            app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
