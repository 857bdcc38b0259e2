"""Data the benchmarks are run on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mixture(
    n: int,
    d: int = 128,
    *,
    centers: int = 10_000,
    intrinsic: int = 16,
    seed: int = 0,
    out: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Rows of a Gaussian mixture of low intrinsic dimension in d dimensions, plus noise.

    Centres and the spread around them (0.3 of the centres' own) live in `intrinsic` dimensions,
    turned into d by a random orthonormal frame; noise of 0.05 a coordinate is added in all d.
    They are written to `out`, a memory map for instance, if it is given.
    """
    rng = np.random.default_rng(seed)
    frame = np.linalg.qr(rng.standard_normal((d, intrinsic)))[0].T.astype(np.float32)
    means = rng.standard_normal((centers, intrinsic), dtype=np.float32)
    X = np.empty((n, d), dtype=np.float32) if out is None else out
    for start in range(0, n, 65536):
        rows = slice(start, min(start + 65536, n))
        size = rows.stop - rows.start
        latent = means[rng.integers(0, centers, size)]
        latent = latent + 0.3 * rng.standard_normal((size, intrinsic), dtype=np.float32)
        X[rows] = latent @ frame
        X[rows] += 0.05 * rng.standard_normal((size, d), dtype=np.float32)
    return X
