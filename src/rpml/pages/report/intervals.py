"""The 95% bootstrap interval of the NMI, which is not a mean over rows."""

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import normalized_mutual_info_score

from rpml.evaluation.metrics import kmeans
from rpml.runtime.intervals import STANDARD_ERRORS, Interval
from rpml.runtime.rows import Array, unit_rows

N_RESAMPLES = 200


def nmi_interval(vectors: Array, labels: NDArray[np.str_], seed: int) -> Interval:
    """Return the NMI of the labels and a k-means partition with as many clusters as labels.

    The partition is fixed and the rows are resampled. Repeated rows raise the NMI of a resample,
    so the interval is centered on the measured value: plus and minus 1.96 standard errors.
    """
    rng = np.random.default_rng(seed)
    _, codes = np.unique(labels, return_inverse=True)
    n_labels = int(codes.max()) + 1
    partition = kmeans(unit_rows(vectors).astype(np.float32), n_labels, rng).labels
    value = float(normalized_mutual_info_score(codes, partition))
    pairs, counts = np.unique(codes * n_labels + partition, return_counts=True)
    draws = rng.multinomial(len(codes), counts / len(codes), size=N_RESAMPLES)
    entropy = {
        name: _entropies(draws, groups)
        for name, groups in (
            ("labels", pairs // n_labels),
            ("partition", pairs % n_labels),
            ("joint", np.arange(len(pairs))),
        )
    }
    total = entropy["labels"] + entropy["partition"]
    mutual = total - entropy["joint"]
    scores = np.divide(2 * mutual, total, out=np.ones_like(total), where=total > 0)
    margin = STANDARD_ERRORS * float(scores.std())
    return Interval(value, max(0.0, value - margin), min(1.0, value + margin))


def _entropies(draws: NDArray[np.integer], groups: NDArray[np.integer]) -> Array:
    """Return the entropy of each draw, summed by group."""
    sums = np.zeros((int(groups.max()) + 1, len(draws)))
    np.add.at(sums, groups, draws.T)
    shares = sums / sums.sum(axis=0)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(-(shares * logs).sum(axis=0))
