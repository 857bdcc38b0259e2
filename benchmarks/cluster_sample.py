"""Does a fit gain from all rows, or is a sample of them enough?

python benchmarks/cluster_sample.py --data FOLDER     (.npz files, see results_sets.py)

Recall@1 and NMI on classes that were not learned on, of (a) a fit whose moments come from all rows
and whose scatter, graph, clusters, triplets and solver come from a sample, and (b) a fit that uses
all rows at every stage, with training="always" so that graph and triplets matter. Mixtures of three
kinds are generated; of the real sets smaller samples are taken, since they are small.
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import publish
from numpy.typing import NDArray
from results_sets import feature_sets, parser

from rpml import RPML
from rpml.evaluation.metrics import clustering_scores, recall_at_k

TEST_CLASSES, TEST_ROWS = 200, 8_000


@dataclass(frozen=True)
class Kind:
    """A Gaussian mixture: its centers, their dimension, and the spread within a class."""

    centers: int
    intrinsic: int
    spread: float
    components: int
    nuisance: float = 0.0
    """Standard deviation along eight further directions that tell nothing of the class."""

    def draw(self, n: int, width: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
        """Return n training rows, then the rows of unseen classes, and the class of each."""
        rng = np.random.default_rng(seed)
        size = self.intrinsic + 8
        frame = np.linalg.qr(rng.standard_normal((width, size)))[0].T.astype(np.float32)
        scale = np.append(np.ones(self.intrinsic), np.full(8, self.nuisance)).astype(np.float32)
        means = rng.standard_normal((self.centers + TEST_CLASSES, size), dtype=np.float32)
        means[:, self.intrinsic :] = 0
        y = np.concatenate([
            rng.integers(0, self.centers, n),
            self.centers + rng.integers(0, TEST_CLASSES, TEST_ROWS),
        ])  # fmt: skip
        X = np.empty((len(y), width), np.float32)
        for start in range(0, len(y), 65_536):
            rows = slice(start, start + 65_536)
            own = rng.standard_normal((len(y[rows]), size), dtype=np.float32) * scale
            own[:, : self.intrinsic] *= self.spread
            X[rows] = (means[y[rows]] + own) @ frame
            X[rows] += 0.05 * rng.standard_normal((len(own), width), dtype=np.float32)
        return X, y


KINDS = {
    "clear clusters": Kind(10_000, 16, 0.3, 8),
    "overlapping clusters": Kind(2_000, 48, 0.9, 24),
    "a nuisance in eight directions": Kind(2_000, 24, 0.7, 16, nuisance=2.0),
}


def scores(model: RPML, X: NDArray[np.float32], y: NDArray[np.intp]) -> dict[str, float]:
    Z = model.transform(X)
    recall = recall_at_k(Z, y, ks=(1,))[1]
    return {"recall@1": 100 * recall, "nmi": 100 * clustering_scores(Z, y, random_state=0)["nmi"]}


def fitted(
    X: NDArray[np.float32], components: int, sample: int | None, **settings: Any
) -> tuple[RPML, float]:
    start = time.process_time()
    model = RPML(components, subsample=sample, **settings).fit(X)
    return model, time.process_time() - start


def one_mixture(
    name: str, n: int, width: int, samples: list[int | None], settings: dict[str, Any]
) -> dict:
    kind = KINDS[name]
    X, y = kind.draw(n, width, settings["random_state"])
    row: dict = {"data": name, "rows": n, "width": width, **settings, "fits": {}}
    for sample in samples:
        model, seconds = fitted(X[:n], kind.components, sample, **settings)
        figures = scores(model, X[n:], y[n:])
        row["fits"][str(sample or "all")] = {**figures, "CPU seconds": seconds}
        print(name, n, settings["training"], sample, figures, round(seconds, 1), flush=True)
    return row


def real_sets(options: object) -> list[dict]:
    rows = []
    for data in feature_sets(options.data, options.sets):  # type: ignore[attr-defined]
        n = int(data.train.sum())
        if n < 4000:
            continue
        row: dict = {"data": data.name, "rows": n, "training": "always", "fits": {}}
        for sample in (2000, 4000, None):
            found = []
            for seed in (0, 1, 2):
                model, _ = fitted(
                    data.X[data.train], 64, sample, training="always", random_state=seed
                )
                found.append(scores(model, data.X[~data.train], data.y[~data.train]))
            means = {key: float(np.mean([f[key] for f in found])) for key in found[0]}
            row["fits"][str(sample or "all")] = means
        print(row, flush=True)
        rows.append(row)
    return rows


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--rows", default="100000,200000", help="sizes, by comma")
    arguments.add_argument("--all", type=int, default=200_000, help="largest fit of all rows")
    arguments.add_argument("--kinds", default=",".join(KINDS))
    arguments.add_argument("--training", default="always,auto")
    arguments.add_argument("--width", type=int, default=128)
    arguments.add_argument("--neighbors", type=int, default=RPML().n_neighbors)
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--name", default="cluster-sample")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for n in map(int, filter(None, options.rows.split(","))):
        for name in options.kinds.split(","):
            for training in options.training.split(","):
                samples: list[int | None] = [20_000, 50_000]
                samples += [None] * (n <= options.all)
                for seed in range(options.seeds):
                    settings = {
                        "training": training,
                        "n_neighbors": options.neighbors,
                        "random_state": seed,
                    }
                    rows.append(one_mixture(name, n, options.width, samples, settings))
    publish(options.name, {"mixtures": rows, "real": real_sets(options)})


if __name__ == "__main__":
    sys.exit(main())
