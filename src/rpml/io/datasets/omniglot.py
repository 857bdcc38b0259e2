"""The handwritten characters that ship with the package (part of Omniglot, MIT license)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.io.datasets import read_packaged

SIDE = 28
TRAINING = ("Armenian", "Asomtavruli", "Balinese", "Bengali", "Blackfoot")


@dataclass(frozen=True)
class Drawings:
    """Drawings of characters, 20 of each."""

    images: NDArray[np.bool_]
    """(n_samples, 28, 28): True where there is ink."""
    character: NDArray[np.int64]
    """Which character it is: the class."""
    alphabet: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.images)


def load_drawings() -> tuple[Drawings, Drawings]:
    """Return the drawings to learn from and those to score on, which are of other alphabets."""
    stored = read_packaged("omniglot_demo.npz")
    bits = np.unpackbits(stored["images"], axis=1)
    images = bits.reshape(-1, SIDE, SIDE).astype(bool)
    character = stored["character"].astype(np.int64)
    alphabet = stored["alphabets"][stored["alphabet"]]
    seen = np.isin(alphabet, TRAINING)
    train, test = (Drawings(images[m], character[m], alphabet[m]) for m in (seen, ~seen))
    return train, test
