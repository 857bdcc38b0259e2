"""Peak memory of a fit, and what a memory limit leaves for its working blocks."""

from dataclasses import dataclass

from rpml.runtime.threads import SUM_CHUNKS, thread_count
from rpml.runtime.wording import counted

WORKING_MEMORY = 512 * 2**20
BASE = 300 * 2**20  # the interpreter with numpy, scipy, scikit-learn and compiled kernels
MIN_BLOCKS = 16 * 2**20


@dataclass(frozen=True)
class Shape:
    """The figures that determine the size of a fit's arrays."""

    n: int
    d: int
    n_components: int
    n_neighbors: int
    n_triplets: int
    itemsize: int = 4
    """Bytes per element of X; half precision is computed in single precision."""
    mapped: bool = False
    """X is memory-mapped and takes no memory of its own."""
    n_read: int = 0
    """Rows of X, if the n rows are a sample of them."""
    n_axes: int = 0
    """Dimension of the preprocessed rows; 0 means d."""
    sample: int = 0
    """Array elements held while the whitening is chosen on a sample of the rows."""


def held(shape: Shape) -> int:
    """Return the peak bytes of everything but the working blocks of the search."""
    n, number = shape.n, max(4, shape.itemsize)
    n_read = max(n, shape.n_read)
    own = (0 if shape.mapped else n_read) + (n if n_read > n else 0)
    own *= shape.d * shape.itemsize  # X and its sample
    rows = n * (shape.n_axes or shape.d) * number  # the preprocessed rows
    neighbors = 8 * n * shape.n_neighbors  # indices and distances
    search = rows + 2 * neighbors
    # the graph in both directions, and a copy while they are merged
    graph = rows + neighbors + 26 * n * shape.n_neighbors
    moving = n * shape.n_components * number * (4 + min(thread_count(), SUM_CHUNKS))
    solver = rows + neighbors + moving + 60 * shape.n_triplets
    return BASE + own + max(4 * shape.sample, search, graph, solver)


def peak(shape: Shape) -> int:
    """Return the peak bytes of a fit."""
    used = min(WORKING_MEMORY // 2, 17 * shape.n * shape.d)  # less for few rows
    return held(shape) + used


def working_memory(shape: Shape, limit: int | None) -> int:
    """Return the bytes for the search's blocks; ValueError if the limit is below what is needed."""
    if limit is None:
        return WORKING_MEMORY
    left = limit - held(shape)
    if left < MIN_BLOCKS:
        raise ValueError(
            f"memory_limit={limit} ({limit / 2**30:.2f} GB) is too little: a fit of {shape.n} x "
            f"{shape.d} to {counted(shape.n_components, 'dimension')} needs about "
            f"{(held(shape) + MIN_BLOCKS) / 2**30:.2f} GB; raise the limit, lower n_neighbors or "
            "fit a sample of the rows."
        )
    return min(left, WORKING_MEMORY)
