"""What limits RPML without labels: its pseudo-labels, or what an orthonormal map can express?

At 128 dimensions, one seed: how many positives and negatives of the triplets are right, how often
the nearest neighbor is, and the scores with AAS' clusters, with the true classes in their place
(perfect pseudo-labels, the same whitening), and with the true classes in the whitening as well.
"""

from __future__ import annotations

import warnings

import numpy as np
from common import publish
from results_sets import FeatureSet, feature_sets, parser

from rpml import RPML
from rpml.evaluation.metrics import clustering_scores, recall_at_k
from rpml.method.graph.neighbors import nearest_neighbors

DIM = 128


def limits(data: FeatureSet) -> dict:
    X, y = data.X[data.train], data.y[data.train]
    test, classes = data.X[~data.train], data.y[~data.train]
    plain = RPML(DIM, training="always", random_state=0).fit(X)
    a, p, n = plain.triplets_.T
    sizes = np.bincount(plain.labels_)
    near = nearest_neighbors(plain.preprocessing_.apply(X), 1).indices[:, 0]

    def scores(model: RPML) -> dict[str, float]:
        Z = model.transform(test)
        return {
            "recall@1": recall_at_k(Z, classes, (1,))[1],
            "nmi": clustering_scores(Z, classes)["nmi"],
        }

    return {
        "set": data.name,
        "clusters": len(sizes),
        "classes": len(np.unique(y)),
        "rows alone": float((sizes[plain.labels_] == 1).mean()),
        "positives right": float((y[a] == y[p]).mean()),
        "negatives right": float((y[a] != y[n]).mean()),
        "nearest neighbor right": float((y[near] == y).mean()),
        "aas": scores(plain),
        "classes as clusters": scores(RPML(DIM, clustering=y, random_state=0).fit(X)),
        "classes known": scores(RPML(DIM, use_labels=True, random_state=0).fit(X, y)),
    }


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [limits(data) for data in feature_sets(options.data, options.sets)]
    publish("limits", {"rows": rows})


if __name__ == "__main__":
    main()
