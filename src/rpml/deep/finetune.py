"""From images to a trained network: trunk cache, common start, training, one ONNX file.

Also the protocol of the paper for methods that train the network.
"""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress
from pathlib import Path, PurePosixPath
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from rpml.deep.backbones import Network
from rpml.deep.embedder import (
    Embedder,
    MultiViewDataset,
    descriptors,
    frozen_descriptors,
    has_bf16,
    linear_start,
)
from rpml.deep.inputs import ImageSpec, open_inputs
from rpml.deep.methods import METHODS, check_methods
from rpml.deep.methods.base import Method
from rpml.deep.trainer import BUDGETS, Schedule, Trainer, paper_schedule
from rpml.evaluation.protocol import scores_of
from rpml.io.checkpoint import Checkpoint, ResumableRun, check_directory, fingerprint
from rpml.io.datasets.image_sets import ImageSet
from rpml.method.whitening.linear_map import identity
from rpml.runtime.context import Context, Json, Progress
from rpml.runtime.errors import InputError, require
from rpml.runtime.files import atomic_output, check_apart, check_output
from rpml.runtime.rows import AnyArray, Array, Floats, Indices
from rpml.vision.backbone import find_sidecar
from rpml.vision.extract import files_digest
from rpml.vision.images import ImageFile, Views

OPSET = 17
_SIGNATURE = "rpml.fingerprint"


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
    """"paper": the published epochs and batch size of each method instead of the schedule's."""

    def __post_init__(self) -> None:
        if self.budget not in BUDGETS:
            names = ", ".join(BUDGETS)
            raise InputError(f"the schedule must be one of {names}, got {self.budget!r}")
        if self.bf16 and not has_bf16():
            warnings.warn(
                "this processor has no arithmetic in bfloat16: training is faster without --bf16",
                stacklevel=3,
            )

    def schedule_of(self, method: Method) -> Schedule:
        paper = self.budget == "paper"
        return paper_schedule(method.budget, self.schedule) if paper else self.schedule


def prepare(
    files: Sequence[ImageFile],
    network: Network,
    training: Training,
    folder: Path | None,
    context: Context,
) -> tuple[Embedder, MultiViewDataset, Floats]:
    """Return where every method starts: embedder, inputs and descriptors before training.

    The activations of the trunk, if any, are cached in `folder`, or in the context's checkpoint if
    it is None. The embedder is the linear RPML on the descriptors of the images and their views.
    """
    if training.dim >= len(files):  # before the minutes that the cache takes
        raise InputError(
            f"n_components={training.dim} needs more images than that, there are {len(files)}: ask "
            "for fewer dimensions or pass more images"
        )
    inputs = open_inputs(files, network, training.image_spec, folder, context)
    frozen = frozen_descriptors(descriptor_network(network, inputs, training), inputs, context)
    fitted = linear_start(frozen, training.dim, training.schedule.seed)
    start = fitted.preprocessing_, fitted.components_.T
    return Embedder(network.upper, training.pool, *start, training.bf16), inputs, frozen


def descriptor_network(network: Network, inputs: MultiViewDataset, training: Training) -> Embedder:
    """The network up to its pooling, as an embedder with the identity as projection."""
    maps = inputs.load(np.zeros(1, np.intp), np.zeros(1, np.intp))
    d = network.upper(maps).shape[1]
    return Embedder(network.upper, training.pool, identity(d, True), np.eye(d), training.bf16)


@dataclass(frozen=True)
class ResumableFinetuning(ResumableRun):
    """Train the upper blocks of a network and write it as ONNX; a killed run can resume.

    The activations of the frozen layers and the finished epochs are kept in the folder
    ``<path>.work`` until the network is written.

    Parameters
    ----------
    path : str or Path
        The .onnx file to write.
    resume : bool, default=False
        Continue an interrupted run of the same images, network and settings.
    overwrite : bool, default=False
        Replace an existing file; without `resume` also discard the work of an earlier run.
    cache : str or Path, default=None
        Keep the activations of the frozen layers in this folder, for other runs.

    Examples
    --------
    >>> from rpml.deep.backbones import open_network
    >>> from rpml.deep.finetune import ResumableFinetuning, Training
    >>> from rpml.vision.images import find_images
    >>> network = open_network("googlenet.onnx")  # doctest: +SKIP
    >>> run = ResumableFinetuning("birds.onnx", resume=True)
    >>> run.train(find_images("photos/"), network, Training())  # doctest: +SKIP
    """

    cache: str | Path | None = None
    _suffix: ClassVar[str] = ".work"

    def __post_init__(self) -> None:
        if Path(self.path).suffix != ".onnx":
            raise InputError(
                f"the trained network is an ONNX file: call {self.path} something.onnx"
            )
        check_output(self.path, self.overwrite or self.resume)

    def check(self, inputs: Sequence[str | Path | None] = ()) -> None:
        check_apart([self.path, self.directory], inputs)
        check_output(self.path, self.overwrite)
        check_no_sidecar(self.path)
        check_directory(self.directory)

    def train(
        self,
        files: Sequence[ImageFile],
        network: Network,
        training: Training,
        method: str = "srpml",
        context: Context | None = None,
    ) -> Trainer:
        """Train by one method and write the network; return its `history` and `inputs`.

        Parameters
        ----------
        files : sequence of ImageFile
            The images; for a supervised method their folders are the classes.
        network : Network
            The backbone, split where training starts.
        training : Training
            The settings.
        method : str, default="srpml"
            A key of `rpml.deep.methods.METHODS`.
        context : Context, default=None
            Receives progress.
        """
        check_methods([method])
        with self._running():
            settings, digest = _settings(network, training, method), files_digest(files)
            store = Checkpoint(self.directory, digest, settings, self.resume)
            context = replace(context or Context(), seed=training.schedule.seed, store=store)
            cache = Path(self.cache) if self.cache else None
            embedder, inputs, frozen = prepare(files, network, training, cache, context)
            classes = folder_classes(inputs.ids) if METHODS[method].uses_labels else None
            schedule = training.schedule_of(METHODS[method])
            trainer = Trainer(embedder, inputs, METHODS[method], schedule, frozen, classes)
            trained, size = trainer.run(context), training.image_spec.size
            write_onnx(
                network, trained, size, self.path, fingerprint(digest, settings), self.overwrite
            )
            self.discard()
        return trainer

    def is_complete(
        self, files: Sequence[ImageFile], network: Network, training: Training, method: str
    ) -> bool:
        """Whether the file exists, from a run of the same images, network and settings."""
        key = fingerprint(files_digest(files), _settings(network, training, method))
        return Path(self.path).is_file() and fingerprint_of(self.path) == key


def _settings(network: Network, training: Training, method: str) -> Json:
    return {**asdict(training), "method": method, "network": network.fingerprint()}


def folder_classes(ids: Sequence[str]) -> Indices:
    names = [PurePosixPath(name).parent.name for name in ids]
    if len(set(names)) < 2:
        raise InputError("labels from folders need images in at least two folders")
    return np.unique(names, return_inverse=True)[1]


def write_onnx(
    network: Network,
    embedder: Embedder,
    size: int,
    path: str | Path,
    fingerprint: str | None = None,
    overwrite: bool = True,
) -> None:
    """Write the network and its embedding as one ONNX file, which takes RGB in 0..1.

    `size` is the height and width of the training images; `fingerprint` identifies the run.
    """
    onnx = require("onnx", "vision", "ONNX export")
    # a 1 x 1 feature map, which every pooling leaves unchanged
    as_map = nn.Unflatten(1, (embedder.projection.shape[1], 1, 1))
    whole = nn.Sequential(network.input, network.trunk, embedder.cpu(), as_map).eval()
    bf16, embedder.bf16 = embedder.bf16, False
    try:
        # the exporter warns
        with atomic_output(path, overwrite) as draft, warnings.catch_warnings(action="ignore"):
            torch.onnx.export(
                whole,
                (torch.zeros(1, 3, size, size),),
                str(draft),
                input_names=["image"],
                output_names=["feature_map"],
                dynamic_axes={"image": {0: "images"}, "feature_map": {0: "images"}},
                opset_version=OPSET,
                dynamo=False,  # the other exporter needs another package
            )
            if fingerprint is not None:
                model = onnx.load(str(draft))
                model.metadata_props.add(key=_SIGNATURE, value=fingerprint)
                onnx.save(model, str(draft))
            check_no_sidecar(path)
    finally:
        embedder.bf16 = bf16


def check_no_sidecar(path: str | Path) -> None:
    """Raise InputError if a file would be read as the input convention of the ONNX file."""
    if sidecar := find_sidecar(Path(path)):
        raise InputError(f"{sidecar} is in the way: choose another name for the network")


def fingerprint_of(path: str | Path) -> str | None:
    onnx = require("onnx", "vision", "reading ONNX files")
    try:
        properties = onnx.load(str(path), load_external_data=False).metadata_props
    except Exception:  # not written by rpml
        return None
    return next((p.value for p in properties if p.key == _SIGNATURE), None)


@dataclass(frozen=True)
class DeepProtocol:
    """The protocol of the paper: trains on the training images, evaluates on the test images."""

    images: ImageSet
    network: Network
    training: Training
    methods: tuple[str, ...]
    """Keys of `rpml.deep.methods.METHODS`."""

    def settings(self) -> Json:
        """Return everything that changes the results, as JSON values."""
        train_from = next(name for name, _ in self.network.upper.named_children())
        return {"train_from": train_from, **asdict(self.training)}

    def run(
        self, folder: Path, ks: tuple[int, ...], context: Context
    ) -> tuple[list[Json], dict[str, Array]]:
        """Return rows of the initial embedder and of every method, and their test embeddings.

        `folder` holds the cached activations, which all methods share, and the finished epochs.
        """
        images, network, training = self.images, self.network, self.training
        folder.mkdir(parents=True, exist_ok=True)
        digest, settings = network.fingerprint(), asdict(training)

        def resumable(name: str) -> Context:
            place = folder / f"{name}-{fingerprint(digest, settings)[:12]}"
            store = Checkpoint(place, digest, settings, resume=True)
            return Context(training.schedule.seed, context.report, store)

        files = [ImageFile(path, images.root / path) for path in images.paths]
        held_out, train = (list(compress(files, images.train == side)) for side in (False, True))
        embedder, inputs, frozen = prepare(
            train, network, training, folder / "train", resumable("start")
        )
        image_spec = ImageSpec(training.image_spec.size, Views())
        test = open_inputs(held_out, network, image_spec, folder / "test", context)
        label = dict(zip(images.paths, images.labels.tolist(), strict=True))
        classes = np.unique([label[name] for name in inputs.ids], return_inverse=True)[1]
        y = np.array([label[name] for name in test.ids])
        Z = {"deep-frozen": descriptors(embedder, test)}
        rows = [self._row("frozen", "before training (linear RPML)", Z["deep-frozen"], y, ks)]
        for number, name in enumerate(self.methods):
            context.report(Progress("methods", number + 1, len(self.methods) + 1))
            method = METHODS[name]
            schedule = training.schedule_of(method)
            trainer = Trainer(embedder, inputs, method, schedule, frozen, classes)
            Z[f"deep-{name}"] = descriptors(trainer.run(resumable(name)), test)
            row = self._row(name, f"{method.title}, end to end", Z[f"deep-{name}"], y, ks)
            seconds = round(sum(epoch["seconds"] for epoch in trainer.history), 3)
            used = {**asdict(schedule), "history": trainer.history}
            measured = {"seconds": seconds, "settings": used, "uses_labels": method.uses_labels}
            rows.append(row | measured)
        return rows, Z

    def _row(self, name: str, title: str, Z: Array, y: AnyArray, ks: tuple[int, ...]) -> Json:
        schedule = self.training.schedule
        scores = {"cosine": scores_of(Z, y, "cosine", ks, schedule.seed)}
        settings = {**asdict(schedule), "history": []}
        row = {"method": f"deep-{name}", "title": title, "dim": Z.shape[1], "scores": scores}
        return row | {"seconds": 0.0, "settings": settings, "warnings": [], "uses_labels": False}
