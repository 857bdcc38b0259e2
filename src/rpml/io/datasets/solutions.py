"""Embeddings of programs that ship with the package (from neetcode-gh/leetcode, MIT license)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.io.datasets import read_packaged


@dataclass(frozen=True)
class Solutions:
    """Solutions of programming problems in up to twelve languages."""

    vectors: NDArray[np.float32]
    """(n_samples, 384): all-MiniLM-L6-v2 embeddings of the programs."""
    problem: NDArray[np.str_]
    """Name of the problem: the class."""
    language: NDArray[np.str_]
    """Name of the programming language, as of the source's folder."""
    titles: NDArray[np.float32]
    """(n_samples, 384): the same embeddings of the problems' titles, one per program."""

    def __len__(self) -> int:
        return len(self.vectors)


def load_solutions() -> tuple[Solutions, Solutions]:
    """Load the training and the test solutions, which are of different problems."""
    stored = read_packaged("solutions_demo.npz")
    vectors = stored["vectors"].astype(np.float32)
    problem = stored["problems"][stored["problem"]]
    language = stored["languages"][stored["language"]]
    titles = stored["titles"].astype(np.float32)[stored["problem"]]
    seen = stored["train"]
    train, test = (
        Solutions(vectors[part], problem[part], language[part], titles[part])
        for part in (seen, ~seen)
    )
    return train, test
