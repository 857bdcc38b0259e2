"""Pooling of a feature map to one vector (R-MAC, MAC, average, GeM), and PCA whitening of them."""

import math
from functools import lru_cache
from pathlib import Path

import numpy as np

from rpml.io.features.numpy_files import NpzFile
from rpml.io.manifest import check_written_together
from rpml.method.whitening.linear_map import Preprocessing, principal_axes, whitening
from rpml.runtime.errors import InputError, counted
from rpml.runtime.rows import Array, unit_rows

KINDS = ("rmac", "mac", "average", "gem")
GEM_POWER = 3.0
OVERLAP = 0.4  # target overlap of neighboring regions along the longer side
_STEPS = range(2, 8)  # regions along the longer side
Level = tuple[int, tuple[int, ...], tuple[int, ...]]


@lru_cache(maxsize=4096)
def rmac_regions(height: int, width: int, levels: int = 3) -> tuple[Level, ...]:
    """Return the regions of Tolias, Sicre and Jegou, "Particular object retrieval" (ICLR 2016).

    At level l the regions are floor(2 min(height, width) / (l + 1)) wide, l along the shorter
    side and l + m - 1 along the longer one, where m regions of the first level overlap by about
    40%. A level whose width is 0 on a thin map is omitted. Each level is (width, first rows, first
    columns): its regions are squares at every combination of them.
    """
    shorter = min(height, width)
    extra = _extra_regions(shorter, max(height, width))
    grids = []
    for level in range(1, levels + 1):
        side = 2 * shorter // (level + 1)
        if side:
            rows = _starts(height, side, level + (extra if height > width else 0))
            columns = _starts(width, side, level + (extra if width > height else 0))
            grids.append((side, rows, columns))
    return tuple(grids)


def _extra_regions(shorter: int, longer: int) -> int:
    """Return m - 1 of the paper: additional first-level regions along the longer side."""
    if shorter == longer:
        return 0
    area = shorter**2
    gaps = [abs((area - shorter * ((longer - shorter) / (m - 1))) / area - OVERLAP) for m in _STEPS]
    return 1 + gaps.index(min(gaps))  # the first on a tie, as in the published code


def _starts(length: int, side: int, count: int) -> tuple[int, ...]:
    """Return the first indices of `count` regions whose centers are spread evenly over a side."""
    half = math.floor(side / 2 - 1)
    step = (length - side) / (count - 1) if count > 1 else 0.0
    return tuple(math.floor(half + i * step) - half for i in range(count))


def learn_whitening(X: Array, dimension: int) -> Preprocessing:
    """Fit x -> l2((l2(x) - mean) @ matrix) on the leading axes."""
    spectrum = principal_axes(X, unit_input=True)
    available = len(spectrum.variances)
    if not 1 <= dimension <= available:
        raise InputError(
            f"cannot whiten to {counted(dimension, 'dimension')}: the {len(X)} training "
            f"vectors vary in {counted(available, 'direction')}"
        )
    fitted = whitening(spectrum, 1.0, dimension, unit_input=True, unit_output=True)
    mean, matrix = (array.astype(np.float32) for array in (fitted.mean, fitted.matrix))
    return Preprocessing(True, mean, matrix, True)


def whiten(X: Array, learned: Preprocessing) -> Array:
    """Return the whitened unit rows; InputError if they have another size."""
    if X.shape[1] != len(learned.mean):
        raise InputError(
            f"the whitening is for vectors of {counted(len(learned.mean), 'dimension')}, "
            f"these have {X.shape[1]}"
        )
    return learned.apply(X)


def save_whitening(learned: Preprocessing, path: Path) -> None:
    """Write the mean and the matrix to an .npz file."""
    with open(path, "wb") as file:
        np.savez(file, mean=learned.mean, matrix=learned.matrix)


def load_whitening(path: str | Path) -> Preprocessing:
    """Read what `save_whitening` wrote."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"cannot read the whitening {path}: there is no such file")
    check_written_together(path)
    archive = NpzFile(path)
    mean, matrix = archive.read("mean"), archive.read("matrix")
    if matrix.ndim != 2 or mean.shape != matrix.shape[:1]:
        raise InputError(f"{path} is not a whitening: its arrays do not fit together")
    return Preprocessing(True, mean, matrix, True)


def pool_maps(maps: Array, kind: str = "rmac") -> Array:
    """Pool maps (n, height, width, channels) to unit rows (n, channels).

    "rmac" sums the unit vectors of regional maxima; the others are the maximum ("mac"), mean
    ("average") or generalized mean ("gem") over the whole map.
    """
    if kind == "rmac":
        return unit_rows(rmac_vectors(maps).sum(axis=1))
    if kind == "mac":
        return unit_rows(maps.max(axis=(1, 2)))
    if kind == "average":
        return unit_rows(maps.mean(axis=(1, 2)))
    # the maximum divides first, so that no power overflows
    top = np.maximum(maps.max(axis=(1, 2), keepdims=True), 1e-6)
    power = np.mean((np.maximum(maps, 0) / top) ** GEM_POWER, axis=(1, 2))
    return unit_rows(top[:, 0, 0] * power ** (1 / GEM_POWER))


def rmac_vectors(maps: Array) -> Array:
    """Return the unit vectors of the R-MAC regions, (n, n_regions, channels)."""
    n, height, width, _ = maps.shape
    maxima = []
    for side, rows, columns in rmac_regions(height, width):
        for j in columns:
            # columns first, then rows: a region costs its side, not its area
            strip = maps[:, :, j : j + side].max(axis=2)
            maxima += [strip[:, i : i + side].max(axis=1) for i in rows]
    stacked = np.stack(maxima, axis=1)
    return unit_rows(stacked.reshape(-1, stacked.shape[-1])).reshape(n, len(maxima), -1)
