"""Training across the values of a nuisance: the triplets of the paper with this knowledge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.solver.conjugate_gradient import SolverState, Stopping, descend
from rpml.method.whitening import constants as const
from rpml.method.whitening.choice import Whitening
from rpml.method.whitening.nuisance import cross_triplets
from rpml.method.whitening.nuisance_evidence import Discounted, log_ranks
from rpml.runtime.rows import unit_rows
from rpml.runtime.threads import times


def judge_training(whitening: Whitening, rng: np.random.Generator) -> Whitening:
    """Return the whitening of a discounted nuisance with the verdict on training across values."""
    choice, discounted = whitening.choice, whitening.discounted
    assert choice is not None
    assert choice.nuisance is not None
    assert discounted is not None
    if training_gain(discounted, rng) > const.CROSS_TRAINS:
        reason = f"{choice.reason}, and training on triplets across values ranks them higher still"
        nuisance = replace(choice.nuisance, reason=reason)
        choice = replace(choice, trains=True, reason=reason, nuisance=nuisance)
    return Whitening(whitening.preprocessing, choice)


def training_gain(discounted: Discounted, rng: np.random.Generator) -> float:
    """How much higher held-out rows rank their counterparts of other values, in standard errors.

    As in the views by which the whitening was judged, the rows and axes that make a map do not
    judge it. They are half of all, so the training itself has more to learn from.
    """
    falls = []
    for view in discounted.views:
        Z = unit_rows(times(view.shortened, view.maps[discounted.share]))
        untrained, made = Z[:, : view.size], view.made
        values = discounted.judged.nuisance.values[made]
        triplets = cross_triplets(untrained[made], values, const.JUDGED_TRIPLETS, rng)
        problem = TripletObjective(Z[made], triplets, "constant", const.CROSS_ALPHA)
        start = SolverState(np.eye(Z.shape[1], view.size), None)
        stopping = Stopping(const.JUDGED_ITERATIONS, decrease=const.JUDGED_DECREASE)
        L = descend(problem, start, stopping).L
        both = [untrained, times(Z, L.astype(Z.dtype))]
        before, after = log_ranks(discounted.judged, both, view.asked[: const.JUDGED_PAIRS]).T
        falls.append(before - after)
    fall = np.concatenate(falls)
    return float(fall.mean() / max(1e-12, fall.std() / np.sqrt(len(fall))))
