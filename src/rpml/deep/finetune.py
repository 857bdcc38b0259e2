"""From images to a trained network: trunk cache, common start, training, one ONNX file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.deep.backbones import Network
from rpml.deep.embedder import (
    Embedder,
    MultiViewDataset,
    frozen_descriptors,
    linear_start,
)
from rpml.deep.inputs import ImageInputs, ImageSpec, open_inputs
from rpml.deep.methods.base import Method
from rpml.deep.methods.batches import Indices
from rpml.deep.schedule import Schedule, check_budget, paper_schedule
from rpml.deep.trainer import Trainer
from rpml.method.whitening.linear_map import Preprocessing, identity
from rpml.runtime.context import Arrays, Context
from rpml.runtime.errors import InputError
from rpml.runtime.schema import ArraySpec, Schema
from rpml.vision.files import ImageFile


@dataclass(frozen=True)
class Training:
    """The settings of a training run, without the network and the method."""

    dim: int = 128
    """Size of the embedding."""
    pool: str = "mac"
    """From feature map to descriptor: "mac", "average" or "gem"."""
    bf16: bool = False
    """Compute the convolutions in bfloat16."""
    image_spec: ImageSpec = field(default_factory=ImageSpec)
    schedule: Schedule = field(default_factory=Schedule)
    budget: str = "common"
    """"paper": the published epochs and batch size of each method instead of the schedule's (see
    `rpml.deep.schedule.paper_schedule`)."""

    def __post_init__(self) -> None:
        check_budget(self.budget)

    def schedule_of(self, method: str) -> Schedule:
        """The schedule of a method (a key of `rpml.deep.methods.METHODS`)."""
        return paper_schedule(method, self.schedule) if self.budget == "paper" else self.schedule


@dataclass(frozen=True)
class Initialization:
    """Where every method starts: activations, descriptors before training and the embedder.

    The embedder is the linear RPML on the descriptors of all views: whitening and projection.
    """

    inputs: ImageInputs
    frozen: NDArray[np.float32]
    embedder: Embedder


def prepare(
    files: Sequence[ImageFile],
    network: Network,
    training: Training,
    folder: Path,
    context: Context,
    descriptor_context: Context | None = None,
) -> Initialization:
    """Cache the activations of the trunk, if any, in `folder` and fit the initial embedder.

    It is the linear RPML on the descriptors of the images and their views. The descriptors depend
    on fewer settings, so they may have a context with a checkpoint of their own.
    """
    if training.dim >= len(files):  # before the minutes that the cache takes
        raise InputError(
            f"n_components={training.dim} needs more images than that, there are {len(files)}: ask "
            "for fewer dimensions or pass more images"
        )
    inputs = open_inputs(files, network, training.image_spec, folder, context)
    plain = descriptor_network(network, inputs, training)
    frozen = frozen_descriptors(plain, inputs, descriptor_context or context)

    def learn() -> Arrays:
        fitted = linear_start(frozen, training.dim, training.schedule.seed)
        whitening = fitted.preprocessing_
        return {"mean": whitening.mean, "matrix": whitening.matrix, "L": fitted.components_.T}

    d = frozen.shape[2]
    shapes = {"mean": (d,), "matrix": (d, "axes"), "L": ("axes", training.dim)}
    schema = Schema({name: ArraySpec("f", shape) for name, shape in shapes.items()})
    arrays = context.stage("linear", schema, learn)
    whitening = Preprocessing(True, arrays["mean"], arrays["matrix"], True)
    embedder = Embedder(network.upper, training.pool, whitening, arrays["L"], training.bf16)
    return Initialization(inputs, frozen, embedder)


def descriptor_network(network: Network, inputs: MultiViewDataset, training: Training) -> Embedder:
    """The network up to its pooling, as an embedder with the identity as projection."""
    maps = inputs.load(np.zeros(1, np.intp), np.zeros(1, np.intp))
    d = network.upper(maps).shape[1]
    return Embedder(network.upper, training.pool, identity(d, True), np.eye(d), training.bf16)


def finetune(
    initial: Initialization,
    method: Method,
    schedule: Schedule,
    context: Context,
    classes: Indices | None = None,
) -> tuple[Embedder, list[dict[str, float]]]:
    """Train by one method; returns the embedder and the scores of each epoch."""
    trainer = Trainer(initial.embedder, initial.inputs, method, schedule, initial.frozen, classes)
    embedder = trainer.run(context)
    return embedder.eval(), trainer.state.history
