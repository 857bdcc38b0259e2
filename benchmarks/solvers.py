"""Time to the same loss, from the same start on the same triplets, against pymanopt.

Two problems: 1,750 x 784 -> 64 with 2,688 triplets (the size of the authors' published
demonstration) and 8,000 x 1024 -> 128 with 100,000. Two opponents: pymanopt with the paper's
d x T matrices, and pymanopt driven by our objective with a cache that shares cost and gradient.
The target loss is what we reach after ITERATIONS; each opponent runs until it is there.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
import tracemalloc

import numpy as np
import pymanopt
from common import PAUSE, publish
from objective import problem as random_problem
from pymanopt.manifolds import Euclidean, Grassmann, Product

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.solver.conjugate_gradient import SolverState, Stopping, descend

ITERATIONS = 30
SIZES = {"small": (1750, 784, 64, 2688), "large": (8000, 1024, 128, 100_000)}


class Reached(Exception):
    """The opponent is at the target loss."""


def matrix_form(X, triplets, c=4.0):
    """The paper's efficient algorithm: matrices A, C, P, Q built once, d x T each."""
    a, p, n = triplets.T
    A = ((X[a] + X[p]) / 2).T
    C = np.vstack([A, X[n].T])
    P, Q = (X[a] - X[p]).T, X[n].T - A

    def evaluate(L, r):
        w = 1 / (1 + np.exp(-(r @ C)))
        LP, LQ = L.T @ P, L.T @ Q
        z = (LP * LP).sum(axis=0) - c * (LQ * LQ).sum(axis=0)
        m = np.logaddexp(0, z)
        f = w * m
        g = 1 / (1 + np.exp(-f))
        k = 2 * g * w / (1 + np.exp(-z))
        grad_r = ((g * w * (1 - w) * m) * C).sum(axis=1)
        grad_L = (k * P) @ LP.T - c * ((k * Q) @ LQ.T)
        return float(np.logaddexp(0, f).sum()), grad_L, grad_r

    return evaluate


def index_form(X, triplets):
    """Our objective, as pymanopt would call it."""
    objective = TripletObjective(X, triplets)

    def evaluate(L, r):
        objective.move_to(L, r)
        return objective.gradients()

    return evaluate


def run_pymanopt(evaluate, L, r, target, time_limit):
    """Seconds until the cost is at the target, or None; cost and gradient share evaluations."""
    manifold = Product([Grassmann(*L.shape), Euclidean(*r.shape)])
    cache: dict[str, tuple] = {}
    calls = 0
    start = time.perf_counter()

    def at(L, r):
        nonlocal calls
        key = (L.tobytes(), r.tobytes())
        if cache.get("key") != key:
            calls += 1
            cache.update(key=key, value=evaluate(L, r))
            if cache["value"][0] <= target or time.perf_counter() - start > time_limit:
                raise Reached
        return cache["value"]

    @pymanopt.function.numpy(manifold)
    def cost(L, r):
        return at(L, r)[0]

    @pymanopt.function.numpy(manifold)
    def euclidean_gradient(L, r):
        return list(at(L, r)[1:])

    problem = pymanopt.Problem(manifold, cost, euclidean_gradient=euclidean_gradient)
    optimizer = pymanopt.optimizers.ConjugateGradient(
        max_iterations=10_000, max_time=time_limit, verbosity=0, min_step_size=0
    )
    with contextlib.suppress(Reached):
        optimizer.run(problem, initial_point=[L.copy(), r.copy()])
    seconds = time.perf_counter() - start
    reached = cache["value"][0] <= target
    return {"seconds": seconds, "evaluations": calls, "reached": bool(reached)}


def run_ours(X, triplets, L, r):
    objective = TripletObjective(X, triplets)
    start = time.perf_counter()
    result = descend(objective, SolverState(L, r), Stopping(ITERATIONS, 0.0, 0.0))
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "loss": result.loss,
        "iterations": result.n_iter,
        "products per iteration": objective.products / max(1, result.n_iter),
        "trials per iteration": statistics.mean(result.history["trials"][1:]),
    }


def memory_of(build) -> float:
    tracemalloc.start()
    build()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return peak


def compare(name: str, repeats: int, time_limit: float) -> dict:
    n, d, l, T = SIZES[name]
    X, triplets, L, _ = random_problem(n, d, l, T)
    r = np.zeros(2 * d)  # weights one half
    run_ours(X, triplets, L, r)
    rows = {"ours": [], "paper's matrices": [], "our objective": []}
    for _ in range(repeats):
        time.sleep(PAUSE)
        ours = run_ours(X, triplets, L, r)
        target = ours["loss"]
        rows["ours"].append(ours)
        for opponent, build in (("our objective", index_form), ("paper's matrices", matrix_form)):
            evaluate = build(X, triplets)
            time.sleep(PAUSE)
            rows[opponent].append(run_pymanopt(evaluate, L, r, target, time_limit))
    median = {k: statistics.median(x["seconds"] for x in v) for k, v in rows.items()}
    return {
        "runs": {k: v[-1] for k, v in rows.items()},
        "median seconds": median,
        "pymanopt with the paper's matrices / ours": median["paper's matrices"] / median["ours"],
        "pymanopt with our objective / ours": median["our objective"] / median["ours"],
        "extra memory MB": {
            "ours": memory_of(lambda: index_form(X, triplets)(L, r)),
            "paper's matrices": memory_of(lambda: matrix_form(X, triplets)(L, r)),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=600)
    parser.add_argument("--only", choices=SIZES)
    options = parser.parse_args()
    names = [options.only] if options.only else list(SIZES)
    for name in names:
        publish(f"solvers-{name}", compare(name, options.repeats, options.time_limit))


if __name__ == "__main__":
    main()
