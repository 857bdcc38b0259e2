"""How much nearer a method brings the neighbors that other axes find: evidence without labels.

The principal axes are cut into two halves that have no axis in common, and the rows into two parts.
A row's nearest neighbors by one half of the axes, all of them, are its *mates*. Every method is
fitted to the other half of the axes on one part of the rows; how high does it rank the mates on the
other part? Its *rank gain* is by how much log(1 + rank) falls against PCA. Noise in one half of the
axes knows nothing of the noise in the other, so a method gains by retaining what rows really share.
"""

import warnings
from collections.abc import Sequence

import numpy as np

from rpml.evaluation.registry import METHODS
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.whitening.evidence import MATES, mean_log_ranks
from rpml.method.whitening.neighborhoods import random_halves
from rpml.runtime.intervals import Interval, mean_interval
from rpml.runtime.rows import Array

REFERENCE = "pca"
QUERIES = 1000
MAX_AXES = 512
# rank gain -> gain in Recall@1 over PCA: 10%, 50% and 90% quantile over 32 sets, 32 to 128
# dimensions; between 0.1 and 0.3 more evidence did not mean more gain (benchmarks/calibration.py)
CALIBRATION = {
    0.0: (-0.003, 0.0, 0.003),
    0.025: (-0.004, 0.001, 0.01),
    0.075: (-0.002, 0.009, 0.024),
    0.12: (0.004, 0.02, 0.184),
    0.3: (0.004, 0.02, 0.184),
    0.4: (0.056, 0.104, 0.401),
}


def rank_gains(
    W: Array, methods: Sequence[str], size: int, rng: np.random.Generator
) -> dict[str, Interval]:
    """Rank gain over PCA of each method: how much the mean log(1 + rank) of the mates falls.

    Parameters
    ----------
    W : ndarray of shape (n_samples, n_axes)
        Rows in principal coordinates, strongest axis first.
    methods : sequence of str
        Names of the registry.
    size : int
        Size of the embeddings.
    rng : numpy.random.Generator
        Of the halves.

    Returns
    -------
    dict of str to Interval
        With 95% intervals over the queries. PCA, the reference, is always there.
    """
    W = W[:, :MAX_AXES]
    order = rng.permutation(len(W))
    seen, unseen = W[order[: len(W) // 2]], W[order[len(W) // 2 :]]
    queries = np.arange(min(QUERIES, len(unseen)))
    half = random_halves(W.shape[1], rng)
    log_ranks = {name: np.zeros(len(queries)) for name in (REFERENCE, *methods)}
    for one, other in ((half, ~half), (~half, half)):
        neighbors = nearest_neighbors(unseen[:, other], MATES, metric="cosine")
        mates = neighbors.indices[queries].astype(np.intp)
        room = max(1, min(size, int(one.sum()) // 2, len(seen) - 1))
        for name in log_ranks:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what a fit to a part of the rows is like
                fitted = METHODS[name].build(room, 0).fit(seen[:, one])
            Z = fitted.transform(unseen[:, one])
            log_ranks[name] += mean_log_ranks(Z, queries, mates) / 2
    return {name: mean_interval(log_ranks[REFERENCE] - value) for name, value in log_ranks.items()}


def expected_gain(rank_gain: float) -> Interval:
    """Gain in Recall@1 over PCA that went with such a rank gain on other data: 80% of the sets."""
    rank_gains = list(CALIBRATION)
    low, middle, high = (
        float(
            np.interp(rank_gain, rank_gains, [quantiles[i] for quantiles in CALIBRATION.values()])
        )
        for i in range(3)
    )
    return Interval(middle, low, high)
