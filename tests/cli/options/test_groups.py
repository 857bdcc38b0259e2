"""Option groups: dataclasses expanded into the options of a command."""

from dataclasses import dataclass
from inspect import signature
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from rpml.cli.command import expand_groups


@dataclass(frozen=True)
class Output:
    output: Annotated[str, typer.Option("--output", "-o")]
    force: Annotated[bool, typer.Option("--force")] = False


@dataclass(frozen=True)
class Named(Output):
    name: Annotated[str | None, typer.Option()] = None


@pytest.fixture
def call():
    """Run a command of one argument and two groups; returns what it received."""
    received = []

    @expand_groups
    def run(path: str, count: Annotated[int, typer.Option()] = 3, *, target: Named) -> None:
        received.append((path, count, target))

    app = typer.Typer()
    app.command()(run)

    def invoke(*args, code=0):
        result = CliRunner().invoke(app, list(args))
        assert result.exit_code == code, result.output
        return received.pop() if received else result.output

    return invoke


def test_the_function_receives_the_dataclass(call):
    assert call("x.npy", "-o", "y.npy") == ("x.npy", 3, Named("y.npy"))
    line = ("--name", "z", "x.npy", "--force", "--count", "4", "-o", "y.npy")
    assert call(*line) == ("x.npy", 4, Named("y.npy", True, "z"))


def test_a_field_without_default_is_required(call):
    assert "--output" in call("x.npy", code=2)


def test_options_stand_where_the_group_stood():
    def run(first: str, target: Named, last: int = 0) -> None: ...

    expanded = signature(expand_groups(run)).parameters
    assert list(expanded) == ["first", "output", "force", "name", "last"]
    assert expanded["force"].default is False
