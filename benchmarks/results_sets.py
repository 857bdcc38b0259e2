"""The feature sets behind docs/results.md, as every results_*.py reads them.

A set is an .npz file with features (`X`, or the first other matrix), classes `y` and a boolean
`train`: learn on those rows without classes, score on the others, whose classes are new.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS
from numpy.typing import NDArray

from rpml.evaluation.comparison import Split, make_split

CELLS = RESULTS / "cells"
DIMS = (32, 64, 128)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class FeatureSet:
    """Rows of one file, split by class."""

    name: str
    X: NDArray[np.float32]
    y: NDArray[np.integer]
    train: NDArray[np.bool_]

    @property
    def split(self) -> Split:
        return make_split(self.X, self.y, self.train)


def parser(what: str) -> argparse.ArgumentParser:
    """A command line with the arguments every script takes."""
    arguments = argparse.ArgumentParser(description=what)
    arguments.add_argument("--data", type=Path, required=True, help="folder of .npz files")
    arguments.add_argument("--sets", default="", help="names of sets, by comma; all if not given")
    return arguments


def feature_sets(folder: Path, names: str = "") -> Iterator[FeatureSet]:
    """Every file with classes and a split, smallest first."""
    wanted = [name for name in names.split(",") if name]
    for path in sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_size):
        if wanted and path.stem not in wanted:
            continue
        with np.load(path, allow_pickle=False) as file:
            if not {"y", "train"} <= set(file.files):
                continue
            key = "X" if "X" in file.files else _matrix(file)
            X = file[key].astype(np.float32)
            yield FeatureSet(path.stem, X, file["y"], file["train"].astype(bool))


def _matrix(file: np.lib.npyio.NpzFile) -> str:
    n = len(file["y"])
    return next(key for key in file.files if file[key].ndim == 2 and len(file[key]) == n)


def set_gains(rows: list[dict[str, Any]], use: str) -> tuple[NDArray[np.float64], str]:
    """Mean gain in points per set, and the lowest with its set in words."""
    names = sorted({row["set"] for row in rows})
    own = [[row[use] for row in rows if row["set"] == name] for name in names]
    gains = np.array([100 * np.mean(values) for values in own])
    return gains, f"{gains.min():+.1f} ({names[gains.argmin()]})"


def commit() -> str:
    """The source the figures come from, with a mark if it was changed since."""
    run = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(run, capture_output=True, text=True, check=False).stdout.strip()
