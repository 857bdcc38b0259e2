"""rpml features: describe images by an ONNX network."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rpml.cli.command import SKIPPED, Interrupted, command
from rpml.cli.console import Console, fields_text
from rpml.cli.options import common as opt
from rpml.cli.options.images import DescriptorOptions, ImagesPath
from rpml.runtime.errors import InputError
from rpml.runtime.wording import counted

if TYPE_CHECKING:
    from rpml.vision.outputs import Written

EXAMPLES = """\b
Examples:
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
    images: ImagesPath,
    backbone: Annotated[str, opt.text("X.onnx", "Network with a feature-map output.")],
    output: Annotated[str, opt.output("OUT", ".npy, .npz, .parquet, .csv or NAME/ for shards.")],
    descriptor: DescriptorOptions,
    levels: Annotated[int, opt.number("Levels of R-MAC regions.")] = 3,
    whole_map: Annotated[
        bool, opt.flag("Add the whole map to the R-MAC regions.", "--whole-map")
    ] = False,
    power: Annotated[float, typer.Option(help="Exponent of gem.")] = 3.0,
    region_whitening: Annotated[
        str | None, opt.text("learn|FILE", "Whiten each R-MAC region before the sum.")
    ] = None,
    views: Annotated[int, opt.number("Augmented views per image.", minimum=0)] = 0,
    augmentations: Annotated[
        str, opt.text("NAME,...", "Augmentations of the views.")
    ] = "rotate,crop,flip,color",
    average_views: Annotated[
        bool, opt.flag("One row per image: the mean over its views.", "--average-views")
    ] = False,
    seed: opt.Seed = 0,
    whiten: Annotated[
        int | None, opt.number("Learn a PCA whitening to this many dimensions.")
    ] = None,
    whiten_on: Annotated[str, opt.text("PATTERN", "Ids that the whitening is learned on.")] = "*",
    whitening: Annotated[
        str | None, opt.text("FILE", "Apply a whitening from an earlier run.")
    ] = None,
    folder_labels: Annotated[
        bool, opt.flag("Write NAME.labels.csv: each image's folder.", "--folder-labels")
    ] = False,
    workers: opt.Parallel = None,
    batch: Annotated[int, opt.number("Images of equal shape per batch.")] = 4,
    max_pixels: Annotated[int, opt.number("Skip images with more pixels.")] = 100_000_000,
    strict: Annotated[
        bool, opt.flag("Stop at the first image that cannot be used.", "--strict")
    ] = False,
    resume: opt.Resume = False,
    force: opt.Force = False,
    *,
    console: Console,
) -> None:
    """Turn images into vectors with an ONNX network.

    The vectors are R-MAC or other poolings of the network's feature maps.
    """
    from rpml.runtime.context import Context
    from rpml.vision.backbone import Backbone
    from rpml.vision.engine import Execution
    from rpml.vision.extract import Job
    from rpml.vision.files import find_images
    from rpml.vision.outputs import PostProcess
    from rpml.vision.pooling import DescriptorWhitening, Pooling
    from rpml.vision.resumable import ResumableExtraction
    from rpml.vision.views import Views

    if whiten is not None and whitening is not None:
        raise InputError("--whiten learns a whitening and --whitening applies one: give one")
    if region_whitening is not None and descriptor.pool != "rmac":
        raise InputError("--region-whitening needs --pool rmac, the only one with regions")
    post = PostProcess(
        whiten, whiten_on, DescriptorWhitening.load(whitening) if whitening else None, folder_labels
    )
    recipe = descriptor.recipe(
        pooling=Pooling(descriptor.pool, levels, whole_map, power),
        views=Views(views, tuple(filter(None, augmentations.split(","))), seed),
        average_views=average_views,
        max_pixels=max_pixels,
    )
    execution = Execution(workers, batch, strict=strict)
    extraction = ResumableExtraction(output, resume, force)
    extraction.check([images, backbone, descriptor.sidecar])
    files = find_images(images)
    network = Backbone(backbone, descriptor.sidecar, execution.threads()[1])
    job = Job(files, network, recipe, execution)
    resumed, start = resume and extraction.started, time.monotonic()
    try:
        with console.reporter() as report:
            context = Context(report=report)
            written = extraction.extract(job, post, region_whitening, context)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; repeat the command with --resume to continue") from None
    finish(written, output, time.monotonic() - start, resumed, console)


def finish(written: Written, output: str, seconds: float, resumed: bool, console: Console) -> None:
    """Print the result; exit with code 3 if images were skipped."""
    from rpml.vision.outputs import OutputPaths

    failures = str(OutputPaths(output).failures)
    fields = {
        "output": output,
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
    console.result(
        fields, fields_text(fields) if written.computed else f"{output} is already complete"
    )
    if written.failures:
        console.note(
            f"rpml: {counted(len(written.failures), 'image was', 'images were')} skipped, see "
            f"{failures}"
        )
        raise typer.Exit(SKIPPED)
