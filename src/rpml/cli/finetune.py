"""rpml finetune: train the upper blocks of a network on images, without labels."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from rpml.cli import options as opt
from rpml.cli.command import Interrupted, command
from rpml.cli.console import Console, fields_text
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from rpml.deep.finetune import Training
    from rpml.pages.benchmark import EndToEnd
    from rpml.runtime.context import Json

EXAMPLES = """\b
Examples:
  rpml finetune photos/ --backbone googlenet.onnx -o birds.onnx
  rpml features photos/ --backbone birds.onnx -o birds.npy
  rpml finetune photos/ --backbone googlenet.onnx -o birds.onnx --resume  (after an interruption)
  rpml finetune photos/ --backbone efficientnet-lite0 -o birds.onnx --train-from block_14
  rpml finetune photos/ --backbone googlenet.onnx -o birds.onnx --method triplet --folder-labels
  rpml finetune photos/ --backbone googlenet.onnx -o birds.onnx --train-from all --schedule paper
\b
Everything below --train-from is frozen and computed once per image and view;
with --train-from all the whole network is trained, which takes a GPU.
The output is the whole network with its embedding, a backbone for rpml features.
"""


@dataclass(frozen=True)
class TrainingOptions:
    """How the upper blocks of a network are trained."""

    train_from: Annotated[
        str | None, opt.text("BLOCK", "First block that trains, or all; default: the last two.")
    ] = None
    size: Annotated[int, opt.number("Height and width of the images.", minimum=32)] = 224
    views: Annotated[int, opt.number("Augmented views per image.", minimum=0)] = 8
    epochs: Annotated[int | None, opt.number("Passes over the images; default: 6.")] = None
    learning_rate: Annotated[
        float | None, opt.text("RATE", "Learning rate of the upper blocks; default: the method's.")
    ] = None
    bf16: Annotated[bool, opt.flag("Run convolutions in bfloat16.", "--bf16")] = False
    schedule: Annotated[
        str, opt.text("NAME", "common, or paper: as long as each paper trains (for a GPU).")
    ] = "common"

    def training(self, dim: int, pool: str, settings: Json) -> Training:
        """Return the settings of a run; `settings` are other fields of the schedule."""
        from rpml.deep.budgets import check_free
        from rpml.deep.cache import ImageSpec
        from rpml.deep.embedder import warn_if_emulated
        from rpml.deep.finetune import Training
        from rpml.deep.schedule import Schedule
        from rpml.vision.views import Views

        changed = {"epochs": self.epochs, "learning_rate": self.learning_rate, **settings}
        changed = {name: value for name, value in changed.items() if value is not None}
        check_free(self.schedule, changed)
        warn_if_emulated(self.bf16)
        image_spec = ImageSpec(self.size, Views(self.views))
        return Training(dim, pool, self.bf16, image_spec, Schedule(**changed), self.schedule)

    def end_to_end(self, root: str, backbone: str, names: str, training: Training) -> EndToEnd:
        """Return the methods that `rpml benchmark --deep` trains, checked before any work."""
        require_torch()
        from rpml.deep.methods import METHODS, check_methods
        from rpml.pages.benchmark import EndToEnd

        methods = tuple(METHODS) if names == "all" else check_methods(names.split(","))
        return EndToEnd(root, backbone, methods, training, self.train_from)


@command
def run(
    images: opt.ImagesPath,
    backbone: Annotated[str, opt.text("X.onnx", "GoogLeNet's ONNX file, or efficientnet-lite0.")],
    output: Annotated[str, opt.output("OUT.onnx", "The trained network.")],
    method: Annotated[str, opt.text("NAME", "Training method.")] = "srpml",
    dim: Annotated[int, opt.number("Dimensions of the embedding.")] = 128,
    pool: Annotated[str, opt.text("NAME", "mac, average or gem.")] = "mac",
    patience: Annotated[
        int | None, opt.number("Stop after this many epochs without a better label-free score.")
    ] = None,
    settings: opt.Settings = None,
    folder_labels: Annotated[
        bool, opt.flag("Folders are classes (supervised methods).", "--folder-labels")
    ] = False,
    cache: Annotated[str | None, opt.text("DIR", "Keep the frozen activations here.")] = None,
    seed: opt.Seed = 0,
    resume: opt.Resume = False,
    force: opt.Force = False,
    *,
    options: TrainingOptions,
    console: Console,
) -> None:
    """Fine-tune a network and an embedding on unlabeled images."""
    require_torch()
    from rpml.deep.backbones import open_network
    from rpml.deep.methods import METHODS, check_methods
    from rpml.deep.resumable import ResumableFinetuning
    from rpml.deep.schedule import Schedule
    from rpml.runtime.context import Context
    from rpml.runtime.locks import locked
    from rpml.vision.files import find_images

    check_methods([method])
    if METHODS[method].uses_labels and not folder_labels:
        raise InputError(f"--method {method} is supervised: it needs --folder-labels")
    job = ResumableFinetuning(output, resume, force, cache)
    names = [field.name for field in fields(Schedule)]
    chosen = {"patience": patience, "seed": seed, **opt.parse_settings(settings, names)}
    training = options.training(dim, pool, chosen)
    files, network = find_images(images), open_network(backbone, options.train_from)
    if resume and job.is_complete(files, network, training, method):
        with locked(output):
            job.discard()
        console.result({"output": output}, f"{output} is already complete")
        return
    job.check([images, backbone, cache])
    begun = time.monotonic()
    try:
        with console.reporter() as report:
            trained = job.train(files, network, training, method, Context(report=report))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; repeat the command with --resume to continue") from None
    result = {
        "output": output,
        "method": METHODS[method].title,
        "images": trained.n_images,
        "left_out": trained.n_skipped,
        "dim": dim,
        "epochs": len(trained.history),
        "loss": trained.history[-1]["loss"],
        "seconds": round(time.monotonic() - begun, 1),
    }
    console.result(result, fields_text(result))


def require_torch() -> None:
    """Raise an error that names the missing extra."""
    from rpml.runtime.extras import require

    require("torch", "deep", "training a network")
    require("pytorch_metric_learning", "deep", "training a network")
