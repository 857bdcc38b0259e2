"""The options of every command: --config run.toml, and the output on the terminal.

Results go to standard output, everything else to standard error. The command line takes precedence
over the file of --config.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import typer

from rpml.cli import options as opt
from rpml.cli.progress import BarReporter, LineReporter, Reporter
from rpml.runtime.errors import InputError
from rpml.runtime.wording import reason_of, text_table

_CONTROL = re.compile(
    r"\x1b(?!\[[\d;]*m)"  # escape sequences other than colors
    "|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def say(text: str, err: bool = False) -> None:
    """Print text, which may come from a file, with control characters escaped."""
    escaped = _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
    typer.echo(escaped, err=err)


SHOWN: list[str] = []
"""The warnings of this run."""


def load_config(context: typer.Context, path: str | None) -> str | None:
    """Typer callback: use the file's values as the defaults of the command's options."""
    if path is None or context.resilient_parsing:
        return path
    parameters = {
        name.removeprefix("--"): parameter
        for parameter in context.command.params
        for name in (str(parameter.name).replace("_", "-"), *parameter.opts)
        if parameter.name not in ("config", "help")
    }
    values = {}
    for key, value in _own_settings(read_config(path), context).items():
        parameter = parameters.get(key.replace("_", "-"))
        if parameter is None:
            hint = opt.did_you_mean(key, parameters)
            raise InputError(f"{path}: {context.info_name} has no option {key!r}{hint}")
        values[str(parameter.name)] = _as_option(value)
        try:
            parameter.process_value(context, values[str(parameter.name)])
        except typer.BadParameter as error:
            raise InputError(f"{path}: {error.format_message()}") from error
    context.default_map = values
    return path


def read_config(path: str) -> dict[str, object]:
    """Read a TOML file; InputError if that fails."""
    from rpml.runtime.schema import read_toml

    try:
        return read_toml(Path(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason_of(error)}") from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}") from error


def _own_settings(document: dict[str, object], context: typer.Context) -> dict[str, object]:
    """Return the settings of this command: those at the top and those in its own table."""
    tables = set(getattr(context.parent and context.parent.command, "commands", {}))
    plain = {k: v for k, v in document.items() if k not in tables or not isinstance(v, dict)}
    own = document.get(str(context.info_name), {})
    return {**plain, **(own if isinstance(own, dict) else {})}


def _as_option(value: object) -> object:
    """Convert a table to NAME=VALUE pairs, as --set takes them."""
    if not isinstance(value, dict):
        return value
    return [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in value.items()]


@opt.option_group
class Console:
    """The options of every command, and its output: text, or JSON."""

    threads: int | None = opt.number("Number of threads; default: all cores.")
    config: str | None = typer.Option(
        None,
        metavar="FILE",
        callback=load_config,
        is_eager=True,
        help="TOML file that sets any of these options.",
    )
    quiet: bool = opt.flag("Print only the result and errors.", "--quiet", "-q")
    json_output: bool = opt.flag("Print the result as one JSON object.", "--json")

    def reporter(self) -> Reporter:
        """Return bars on a terminal, plain lines in a pipe, nothing with --quiet."""
        if self.quiet:
            return Reporter()
        return BarReporter() if sys.stderr.isatty() else LineReporter()

    def note(self, text: str) -> None:
        """Print a remark to standard error."""
        if not self.quiet:
            say(text, err=True)

    @contextmanager
    def following(self, logger: str) -> Iterator[None]:
        """Print what a logger of the library logs while the block runs."""
        import logging

        handler = logging.Handler()
        handler.emit = lambda record: self.note(record.getMessage())  # type: ignore[method-assign]
        source = logging.getLogger(logger)
        source.addHandler(handler)
        source.setLevel(logging.INFO)
        try:
            yield
        finally:
            source.removeHandler(handler)

    def result(self, fields: Mapping[str, object], text: str) -> None:
        """Print the result: the fields as JSON, or the text."""
        if self.json_output:
            from rpml.runtime.schema import finite_json

            def plain(value: object) -> object:
                return finite_json(value.tolist()) if hasattr(value, "tolist") else str(value)

            content = finite_json({**fields, "warnings": SHOWN})
            typer.echo(json.dumps(content, default=plain, allow_nan=False))
        elif text:
            say(text)


def fields_text(fields: Mapping[str, object]) -> str:
    """Format one aligned "name: value" line per field."""
    rows = ((f"{name.replace('_', ' ')}:", shown(value)) for name, value in fields.items())
    return text_table(rows, "left")


def shown(value: object) -> str:
    """Format a value: numbers are rounded and grouped, without Python words."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float) and abs(value) < 1e5:
        return f"{value:.5g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
