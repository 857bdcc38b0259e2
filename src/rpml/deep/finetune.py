"""From images to a trained network: trunk cache, common start, training, one ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.deep.backbones import Network
from rpml.deep.cache import Inputs, Sight, TrunkCache, build_cache
from rpml.deep.embedder import Embedder, descriptors, linear_start
from rpml.deep.methods import Method
from rpml.deep.methods.base import Indices
from rpml.deep.trainer import Evaluate, Schedule, Trainer, frozen_descriptors
from rpml.method.whitening.linear_map import Preprocessing, identity
from rpml.runtime.context import Arrays, Context
from rpml.runtime.errors import InputError
from rpml.vision.files import ImageFile


@dataclass(frozen=True)
class Training:
    """Every setting of a run beside the network and the method.

    Parameters
    ----------
    dim : int
        Size of the embedding.
    pool : {"mac", "average", "gem"}
        From feature map to descriptor.
    half : bool
        Convolutions in bfloat16.
    sight : Sight
        Size of the images, and their views.
    schedule : Schedule
        How long and how fast.
    """

    dim: int = 128
    pool: str = "mac"
    half: bool = False
    sight: Sight = field(default_factory=Sight)
    schedule: Schedule = field(default_factory=Schedule)

    def settings(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Start:
    """What all methods have in common: activations, descriptors before training, the embedder.

    The embedder is the frozen linear RPML: its whitening of the descriptors and its projection.
    """

    inputs: TrunkCache
    frozen: NDArray[np.float32]
    embedder: Embedder


def prepare(
    files: Sequence[ImageFile], network: Network, training: Training, folder: Path, context: Context
) -> Start:
    """Cache the trunk's activations in `folder` and learn the common start."""
    if training.dim >= len(files):  # said before the minutes that the cache takes
        raise InputError(
            f"n_components={training.dim} needs more images than that, there are {len(files)}: ask "
            "for fewer dimensions or pass more images"
        )
    inputs = build_cache(files, network, training.sight, folder, context)
    frozen = frozen_descriptors(descriptor_network(network, inputs, training), inputs, context)
    return common_start(inputs, frozen, network, training, context)


def common_start(
    inputs: TrunkCache,
    frozen: NDArray[np.float32],
    network: Network,
    training: Training,
    context: Context,
) -> Start:
    """The linear RPML on the descriptors of the images themselves, as the start of training."""

    def learn() -> Arrays:
        fitted = linear_start(frozen[:, 0], training.dim, training.schedule.seed)
        whitening = fitted.preprocessing_
        return {"mean": whitening.mean, "matrix": whitening.matrix, "L": fitted.components_.T}

    found = context.stage("linear", learn)
    whitening = Preprocessing(True, found["mean"], found["matrix"], True)
    embedder = Embedder(network.upper, training.pool, whitening, found["L"], training.half)
    return Start(inputs, frozen, embedder)


def descriptor_network(network: Network, inputs: Inputs, training: Training) -> Embedder:
    """The network with nothing behind its pooling."""
    maps = inputs.load(np.zeros(1, np.intp), np.zeros(1, np.intp))
    d = network.upper(maps).shape[1]
    return Embedder(network.upper, training.pool, identity(d, True), np.eye(d), training.half)


def finetune(
    start: Start,
    method: Method,
    schedule: Schedule,
    context: Context,
    classes: Indices | None = None,
    evaluate: Evaluate | None = None,
) -> tuple[Embedder, list[dict[str, float]]]:
    """Train by one method from the common start; the embedder and the scores of each epoch."""
    trainer = Trainer(start.embedder, start.inputs, method, schedule, start.frozen, classes)
    embedder = trainer.run(context, evaluate)
    return embedder.eval(), trainer.state.history


def embed(embedder: Embedder, cache: TrunkCache) -> NDArray[np.float32]:
    """The embedding of every image of a cache, as unit rows."""
    return descriptors(embedder, cache, 0)
