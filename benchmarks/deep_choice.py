"""Choose the recipe of sRPML on the training classes alone, from the cache of deep.py.

    python benchmarks/deep_choice.py --data cub130 --backbone googlenet.onnx --work /tmp/deep

The training classes are split into two halves; the network is trained on either half and evaluated
on the other, so every training image is a query once. The test classes are not used.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from deep import Images, Problem, Rows, add_common, measure_frozen
from deep_baselines import ALL as METHODS
from deep_baselines import MemoryNCE, mine_pools, triplet_batches

from rpml.deep.embedder import mean_features
from rpml.deep.methods import base
from rpml.method.triplets.sampling import batch_sampler
from rpml.runtime.rows import Indices, unit_rows

CROSS_FITTED = "sRPML, labels from other views"


class Nothing(base.Loss):
    """No loss of its own: the effect of distillation alone."""

    learns_projection = True

    def forward(self, batch: base.Batch) -> torch.Tensor:
        return batch.features.sum() * 0.0


class Tenth(base.Loss):
    """A tenth of the loss of a method, with the whole distillation."""

    def __init__(self, loss: base.Loss) -> None:
        super().__init__()
        self.loss, self.learns_projection = loss, loss.learns_projection

    def begin_epoch(self, labels: Indices | None) -> None:
        self.loss.begin_epoch(labels)

    def forward(self, batch: base.Batch) -> torch.Tensor:
        return 0.1 * self.loss(batch)


class FilledNCE(MemoryNCE):
    """NCE whose memory begins with the first view seen of each image instead of at random."""

    def __init__(self, spec: base.LossSpec) -> None:
        super().__init__(spec)
        self.register_buffer("seen", torch.zeros(spec.n_images, dtype=torch.bool))

    def forward(self, batch: base.Batch) -> torch.Tensor:
        new = ~self.seen[batch.rows]
        self.memory[batch.rows[new]] = batch.embedding.detach()[new]
        self.seen[batch.rows] = True
        return super().forward(batch)


def tenth(name: str) -> base.Method:
    method = METHODS[name]
    return replace(method, loss=lambda spec: Tenth(method.loss(spec)))


def correct_pools(bank: base.FeatureBank) -> tuple[base.Batches, None]:
    """The pools of MOM without positives of other classes and negatives of the same class."""
    classes, correct = bank.classes, []
    for anchor, positives, negatives, weights in mine_pools(bank):
        right = classes[positives] == classes[anchor]
        wrong = classes[negatives] != classes[anchor]
        if right.any() and wrong.any():
            correct.append((anchor, positives[right], negatives[wrong], weights[right]))
    return partial(triplet_batches, correct), None


def srpml(sampler: base.Sampler) -> base.Method:
    return replace(METHODS["srpml"], sampler=sampler)


def agreed_labels(bank: base.FeatureBank, n_levels: int = 2) -> np.ndarray:
    """One label per group of images that AAS joins by each of two random halves of the features."""
    order = np.random.default_rng(bank.seed).permutation(bank.features.shape[1])
    halves = [unit_rows(bank.features[:, half]) for half in np.array_split(order, 2)]
    found = [base.aas_labels(replace(bank, features=half), n_levels) for half in halves]
    return np.unique(np.stack(found), axis=1, return_inverse=True)[1].ravel()


def two_view_sampler(labels: np.ndarray) -> tuple[base.Batches, Indices]:
    """Half of the images by label, four per label, half at random; all in two views."""

    def batches(
        rng: np.random.Generator, n_views: int, batch_size: int
    ) -> Iterator[base.BatchIndices]:
        n_images = batch_size // 2
        for rows in batch_sampler(labels, rng, n_images // 2, 4):
            others = np.setdiff1d(rng.permutation(len(labels))[:n_images], rows)
            images = np.concatenate([rows, rng.permutation(others)[: n_images - len(rows)]])
            batch = base.in_two_views(images, n_views, rng)
            yield replace(batch, labels=labels[batch.rows])

    return batches, labels


def cross_fitted(problem: Problem) -> base.Method:
    """sRPML on labels before training; those of one half of the views select the other half."""

    def sampler(bank: base.FeatureBank) -> tuple[base.Batches, Indices]:
        embedder, frozen = problem.start(bank.seed), problem.frozen
        halves = (mean_features(embedder, frozen[:, side::2]) for side in (0, 1))
        sides = [base.label_sampler(base.aas_labels(replace(bank, features=x), 2)) for x in halves]

        def batches(rng: np.random.Generator, n_views: int, batch_size: int) -> Any:
            both = [side(rng, n_views, batch_size) for side, _ in sides]
            for pair in zip(*both, strict=False):
                for side, batch in enumerate(pair):  # labels of view k % 2 == side
                    others = np.arange(1 - side, n_views, 2)
                    yield replace(batch, views=rng.choice(others, len(batch.rows)))

        return batches, sides[0][1]

    return replace(METHODS["srpml"], sampler=sampler, mines_once=True)


def agreed(n_levels: int) -> base.Sampler:
    return lambda bank: base.label_sampler(agreed_labels(bank, n_levels))


def two_views(labels: Callable[[base.FeatureBank], np.ndarray]) -> base.Sampler:
    return lambda bank: two_view_sampler(labels(bank))


RECIPES: dict[str, base.Method] = {
    "views alone": replace(METHODS["srpml"], loss=lambda spec: Nothing()),
    "sRPML": METHODS["srpml"],
    "halves agree, two levels": srpml(agreed(2)),
    "halves agree, three levels": srpml(agreed(3)),
    "two views": srpml(two_views(lambda bank: base.aas_labels(bank, 2))),
    "two views, halves agree, two levels": srpml(two_views(agreed_labels)),
    "two views, halves agree, three levels": srpml(two_views(lambda bank: agreed_labels(bank, 3))),
    CROSS_FITTED: METHODS["srpml"],  # completed by `cross_fitted`
    "true classes": replace(srpml(base.class_sampler), uses_labels=True),
    "NCE, a tenth of its loss": tenth("nce"),
    "NCE, memory from the first view": replace(METHODS["nce"], loss=FilledNCE),
    "Lifted, a tenth of its loss": tenth("lifted"),
    "MOM, only triplets of correct classes": replace(
        METHODS["mom"], sampler=correct_pools, uses_labels=True
    ),
}


def measure(problem: Problem, rows: Rows, name: str) -> None:
    """Add the row of a recipe unless it is there."""
    key = {"problem": problem.name, "recipe": name, "seed": 0}
    if rows.has(**key):
        return
    method, begun = RECIPES[name], time.process_time()
    if name == CROSS_FITTED:
        method = cross_fitted(problem)
    embedder, _ = problem.trained(method, problem.images.training.schedule)
    seconds = round(time.process_time() - begun, 1)
    rows.add({**key, **problem.score(embedder), "seconds": seconds})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", default="|".join(RECIPES), help="separated by |")
    parser.add_argument("--halves", default="1,2")
    add_common(parser)
    parser.set_defaults(name="cub130_deep_choice")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    images, rows = Images(chosen), Rows(chosen)
    for problem in images.halves():
        if problem.name.removeprefix("half ") in chosen.halves.split(","):
            measure_frozen(problem, rows, 0)
            for name in chosen.recipes.split("|"):
                measure(problem, rows, name)


if __name__ == "__main__":
    main()
