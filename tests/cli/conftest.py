import json

import numpy as np
import pytest
from typer.testing import CliRunner

from rpml.cli.app import app
from tests.cli.json_schema import check_fields


class Run:
    """The program in this process: exit code, output, errors."""

    def __init__(self):
        self.runner = CliRunner()

    def __call__(self, *args, code=0, **options):
        result = self.runner.invoke(app, [str(a) for a in args], **options)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.stderr
        return result

    def json(self, *args, code=0):
        """The object on standard output, which is as docs/json*.md say."""
        quiet = () if args[0] == "--version" else ("--quiet",)
        fields = json.loads(self(*args, "--json", *quiet, code=code).stdout)
        if code in (0, 3):
            variant = next((v for v in ("--dry-run", "--verbose") if v in args), None)
            check_fields(f"{args[0]} {variant}" if variant else str(args[0]), fields)
        return fields

    def refused(self, *args, code=2):
        """The one sentence on standard error."""
        result = self(*args, code=code)
        assert result.stdout == ""
        lines = result.stderr.strip().splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("rpml: ")
        return lines[0]


@pytest.fixture(scope="session")
def rpml():
    return Run()


def make_vectors(n=240, d=12, classes=8, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    centers = rng.normal(size=(classes, d))
    return (centers[y] + 0.4 * rng.normal(size=(n, d))).astype(np.float32), y


@pytest.fixture(scope="session")
def vectors():
    return make_vectors()


@pytest.fixture(scope="session")
def shared(tmp_path_factory, rpml, vectors):
    """A folder with features, labels and a fitted model, which no test changes."""
    folder = tmp_path_factory.mktemp("shared")
    X, y = vectors
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", y)
    rpml("fit", folder / "x.npy", "-o", folder / "model.rpml", "--dim", 4, "--neighbors", 10,
         "--keep-exemplars")  # fmt: skip
    return folder
