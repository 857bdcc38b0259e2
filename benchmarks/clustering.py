"""How good are the clusters of AuthorityAscentShift, next to k-means, HDBSCAN, Leiden and EVoC?

python benchmarks/clustering.py --data FOLDER [--sets a,b]    writes results/clustering.json
python benchmarks/clustering_page.py                          writes docs/results-clusters.md

Each method clusters all rows of a set (unit norm) by its defaults and, where it can be given a
number, into as many clusters as there are classes. HDBSCAN's and EVoC's noise rows count as
clusters of their own. Seconds are CPU seconds. Needs leidenalg and evoc from PyPI besides the
`compare` extra.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import publish
from results_sets import FeatureSet, feature_sets, parser
from scipy import sparse
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from rpml import AuthorityAscentShift
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.rows import unit_rows

MOST_ROWS = 7000  # of larger sets the test classes only


def leiden(X: np.ndarray, n_clusters: int | None = None) -> np.ndarray:
    """Leiden on the graph of 15 neighbors; a number of clusters is met by bisection."""
    import igraph
    import leidenalg

    near = nearest_neighbors(X, 15).indices
    edges = sparse.csr_matrix(
        (np.ones(near.size), near.ravel(), np.arange(0, near.size + 1, 15)), (len(X), len(X))
    )
    upper = sparse.triu(edges.maximum(edges.T), format="coo")
    network = igraph.Graph(n=len(X), edges=np.stack([upper.row, upper.col], axis=1).tolist())

    def run(resolution: float) -> np.ndarray:
        kind = leidenalg.RBConfigurationVertexPartition
        found = leidenalg.find_partition(network, kind, resolution_parameter=resolution, seed=0)
        return np.array(found.membership)

    low, high, best = 0.1, 100.0, run(1.0)
    for _ in range(6 if n_clusters else 0):
        if abs(best.max() + 1 - n_clusters) <= 0.05 * n_clusters:
            break
        middle = float(np.sqrt(low * high))
        labels = run(middle)
        miss, before = (abs(np.log((r.max() + 1) / n_clusters)) for r in (labels, best))
        best = labels if miss < before else best
        low, high = (middle, high) if labels.max() + 1 < n_clusters else (low, middle)
    return best


def evoc(X: np.ndarray, n_clusters: int | None = None) -> np.ndarray:
    from evoc import EVoC

    return EVoC(approx_n_clusters=n_clusters, random_state=0).fit_predict(X)


def aas(X: np.ndarray, **settings: Any) -> np.ndarray:
    return AuthorityAscentShift(metric="cosine", **settings).fit_predict(X)


METHODS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "AAS": lambda X, k: aas(X),
    "AAS as printed": lambda X, k: aas(X, merge=None),
    "HDBSCAN": lambda X, k: HDBSCAN(copy=True).fit_predict(X),
    "Leiden": lambda X, k: leiden(X),
    "EVoC": lambda X, k: evoc(X),
    "AAS at K": lambda X, k: aas(X, n_clusters=k, min_cluster_size=3),
    "k-means at K": lambda X, k: KMeans(k, n_init=1, random_state=0).fit_predict(X),
    "Leiden at K": leiden,
    "EVoC at K": evoc,
}


def scores(labels: np.ndarray, y: np.ndarray) -> dict[str, float]:
    noise = labels < 0
    clusters = len(np.unique(labels[~noise]))
    labels = np.where(noise, labels.max() + 1 + np.arange(len(labels)), labels)
    return {
        "nmi": float(normalized_mutual_info_score(y, labels)),
        "ari": float(adjusted_rand_score(y, labels)),
        "clusters": clusters,
        "noise": float(noise.mean()),
    }


def one_set(data: FeatureSet) -> dict[str, Any]:
    rows = slice(None) if len(data.y) <= MOST_ROWS else ~data.train
    X, y = unit_rows(data.X[rows]), data.y[rows]
    classes = len(np.unique(y))
    found: dict[str, Any] = {"set": data.name, "rows": len(X), "classes": classes, "methods": {}}
    for name, run in METHODS.items():
        start = time.process_time()  # the machine is shared
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = np.asarray(run(X, classes))
        seconds = time.process_time() - start
        found["methods"][name] = {**scores(labels, y), "seconds": seconds}
    return found


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    rng = np.random.default_rng(0)
    for run in METHODS.values():
        run(unit_rows(rng.standard_normal((300, 8)).astype(np.float32)), 4)  # compile
    results = []
    for data in feature_sets(options.data, options.sets):
        results.append(one_set(data))
        publish("clustering", {"sets": results})


if __name__ == "__main__":
    main()
