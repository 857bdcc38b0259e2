"""rpml finetune: train the upper blocks of a network on images, without labels."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpml.cli import options as opt
from rpml.cli.command import Interrupted, command
from rpml.cli.console import Console, fields_text
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from rpml.deep.backbones import Network
    from rpml.deep.finetune import Training
    from rpml.vision.files import ImageFile

EXAMPLES = """\b
Examples:
  rpml finetune photos/ --backbone googlenet.onnx -o birds.onnx
  rpml features photos/ --backbone birds.onnx -o birds.npy
  rpml finetune photos/ --backbone googlenet.onnx -o birds.onnx --resume  (after an interruption)
  rpml finetune photos/ --backbone efficientnet-lite0 -o birds.onnx --train-from block_14
  rpml finetune photos/ --backbone googlenet.onnx -o birds.onnx --method triplet --folder-labels
\b
Everything below --train-from is frozen and computed once for each image and view.
The output is the whole network with its embedding; rpml features reads it like any backbone.
"""
TrainFrom = Annotated[
    str | None,
    typer.Option(metavar="BLOCK", help="First block that trains; the last two if not given."),
]
Size = Annotated[int, typer.Option(min=32, help="Height and width of the images in pixels.")]
ViewCount = Annotated[int, typer.Option(min=0, help="Augmented views an image.")]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the images.")]
Rate = Annotated[
    float | None, typer.Option(metavar="RATE", help="Learning rate of the upper blocks.")
]
Half = Annotated[bool, typer.Option("--half", help="Convolutions in bfloat16.")]
DeepPool = Annotated[str, typer.Option(metavar="NAME", help="mac, average or gem.")]


@command
def run(
    images: Annotated[
        str,
        typer.Argument(metavar="IMAGES", help="A folder, a .txt list of paths, or one image."),
    ],
    backbone: Annotated[
        str,
        typer.Option(metavar="X.onnx", help="GoogLeNet's ONNX file, or efficientnet-lite0."),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT.onnx", help="The trained network.")
    ],
    method: Annotated[str, typer.Option(metavar="NAME", help="What it learns by.")] = "srpml",
    dim: Annotated[int, typer.Option(min=1, help="Size of the embedding.")] = 128,
    train_from: TrainFrom = None,
    size: Size = 224,
    views: ViewCount = 8,
    epochs: Epochs = 6,
    learning_rate: Rate = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of the schedule."),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after so many epochs without a better label-free score."),
    ] = None,
    pool: DeepPool = "mac",
    half: Half = False,
    folder_labels: Annotated[
        bool, typer.Option("--folder-labels", help="The folders are classes (supervised methods).")
    ] = False,
    cache: Annotated[
        str | None, typer.Option(metavar="DIR", help="Keep the frozen activations here.")
    ] = None,
    seed: opt.Seed = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run of the same output.")
    ] = False,
    force: opt.Force = False,
    threads: opt.Threads = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Train a network's upper blocks and an embedding on images that nobody labelled."""
    opt.use_threads(threads)
    require_torch()
    from rpml.deep.backbones import open_network
    from rpml.deep.methods import METHODS, check_methods
    from rpml.runtime.atomic import check_output
    from rpml.vision.files import find_images

    check_methods([method])
    if Path(output).suffix != ".onnx":
        raise InputError(f"the trained network is an ONNX file: call {output} something.onnx")
    if METHODS[method].uses_labels and not folder_labels:
        raise InputError(f"--method {method} is supervised: it needs --folder-labels")
    target = check_output(output, force)
    chosen = {"epochs": epochs, "learning_rate": learning_rate, "patience": patience, "seed": seed}
    training = make_training(chosen, settings or [], dim, (size, views), (pool, half))
    files = find_images(images)
    network = open_network(backbone, train_from)
    job = Finetuning(target, files, network, training, method)
    console = Console(quiet, json_output)
    fields = job.run(console, Path(cache) if cache else None, resume, force)
    console.result(fields, fields_text(fields))


def require_torch() -> None:
    """Say which extra is missing before anything else is done."""
    from rpml.runtime.extras import require

    require("torch", "deep", "training a network")
    require("pytorch_metric_learning", "deep", "training a network")


def make_training(
    chosen: dict[str, Any],
    pairs: list[str],
    dim: int,
    sight: tuple[int, int],
    network: tuple[str, bool],
) -> Training:
    """The settings of the command line; what is None keeps its default."""
    from dataclasses import asdict

    from rpml.deep.cache import Sight
    from rpml.deep.finetune import Training
    from rpml.deep.trainer import Schedule
    from rpml.vision.views import Views

    given = {name: value for name, value in chosen.items() if value is not None}
    given |= opt.parse_settings(pairs, asdict(Schedule()), "--set")
    (size, views), (pool, half) = sight, network
    return Training(dim, pool, half, Sight(size, Views(views)), Schedule(**given))


class Finetuning:
    """One run: where it writes, and what it may find there."""

    def __init__(
        self,
        target: Path,
        files: list[ImageFile],
        network: Network,
        training: Training,
        method: str,
    ) -> None:
        self.target, self.files, self.network = target, files, network
        self.training, self.method = training, method

    @property
    def work(self) -> Path:
        """Activations and finished epochs, until the network is written."""
        return self.target.with_name(self.target.name + ".work")

    def run(
        self, console: Console, cache: Path | None, resume: bool, force: bool
    ) -> dict[str, Any]:
        """Train, write the network, clean up; on Ctrl-C say how to go on."""
        from rpml.io.checkpoint import Checkpoint
        from rpml.runtime.context import Context
        from rpml.vision.extract import files_digest

        if force and not resume:
            shutil.rmtree(self.work, ignore_errors=True)
        settings = {**self.training.settings(), "method": self.method}
        settings["trunk"] = self.network.fingerprint()
        store = Checkpoint(self.work / "run", files_digest(self.files), settings, resume)
        self.work.mkdir(exist_ok=True)
        begun = time.monotonic()
        try:
            with console.reporter() as report:
                context = Context(self.training.schedule.seed, report, store)
                fields = self._train(context, cache or self.work / "trunk")
        except KeyboardInterrupt:
            raise Interrupted("interrupted; repeat the command with --resume to go on") from None
        except InputError:
            with suppress(OSError):  # it holds something that --resume can use
                self.work.rmdir()
            raise
        shutil.rmtree(self.work)
        return {**fields, "seconds": round(time.monotonic() - begun, 1)}

    def _train(self, context: Any, cache: Path) -> dict[str, Any]:
        from rpml.deep.finetune import finetune, prepare
        from rpml.deep.methods import METHODS
        from rpml.deep.onnx_file import write_onnx

        start = prepare(self.files, self.network, self.training, cache, context)
        method = METHODS[self.method]
        classes = _classes(start.inputs.ids) if method.uses_labels else None
        embedder, history = finetune(start, method, self.training.schedule, context, classes)
        write_onnx(self.network, embedder, self.training.sight.size, self.target)
        return {
            "output": str(self.target),
            "method": method.title,
            "images": len(start.inputs),
            "left_out": len(start.inputs.failures),
            "dim": self.training.dim,
            "epochs": len(history),
            "loss": history[-1]["loss"],
        }


def _classes(ids: list[str]) -> Any:
    """The folders of the images, numbered."""
    from pathlib import PurePosixPath

    import numpy as np

    names = [PurePosixPath(name).parent.name for name in ids]
    if len(set(names)) < 2:
        raise InputError("--folder-labels needs images in two folders or more")
    return np.unique(names, return_inverse=True)[1]
