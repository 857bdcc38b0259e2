"""rpml finetune: train the upper blocks of a network on images, without labels."""

import time
from dataclasses import fields

from rpml.cli import options as opt
from rpml.cli.command import Console, Interrupted, command
from rpml.runtime.errors import InputError

EXAMPLES = """
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


@command
def run(
    *,
    images: str = opt.IMAGES,
    backbone: str = opt.text("X.onnx", "GoogLeNet's ONNX file or efficientnet-lite0.", default=...),
    output: str = opt.output("OUT.onnx", "The trained network."),
    method: str = opt.text("NAME", "Training method.", default="srpml"),
    dim: int = opt.number("Dimensions of the embedding.", default=128),
    pool: str = opt.text("NAME", "mac, average or gem.", default="mac"),
    patience: int | None = opt.number("Stop after N epochs without a better label-free score."),
    settings: list[str] | None = opt.SETTINGS,
    folder_labels: bool = opt.flag("Folders are classes (supervised methods)."),
    cache: str | None = opt.text("DIR", "Keep the frozen activations here."),
    seed: int = opt.SEED,
    resume: bool = opt.RESUME,
    force: bool = opt.FORCE,
    options: opt.TrainingOptions,
    console: Console,
) -> None:
    """Fine-tune a network and an embedding on unlabeled images."""
    opt.require_torch()
    from rpml.deep.backbones import open_network
    from rpml.deep.finetune import ResumableFinetuning
    from rpml.deep.methods import METHODS, check_methods
    from rpml.deep.trainer import Schedule
    from rpml.runtime.context import Context
    from rpml.runtime.files import locked
    from rpml.vision.images import find_images

    check_methods([method])
    if METHODS[method].uses_labels and not folder_labels:
        raise InputError(f"--method {method} is supervised: it needs --folder-labels")
    job = ResumableFinetuning(output, resume, force, cache)
    names = [field.name for field in fields(Schedule)]
    named = {"patience": patience, "epochs": options.epochs, "learning_rate": options.learning_rate}
    given = [name for name, value in {**named, "seed": seed or None}.items() if value is not None]
    chosen = {"patience": patience, "seed": seed, **opt.parse_settings(settings, names, given)}
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
        context = Context(report=console.reporter())
        trained = job.train(files, network, training, method, context)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; repeat the command with --resume to continue") from None
    result = {
        "output": output,
        "method": METHODS[method].title,
        "images": len(trained.inputs),
        "left_out": len(trained.inputs.failures),
        "dim": dim,
        "epochs": len(trained.history),
        "loss": trained.history[-1]["loss"],
        "seconds": round(time.monotonic() - begun, 1),
    }
    console.result(result, result)
