"""Readers of image benchmarks, and the data of the demos."""

from importlib.resources import files

import numpy as np

from rpml.runtime.context import Arrays


def read_packaged(name: str) -> Arrays:
    """Load the arrays of an .npz file that ships with the package."""
    with (
        (files("rpml.io.datasets") / name).open("rb") as file,
        np.load(file, allow_pickle=False) as stored,
    ):
        return dict(stored)
