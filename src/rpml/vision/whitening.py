"""PCA whitening of descriptors, learned on a training split and stored next to the features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rpml.io.features.numpy_files import NpzFile
from rpml.method.whitening.linear_map import Preprocessing, principal_axes, whitening
from rpml.runtime.errors import InputError
from rpml.runtime.files.atomic import atomic_output
from rpml.runtime.rows import Array
from rpml.runtime.wording import counted


@dataclass(frozen=True)
class DescriptorWhitening:
    """x -> l2((l2(x) - mean) @ matrix)."""

    mean: Array
    matrix: Array

    @classmethod
    def learn(cls, X: Array, dimension: int | None = None) -> DescriptorWhitening:
        """Fit a whitening to `dimension` leading principal axes; None keeps all that vary."""
        spectrum = principal_axes(X, unit_input=True, center=True)
        available = len(spectrum.variances)
        dimension = available if dimension is None else dimension
        if not 1 <= dimension <= available:
            raise InputError(
                f"cannot whiten to {counted(dimension, 'dimension')}: the {len(X)} training "
                f"vectors vary in {counted(available, 'direction')}"
            )
        fitted = whitening(spectrum, 1.0, dimension, unit_input=True, unit_output=True)
        return cls(fitted.mean.astype(np.float32), fitted.matrix.astype(np.float32))

    def apply(self, X: Array) -> Array:
        """Return the whitened unit rows."""
        if X.shape[1] != len(self.mean):
            raise InputError(
                f"the whitening is for vectors of {counted(len(self.mean), 'dimension')}, "
                f"these have {X.shape[1]}"
            )
        return Preprocessing(True, self.mean, self.matrix, True).apply(X)

    def save(self, path: str | Path) -> None:
        """Write the two arrays to an .npz file."""
        with atomic_output(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, mean=self.mean, matrix=self.matrix)

    @classmethod
    def load(cls, path: str | Path) -> DescriptorWhitening:
        """Read what `save` wrote."""
        path = Path(path)
        if not path.is_file():
            raise InputError(f"cannot read the whitening {path}: there is no such file")
        archive = NpzFile(path)
        mean, matrix = archive.read("mean"), archive.read("matrix")
        if matrix.ndim != 2 or mean.shape != matrix.shape[:1]:
            raise InputError(f"{path} is not a whitening: its arrays do not fit together")
        return cls(mean, matrix)
