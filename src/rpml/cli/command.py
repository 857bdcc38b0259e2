"""What all commands share: options such as --config run.toml, results, errors and exit codes.

Results go to standard output, everything else to standard error. The command line takes precedence
over the file of --config.
"""

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from errno import ELOOP, ENAMETOOLONG, ENOTDIR, EROFS
from functools import partial, wraps
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

import typer
from typer.core import TyperGroup

from rpml.cli import options as opt
from rpml.cli.console import SHOWN, Reporter, fields_text, say
from rpml.cli.options import OPTION_OF, expand_groups, option_of
from rpml.runtime.errors import InputError, WriteError, one_line, reason_of

_LONGEST_WORD, _LONGEST = 160, 2000  # characters of a message
FAILED, BAD_INPUT, SKIPPED, INTERRUPTED = 1, 2, 3, 130  # exit codes; SKIPPED is of `features`


# ValueError is the library's error for a wrong argument, or an input
_BAD_INPUT = (ValueError, PermissionError, FileNotFoundError, FileExistsError, IsADirectoryError)
_WORDS = {
    "an instance of 'bool' or an instance of 'numpy.bool'": "true or false",
    "(,| or) an? (instance of|object|array)[^,]*?(?=$|,| or)": "",
    "an int ": "an integer ",
    "a float ": "a number ",
    "None": "none",
}
"""What scikit-learn calls the values of a setting, as a regular expression, and what we do."""
_BAD_PATH = (ENAMETOOLONG, ELOOP, ENOTDIR, EROFS)


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
    for key, value in _own_settings(path, context).items():
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


def _own_settings(path: str, context: typer.Context) -> dict[str, object]:
    """Return the settings of this command: those at the top of the file and in its own table."""
    from rpml.runtime.schema import read_document

    try:
        document: dict[str, object] = read_document(Path(path))
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason_of(error)}") from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}") from error
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
        return Reporter(self.quiet)

    def note(self, text: str) -> None:
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

    def result(self, fields: Mapping[str, object], text: str | Mapping[str, object]) -> None:
        """Print the result: the fields as JSON, or text, which may be fields by their titles."""
        if self.json_output:
            from rpml.runtime.schema import finite_json

            content = finite_json({**fields, "warnings": SHOWN})
            typer.echo(json.dumps(content, default=str, allow_nan=False))
        elif text:
            say(text if isinstance(text, str) else fields_text(text))


class Interrupted(Exception):
    """Ctrl-C was handled; the message says how to continue."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Expand the option groups; turn exceptions into one sentence and an exit code."""
    function = expand_groups(function)

    @wraps(function)
    def run(**options: Any) -> None:
        SHOWN.clear()
        if (threads := options.get("threads")) is not None:  # before numpy is imported
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
                os.environ[name] = str(threads)
        try:
            with warnings.catch_warnings():
                warnings.showwarning = partial(_show_warning, bool(options.get("quiet")))
                if options.get("output") == "":  # which would be this folder
                    raise InputError("--output is empty: give the name of a file")
                function(**options)
        except (typer.Exit, typer.Abort):
            raise
        except BaseException as error:
            if os.environ.get("RPML_DEBUG") and not isinstance(error, SystemExit):
                raise
            code = exit_code(error)
            if code is None:
                raise
            fail(sentence(error), code, bool(options.get("json_output")))

    return run


class Commands(TyperGroup):
    """Finds and runs the command; with --json usage errors are an object, too."""

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **more: Any) -> Any:
        with _usage_errors("--json" in args):
            return super().make_context(info_name, args, *rest, **more)

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors("--json" in ctx.args):
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in the groups of `rpml.cli.app`."""
        groups: dict[str, list[tuple[str, str]]] = {}
        width = max(map(len, self.commands))
        for name, command in self.commands.items():
            row = (name.ljust(width), command.get_short_help_str(formatter.width - width - 6))
            groups.setdefault(str(getattr(command, "rich_help_panel", "")), []).append(row)
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


@contextmanager
def _usage_errors(as_json: bool) -> Iterator[None]:
    """Print usage errors of the block as an object, before typer prints them as text."""
    try:
        yield
    except InputError as error:  # from --config; without the usage that other errors print
        fail(sentence(error), BAD_INPUT, as_json)
    except Exception as error:
        # usage errors have no public base class, but all have a message
        if hasattr(error, "format_message") and type(error).__name__ != "NoArgsIsHelpError":
            vars(error)["message"] = in_shell_words(vars(error)["message"])
            if getattr(getattr(error, "param", None), "nargs", 1) == -1:  # takes all but the last
                vars(error)["message"] = "Give one or two models and then FEATURES"
                vars(error)["param_hint"] = "'FEATURES'"
            if as_json:
                _echo_error(one_line(error.format_message()), BAD_INPUT)
        raise


def exit_code(error: BaseException) -> int | None:
    """Return the exit code of an exception, or None if it should be raised as it is."""
    if isinstance(error, Interrupted) or _is_interrupt(error):
        return INTERRUPTED
    if isinstance(error, WriteError) or type(error).__name__ == "LinAlgError":
        return FAILED
    if isinstance(error, BrokenPipeError | SystemExit | GeneratorExit):
        return None
    if isinstance(error, _BAD_INPUT) or getattr(error, "errno", None) in _BAD_PATH:
        return BAD_INPUT
    if _is_of_stdout(error):
        return BAD_INPUT
    return FAILED if isinstance(error, Exception) else None


def _is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C, which numba loses while it compiles."""
    lost = isinstance(error, RuntimeError) and "no compiled object yet" in str(error)
    return lost or isinstance(error, KeyboardInterrupt)


def sentence(error: BaseException) -> str:
    if _is_interrupt(error):
        return "interrupted"
    if isinstance(error, MemoryError):
        return f"not enough memory: {one_line(error)}".rstrip(": ")
    if isinstance(error, WriteError):
        return one_line(error.strerror or error)
    if isinstance(error, FileNotFoundError) and not error.filename:  # only the current folder
        return "the current folder has been deleted: change to another one"
    if isinstance(error, OSError) and error.filename:
        return one_line(f"{error.filename}: {reason_of(error)}")
    if _is_of_stdout(error):
        return f"cannot write to standard output: {error.strerror}"
    text = one_line(error)
    explained = isinstance(error, ValueError) or type(error).__module__.startswith("rpml.")
    if explained and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def in_shell_words(text: str) -> str:
    """Replace words of the Python interface by options, and shorten what a message repeats."""
    text = re.sub(r"The '(\w+)' parameter of \w+ must be (.*)\. Got (.*) instead\.", _wrong, text)
    for python, option in OPTION_OF.items():
        text = re.sub(rf"(?<!--set )\b{python}=(?=[^\s,;:])", f"{option} ", text)
        text = re.sub(rf"(?<!--set )\b{python}\b", option, text)
    few = r"the vectors have \1 of the \2 rows that are needed at least"
    text = re.sub(r"Found array with (\d+) sample.* a minimum of (\d+) is required.*", few, text)
    text = re.sub(r" \((?:in Python [^()]*|(?:overwrite|exemplars)=True)\)", "", text)
    text = text.replace("overwrite=True", "--force").replace(" of X", " of the vectors")
    text = re.sub(r"(?<!--set )\b([a-z_]+)=('[^'\s]*'|None|True|False)", _setting, text)
    text = re.sub(rf"\S{{{_LONGEST_WORD},}}", lambda m: f"{m[0][:60]}...{m[0][-20:]}", text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _wrong(match: re.Match[str]) -> str:
    """Reword scikit-learn's error for a wrong setting."""
    allowed = re.sub(
        r"a str among \{(.*?)\}",
        lambda names: f"one of {', '.join(sorted(names[1].replace(chr(39), '').split(', ')))}",
        match[2],
    )
    for python, words in _WORDS.items():
        allowed = re.sub(python, words, allowed)
    return f"{option_of(match[1])} must be {allowed}, got {match[3]}"


def _setting(match: re.Match[str]) -> str:
    option, value = option_of(match[1]), match[2].strip("'").lower()
    return f"{option}={value}" if option.startswith("--set") else f"{option} {value}"


def _is_of_stdout(error: BaseException) -> TypeGuard[OSError]:
    """Whether a write to standard output failed; errors of files have a file name."""
    return isinstance(error, OSError) and error.strerror is not None and error.filename is None


def fail(message: str, code: int, as_json: bool = False) -> NoReturn:
    """Print the message, with --json also an object on standard output, and exit."""
    message = in_shell_words(message)
    say(f"rpml: {message}", err=True)
    try:
        if as_json:
            _echo_error(message, code)
        sys.stdout.flush()
    except OSError:  # a full disk, which may be the error to report
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise typer.Exit(code)


def _echo_error(message: str, code: int) -> None:
    typer.echo(json.dumps({"error": message, "exit_code": code}))


def _show_warning(quiet: bool, message: object, category: type[Warning], *where: object) -> None:
    text = in_shell_words(one_line(message))
    SHOWN.append(text)
    if not quiet and issubclass(category, UserWarning):
        say(f"rpml: warning: {text}", err=True)
