"""How far is one objective-and-gradient from the two products no implementation can avoid?

n = 8000, d = 1024, l = 128, T = 100,000, float32, weight "concat"; through the public function
with triplets in random order, and inside a fit with the anchors sorted. Several in a row, as a fit
makes them, all on one thread. Also the cost of a further line-search trial as a share of a full
evaluation, and the extra memory. CPU milliseconds.
"""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
from common import alternate, publish

from rpml.method.objective.triplet_loss import TripletObjective, loss_and_gradients
from rpml.method.solver.conjugate_gradient import PolarCurve, project, random_subspace
from rpml.runtime.threads import single_blas_thread, using_threads

IN_A_ROW = 4


def problem(n: int, d: int, l: int, T: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    anchors = np.sort(rng.integers(0, n, T))
    triplets = np.stack([anchors, rng.integers(0, n, T), rng.integers(0, n, T)], axis=1)
    return X, triplets, random_subspace(d, l, rng), 0.1 * rng.standard_normal(2 * d)


@using_threads(1)
def main() -> None:
    X, triplets, L, r = problem(8000, 1024, 128, 100_000)
    L32, G = L.astype(np.float32), np.ones((8000, 128), np.float32)
    objective = TripletObjective(X, triplets)

    @single_blas_thread()
    def evaluate() -> None:
        for _ in range(IN_A_ROW):
            objective.move_to(L, r)
            objective.gradients()

    mixed = np.random.default_rng(2).permutation(triplets)

    def public() -> None:
        for _ in range(IN_A_ROW):
            loss_and_gradients(X, mixed, L, r)

    @single_blas_thread()
    def products() -> None:
        for _ in range(IN_A_ROW):
            X @ L32
            X.T @ G

    evaluate()
    tracemalloc.start()
    evaluate()
    extra = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    rng = np.random.default_rng(1)
    xi = project(L, rng.standard_normal(L.shape))
    objective.begin_line_search(PolarCurve.through(L, xi), rng.standard_normal(r.shape))
    trial = TripletObjective(X, triplets)
    trial.move_to(L, r)
    trial.begin_line_search(PolarCurve.through(L, xi), rng.standard_normal(r.shape))

    @single_blas_thread()
    def trials() -> None:
        for i in range(IN_A_ROW):
            trial.line_value(0.01 * (i + 1))

    subjects = {"evaluation": evaluate, "public": public, "two products": products}
    found = alternate(subjects | {"trial": trials}, repeats=31, clock=time.process_time)
    times = {name: seconds / IN_A_ROW for name, seconds in found.items()}
    publish(
        "objective",
        {
            "milliseconds": {name: 1e3 * t for name, t in times.items()},
            "evaluation / two products": times["evaluation"] / times["two products"],
            "public / two products": times["public"] / times["two products"],
            "trial / evaluation": times["trial"] / times["evaluation"],
            "extra memory MB": extra,
        },
    )


if __name__ == "__main__":
    main()
