"""rpml features: describe images by an ONNX network."""

import time

import typer

from rpml.cli import options as opt
from rpml.cli.command import SKIPPED, Console, Interrupted, command
from rpml.runtime.errors import InputError, counted

EXAMPLES = """
  rpml features photos/ --backbone googlenet.onnx -o features.npy
  rpml features photos/ --backbone googlenet.onnx -o features.npy --scales 256 --pool gem
  rpml features photos/ --backbone googlenet.onnx -o features.npy --views 3
  rpml features photos/ --backbone googlenet.onnx -o features.npy --views 8 --average-views
  rpml features all/ --backbone googlenet.onnx -o features.npy --whiten 512 --whiten-on 'train/*'
  rpml features photos/ --backbone googlenet.onnx -o features.npy --resume
\b
Written next to features.npy: features.ids.csv (other formats hold the ids), features.groups.csv
(with --views), features.labels.csv (with --folder-labels) and features.failures.csv (if images
were skipped). Exit code 3: finished, but some images were skipped.
"""


@command
def run(
    *,
    images: str = opt.IMAGES,
    backbone: str = opt.text("X.onnx", "Network with a feature-map output.", default=...),
    output: str = opt.output("OUT", ".npy, .npz, .parquet, .csv or NAME/ for shards."),
    descriptor: opt.DescriptorOptions,
    views: int = opt.number("Augmented views per image.", minimum=0, default=0),
    augmentations: str = opt.text(
        "NAME,...", "Augmentations of the views.", default="rotate,crop,flip,color"
    ),
    average_views: bool = opt.flag("One row per image: the mean over its views."),
    seed: int = opt.SEED,
    whiten: int | None = opt.number("Learn a PCA whitening to this many dimensions."),
    whiten_on: str = opt.text("PATTERN", "Ids that the whitening is learned on.", default="*"),
    whitening: str | None = opt.text("FILE", "Apply a whitening from an earlier run."),
    folder_labels: bool = opt.flag("Write NAME.labels.csv: each image's folder."),
    workers: int | None = opt.PARALLEL,
    max_pixels: int = opt.number("Skip images with more pixels.", default=100_000_000),
    strict: bool = opt.flag("Stop at the first image that cannot be used."),
    resume: bool = opt.RESUME,
    force: bool = opt.FORCE,
    console: Console,
) -> None:
    """Turn images into vectors with an ONNX network.

    The vectors are R-MAC or other poolings of the network's feature maps.
    """
    from rpml.runtime.context import Context
    from rpml.runtime.files import check_apart
    from rpml.vision.backbone import Backbone
    from rpml.vision.extract import Job, call_threads
    from rpml.vision.images import Views, find_images
    from rpml.vision.pooling import load_whitening
    from rpml.vision.resumable import PostProcess, ResumableExtraction

    if whiten is not None and whitening is not None:
        raise InputError("--whiten learns a whitening and --whitening applies one: give one")
    check_apart([output], [whitening])  # which may be a table next to it, of an earlier run
    applied = load_whitening(whitening) if whitening else None
    post = PostProcess(whiten, whiten_on, applied, folder_labels)
    recipe = descriptor.recipe(
        views=Views(views, tuple(filter(None, augmentations.split(","))), seed),
        average_views=average_views,
        max_pixels=max_pixels,
    )
    extraction = ResumableExtraction(output, resume, force)
    extraction.check([images, backbone])
    files = find_images(images)
    network = Backbone(backbone, call_threads(workers))
    job = Job(files, network, recipe, workers, strict)
    resumed, start = resume and extraction.directory.exists(), time.monotonic()
    try:
        context = Context(report=console.reporter())
        written = extraction.extract(job, post, context)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; repeat the command with --resume to continue") from None
    seconds, failures = time.monotonic() - start, str(extraction.table("failures.csv"))
    fields = {
        "output": extraction.path,
        "rows": written.rows,
        "dim": written.dimension,
        "images": written.images,
        "left_out": len(written.failures),
        "seconds": round(seconds, 2),
    }
    if written.computed and not resumed:  # otherwise parts took no time
        fields["images_per_second"] = round(written.images / seconds, 2)
    if written.failures:
        fields["failures"] = failures
    text = fields if written.computed else f"{extraction.path} is already complete"
    console.result(fields, text)
    if written.failures:
        skipped = counted(len(written.failures), "image was", "images were")
        console.note(f"rpml: {skipped} skipped, see {failures}")
        raise typer.Exit(SKIPPED)
