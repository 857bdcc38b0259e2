"""rpml benchmark: the paper's protocol on its datasets, end to end."""

import sys
from dataclasses import replace

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.runtime.errors import InputError, text_table

EXAMPLES = """
  rpml benchmark cub --root CUB_200_2011 --backbone googlenet.onnx -o cub
  rpml benchmark cub --features cub.npz --array rmac -o cub
  rpml benchmark folders --root my-photos --backbone googlenet.onnx --scales 256 -o photos
  rpml benchmark cub --root CUB_200_2011 --backbone googlenet.onnx -o cub --deep srpml,triplet-hard
\b
Datasets: cub (CUB-200-2011), cars (Cars-196), sop (Stanford Online Products), folders (any tree
with one folder per class, below train/ and test/ or split in halves).
The output folder holds results.json, results.md, features.npy and figures/; a second run reuses
what is there.
"""


@command
def run(
    *,
    dataset: str = opt.argument("DATASET", "cub, cars, sop or folders."),
    root: str | None = opt.text("DIR", "Folder of the dataset's images."),
    backbone: str | None = opt.text("X.onnx", "Network that describes the images."),
    features: str | None = opt.text("FILE", "Descriptors to use; .npz may hold y and train too."),
    output: str | None = opt.output("FOLDER", "Default: benchmark-DATASET.", default=None),
    dim: int = opt.number("Dimensions of the embeddings.", default=128),
    methods: str | None = opt.text("NAME,...", "Methods to measure; default: all."),
    whiten: int | None = opt.number("PCA-whiten the descriptors to this many dimensions first."),
    labels: str | None = opt.text("FILE", "Labels of --features, if not inside."),
    array: str | None = opt.text("NAME", "Array of an .npz file to read.", "--array"),
    deep: str | None = opt.text("NAME,...|all", "Also train the network, by these methods."),
    workers: int | None = opt.PARALLEL,
    incomplete: bool = opt.flag("Accept image counts that differ from the published ones."),
    figures: bool = opt.flag("Draw retrieval examples and the quad-grid.", default=True),
    seed: int = opt.SEED,
    force: bool = opt.FORCE,
    descriptor: opt.DescriptorOptions,
    training: opt.TrainingOptions,
    console: Console,
) -> None:
    """Run the paper's protocol on one of its datasets.

    Methods are fitted on the training classes without labels and scored on the test classes.
    """
    from rpml.evaluation.protocol import DEFAULT_METHODS, from_file, read_dataset
    from rpml.io.features import ReadOptions
    from rpml.pages.benchmark import Benchmark
    from rpml.runtime.context import Context

    job = Benchmark(
        dataset,
        output or f"benchmark-{dataset}",
        dim,
        seed,
        whiten,
        tuple(opt.parse_names(methods) or DEFAULT_METHODS),
        notes={"command": ["rpml", *sys.argv[1:]]},
    )
    images = None
    if root is not None and (deep is not None or features is None):
        images = read_dataset(dataset, root, incomplete)
    if deep is not None:
        if images is None or backbone is None:
            raise InputError("--deep trains on images: give --root and --backbone")
        opt.require_torch()
        from rpml.deep.backbones import open_network
        from rpml.deep.finetune import DeepProtocol
        from rpml.deep.methods import METHODS, check_methods

        names = tuple(METHODS) if deep == "all" else check_methods(deep.split(","))
        pool = "mac" if descriptor.pool == "rmac" else descriptor.pool
        settings = training.training(dim, pool, {"seed": seed})
        network = open_network(backbone, training.train_from)
        job = replace(job, end_to_end=DeepProtocol(images, network, settings, names))
    context = Context(report=console.reporter())
    if features is not None:
        data = from_file(dataset, features, ReadOptions(array=array), labels)
    elif images is None or backbone is None:
        raise InputError("give --root and --backbone to start from images, or --features")
    else:
        data = job.describe(images, descriptor.job(backbone, workers), context)
    fields, lines = job.run(data, figures, force, context)
    console.result(fields, f"{text_table(lines)}\n\nwritten to {job.folder}")
