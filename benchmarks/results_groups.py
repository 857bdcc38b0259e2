"""What are groups worth: rows known to show the same thing, on sets that come with views?

Fits on the training rows and their views, scored on plain rows of classes never seen. RPML without
groups, with them, and with some rows put in a wrong group, against RCA (metric-learn) and
discriminant analysis given the same groups, both after PCA to `AXES` so that they can be inverted.
"""

from __future__ import annotations

import warnings

import numpy as np
from common import publish
from results_sets import SEEDS, FeatureSet, feature_sets, parser
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from rpml import RPML
from rpml.evaluation.metrics import clustering_scores, recall_at_k
from rpml.runtime.rows import unit_rows

DIMS = (64, 128)
WRONG = 0.05
AXES = 256


def with_views(data: FeatureSet, views) -> tuple:
    """Training rows and their views, and each row's group."""
    X = data.X[data.train]
    stacked = np.concatenate([X[:, None], views.astype(np.float32)], axis=1)
    n, m, d = stacked.shape
    return stacked.reshape(n * m, d), np.repeat(np.arange(n), m)


def misplaced(groups, rng):
    """Some rows moved to another row's group."""
    wrong = groups.copy()
    moved = rng.random(len(groups)) < WRONG
    wrong[moved] = rng.permutation(groups)[moved]
    return wrong


def rca(X, groups, dim):
    import metric_learn._util as checks
    from metric_learn import RCA
    from sklearn import utils

    def renamed(check):  # metric-learn 0.7 calls this argument by a name that is gone
        return lambda *given, force_all_finite=True, **named: check(
            *given, ensure_all_finite=force_all_finite, **named
        )

    checks.check_X_y, checks.check_array = renamed(utils.check_X_y), renamed(utils.check_array)
    first = PCA(AXES, random_state=0).fit(unit_rows(X))
    second = RCA(n_components=dim).fit(first.transform(unit_rows(X)), groups)
    return lambda rows: second.transform(first.transform(unit_rows(rows)))


def lda(X, groups, dim):
    first = PCA(AXES, random_state=0).fit(unit_rows(X))
    second = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto", n_components=dim)
    second.fit(first.transform(unit_rows(X)), groups)
    return lambda rows: second.transform(first.transform(unit_rows(rows)))


def embeddings(X, groups, own, dim, seed):
    """Method -> function of rows."""
    wrong = misplaced(groups, np.random.default_rng(seed))
    fits = {
        "rpml": lambda: RPML(dim, random_state=seed).fit(X[own]).transform,
        "rpml, groups": lambda: RPML(dim, random_state=seed).fit(X, groups=groups).transform,
        "rpml, 5% wrong": lambda: RPML(dim, random_state=seed).fit(X, groups=wrong).transform,
    }
    if seed == SEEDS[0]:  # they draw nothing
        fits |= {
            "RCA, groups": lambda: rca(X, groups, dim),
            "LDA, groups": lambda: lda(X, groups, dim),
        }
    return fits


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    rows = []
    for data in feature_sets(options.data, options.sets):
        with np.load(options.data / f"{data.name}.npz", allow_pickle=False) as file:
            views = file["views"] if "views" in file.files else None
        if views is None:
            continue
        X, groups = with_views(data, views)
        own = np.arange(0, len(X), 1 + views.shape[1])
        test, y = data.X[~data.train], data.y[~data.train]
        for dim in DIMS:
            for seed in SEEDS:
                for method, fit in embeddings(X, groups, own, dim, seed).items():
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        Z = fit()(test)
                    scores = {
                        "recall@1": 100 * recall_at_k(Z, y, (1,))[1],
                        "nmi": 100 * clustering_scores(Z, y, seed)["nmi"],
                    }
                    rows.append(
                        {"set": data.name, "method": method, "dim": dim, "seed": seed, **scores}
                    )
                    print(rows[-1], flush=True)
    publish("groups", {"rows": rows})


if __name__ == "__main__":
    main()
