"""Make the data of `rpml demo code`: programs, their problems and languages, and titles.

python scripts/solutions_data.py FOLDER [OUTPUT]

FOLDER has zoo/leetcode_problem_minilm.npz (programs, sorted by language, then by problem),
queries/leetcode_title_minilm.npz (titles of the problems) and nuisance/leetcode_minilm.npz (the
names of those problems). All are embeddings of neetcode-gh/leetcode, MIT license.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

OUTPUT = Path(__file__).parent.parent / "src/rpml/io/datasets/solutions_demo.npz"
LANGUAGES = (
    *("c", "cpp", "csharp", "go", "java", "javascript"),
    *("kotlin", "python", "ruby", "rust", "swift", "typescript"),
)


def as_bytes(X: np.ndarray) -> np.ndarray:
    """Return rows scaled to [-127, 127] and rounded: only their directions are used."""
    X = X.astype(np.float32)
    return np.round(127 * X / np.abs(X).max(axis=1, keepdims=True)).astype(np.int8)


def main(folder: Path, output: Path = OUTPUT) -> None:
    programs = np.load(folder / "zoo/leetcode_problem_minilm.npz")
    names = [name[5:] for name in programs["names"]]  # without the number of the problem
    language = np.cumsum(np.diff(programs["y"], prepend=0) < 0)  # problems begin again
    if language[-1] + 1 != len(LANGUAGES):
        raise SystemExit(f"expected {len(LANGUAGES)} languages, found {language[-1] + 1}")
    titled = np.load(folder / "nuisance/leetcode_minilm.npz")["names"]
    place = {name[5:].lower(): i for i, name in enumerate(titled)}
    titles = np.load(folder / "queries/leetcode_title_minilm.npz")["Q"]
    np.savez_compressed(
        output,
        vectors=as_bytes(programs["X"]),
        problem=programs["y"].astype(np.int16),
        language=language.astype(np.int8),
        train=programs["train"],
        problems=np.array(names),
        languages=np.array(LANGUAGES),
        titles=as_bytes(titles[[place[name.lower()] for name in names]]),
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
