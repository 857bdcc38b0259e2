"""Is the embedding learned on Dask as good as the local one, on real features?

python benchmarks/cluster_quality.py --data FOLDER     (.npz files, see results_sets.py)

Recall@1 on classes that were not learned on: the local fit with several seeds, which is the spread
to compare with, and the fit on two workers with the same seeds, exact and by cells.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from common import publish
from results_sets import FeatureSet, feature_sets, parser

from rpml import RPML, AuthorityAscentShift
from rpml.evaluation.metrics import recall_at_k

SEEDS = range(5)


def score(model: RPML, data: FeatureSet) -> float:
    test = ~data.train
    return recall_at_k(model.transform(data.X[test]), data.y[test], ks=(1,))[1]


def one_set(data: FeatureSet, components: int, cluster: object) -> dict:
    import dask.array as da

    from rpml.distributed import DaskRPML

    X = data.X[data.train]
    blocks = da.from_array(X, chunks=(1000, X.shape[1]))
    cells = AuthorityAscentShift(metric="cosine", merge=None, method="ann")
    found: dict[str, list[float]] = {"local": [], "dask": [], "dask, cells": []}
    for seed in SEEDS:
        settings = {"n_components": components, "random_state": seed}
        found["local"].append(score(RPML(**settings).fit(X), data))
        model = DaskRPML(**settings).fit(blocks, cluster=cluster)
        found["dask"].append(score(model.to_local(), data))
        model = DaskRPML(**settings, clustering=cells).fit(blocks, cluster=cluster)
        found["dask, cells"].append(score(model.to_local(), data))
        print(data.name, seed, {k: round(v[-1], 4) for k, v in found.items()}, flush=True)
    local = np.array(found["local"])
    return {
        "set": data.name,
        "rows": len(X),
        "components": components,
        "recall@1": found,
        "spread of local (standard deviation)": float(local.std(ddof=1)),
        "largest difference, same seed": float(np.abs(local - found["dask"]).max()),
        "difference of the means": float(np.mean(found["dask"]) - local.mean()),
        "difference of the means, cells": float(np.mean(found["dask, cells"]) - local.mean()),
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--components", type=int, default=64)
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    from rpml.distributed import Cluster

    with Cluster(workers=2, threads=1) as cluster:
        rows = [
            one_set(data, options.components, cluster)
            for data in feature_sets(options.data, options.sets)
        ]
    publish("cluster-quality", {"sets": rows})


if __name__ == "__main__":
    sys.exit(main())
