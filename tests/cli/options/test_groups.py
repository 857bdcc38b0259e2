"""Option groups: dataclasses expanded into the options of a command."""

from inspect import signature

import pytest
import typer
from typer.testing import CliRunner

from rpml.cli import options as opt
from rpml.cli.options import expand_groups


@opt.option_group
class Output:
    output: str = opt.output("OUT", "Where to write.")
    force: bool = opt.FORCE


@opt.option_group
class Named(Output):
    name: str | None = opt.text("NAME", "A name.")


@pytest.fixture
def call():
    """Run a command of one argument and two groups; returns what it received."""
    received = []

    @expand_groups
    def run(*, path: str, count: int = opt.number("A number.", default=3), target: Named) -> None:
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
    assert expanded["force"].default is opt.FORCE
