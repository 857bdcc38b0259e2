"""--config run.toml: options of a command from a file; the command line takes precedence."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

import typer

from rpml.runtime.errors import InputError
from rpml.runtime.wording import reason_of

_NOT_IN_FILES = {"config", "help"}


def load_config(context: typer.Context, value: str | None) -> str | None:
    """Typer callback: use the file's values as the defaults of the command's options."""
    if value is None or context.resilient_parsing:
        return value
    settings = settings_of(read_config(value), context)
    context.default_map = {"json_output": settings.get("json") is True}  # how errors are printed
    context.default_map = options_of(settings, context, value)
    return value


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


def settings_of(document: dict[str, object], context: typer.Context) -> dict[str, object]:
    """Return the settings of this command: those at the top and those in its own table."""
    tables = set(getattr(context.parent and context.parent.command, "commands", {}))
    plain = {k: v for k, v in document.items() if k not in tables or not isinstance(v, dict)}
    own = document.get(str(context.info_name), {})
    return {**plain, **(own if isinstance(own, dict) else {})}


def options_of(settings: dict[str, object], context: typer.Context, path: str) -> dict[str, object]:
    """Return the settings by parameter name, checked as on the command line."""
    names = _names(context)
    parameters = {parameter.name: parameter for parameter in context.command.params}
    values = {}
    for key, value in settings.items():
        name = names.get(key.replace("_", "-"))
        if name is None:
            hint = did_you_mean(key, names)
            raise InputError(f"{path}: {context.info_name} has no option {key!r}{hint}")
        values[name] = _as_option(value)
        try:
            parameters[name].process_value(context, values[name])
        except typer.BadParameter as error:
            raise InputError(f"{path}: {error.format_message()}") from error
    return values


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of an error message that suggests a similar name, if there is one."""
    close = get_close_matches(name, list(names), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _names(context: typer.Context) -> dict[str, str]:
    """Map long option names and argument names to parameter names."""
    names: dict[str, str] = {}
    for parameter in context.command.params:
        if parameter.name is None or parameter.name in _NOT_IN_FILES:
            continue
        names[parameter.name.replace("_", "-")] = parameter.name
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option.startswith("--") and option.removeprefix("--") not in _NOT_IN_FILES:
                names[option.removeprefix("--")] = parameter.name
    return names


def _as_option(value: object) -> object:
    """Convert a table to NAME=VALUE pairs, as --set takes them."""
    if not isinstance(value, dict):
        return value
    return [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in value.items()]
