"""Handwritten characters that ship with the package (part of Omniglot, MIT license)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.io.datasets import read_packaged

SIDE = 28
TRAINING = ("Armenian", "Asomtavruli", "Balinese", "Bengali", "Blackfoot")


@dataclass(frozen=True)
class Drawings:
    """Drawings of characters, 20 per character."""

    images: NDArray[np.bool_]
    """(n_samples, 28, 28): True where there is ink."""
    character: NDArray[np.int64]
    """The class."""
    alphabet: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.images)


def load_drawings() -> tuple[Drawings, Drawings]:
    """Load the training and the test drawings, which are of different alphabets."""
    stored = read_packaged("omniglot_demo.npz")
    bits = np.unpackbits(stored["images"], axis=1)
    images = bits.reshape(-1, SIDE, SIDE).astype(bool)
    character = stored["character"].astype(np.int64)
    alphabet = stored["alphabets"][stored["alphabet"]]
    seen = np.isin(alphabet, TRAINING)
    train, test = (Drawings(images[m], character[m], alphabet[m]) for m in (seen, ~seen))
    return train, test
