"""rpml benchmark: the paper's protocol on its datasets, end to end."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, table
from rpml.cli.finetune import TrainingOptions, require_torch
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from rpml.deep.finetune import Training
    from rpml.evaluation.protocol import Descriptors, Row
    from rpml.runtime.context import Context

DATASETS = ("cub", "cars", "sop", "folders")
EXAMPLES = """\b
Examples:
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
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help=", ".join(DATASETS) + ".")],
    root: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the dataset's images.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(metavar="X.onnx", help="Network that describes the images.")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Descriptors to use; .npz may hold y and train too."),
    ] = None,
    output: Annotated[
        str | None, opt.output("FOLDER", "Output folder; default: benchmark-DATASET.")
    ] = None,
    dim: Annotated[int, typer.Option(min=1, help="Dimensions of the embeddings.")] = 128,
    methods: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Methods to measure; default: all.")
    ] = None,
    whiten: Annotated[
        int | None,
        typer.Option(min=1, help="PCA-whiten the descriptors to this many dimensions first."),
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="FILE", help="Labels of --features, if not inside.")
    ] = None,
    array: Annotated[
        str | None, typer.Option("--array", metavar="NAME", help="Array of an .npz file to read.")
    ] = None,
    deep: Annotated[
        str | None,
        typer.Option(metavar="NAME,...|all", help="Also train the network, by these methods."),
    ] = None,
    workers: opt.Parallel = None,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Accept counts that differ from the published.")
    ] = False,
    figures: Annotated[
        bool, typer.Option(help="Draw retrieval examples and the quad-grid.")
    ] = True,
    seed: opt.Seed = 0,
    force: opt.Force = False,
    threads: opt.Threads = None,
    *,
    descriptor: opt.DescriptorOptions,
    training: TrainingOptions,
    console: Console,
) -> None:
    """Run the paper's protocol: fit on the training classes without labels, score the others."""
    opt.use_threads(threads)
    if dataset not in DATASETS:
        raise InputError(f"there is no dataset {dataset!r}: choose from {', '.join(DATASETS)}")
    from rpml.evaluation.protocol import DEFAULT_METHODS
    from rpml.evaluation.registry import chosen_methods

    names = tuple(methods.split(",")) if methods else DEFAULT_METHODS
    chosen_methods(names)
    folder = Path(output or f"benchmark-{dataset}")
    run = Run(dataset, folder, console, {"dim": dim, "seed": seed, "whiten": whiten})
    if deep is not None:
        pool = "mac" if descriptor.pool == "rmac" else descriptor.pool
        run.plan_deep(deep, root, backbone, training, pool, incomplete)
    if features is not None:
        data = run.read(features, array, labels)
    else:
        network = _network(backbone, descriptor, workers)
        data = run.describe(root, network, incomplete)
    run.measure(data, names, figures, force)


def _network(path: str | None, descriptor: opt.DescriptorOptions, workers: int | None) -> Any:
    if path is None:
        raise InputError("give --root and --backbone to start from images, or --features")
    from rpml.vision.descriptors import Network
    from rpml.vision.extract import Execution

    return Network(path, descriptor.sidecar, descriptor.recipe(), Execution(workers))


@dataclass(frozen=True)
class DeepPlan:
    """What --deep asks for."""

    root: str
    backbone: str
    train_from: str | None
    training: Training
    names: tuple[str, ...]
    incomplete: bool


class Run:
    """One benchmark: where it writes and what was asked for."""

    def __init__(
        self, dataset: str, folder: Path, console: Console, settings: dict[str, Any]
    ) -> None:
        self.dataset, self.folder, self.console = dataset, folder, console
        self.settings = settings
        self.deep: DeepPlan | None = None

    def plan_deep(
        self,
        names: str,
        root: str | None,
        backbone: str | None,
        options: TrainingOptions,
        pool: str,
        incomplete: bool,
    ) -> None:
        """Check what --deep asks for, before anything is computed."""
        require_torch()
        if root is None or backbone is None:
            raise InputError("--deep trains on images: give --root and --backbone")
        from rpml.deep.methods import METHODS, check_methods

        chosen = tuple(METHODS) if names == "all" else check_methods(names.split(","))
        training = options.training(self.settings["dim"], pool, {"seed": self.settings["seed"]})
        self.deep = DeepPlan(root, backbone, options.train_from, training, chosen, incomplete)
        self.settings |= {"deep": {"train_from": options.train_from, **training.settings()}}

    def read(self, path: str, array: str | None, labels: str | None) -> Descriptors:
        """Descriptors from a file."""
        from rpml.evaluation.protocol import from_file
        from rpml.io.features import ReadOptions

        return from_file(self.dataset, path, ReadOptions(array=array), labels)

    def describe(self, root: str | None, network: Any, incomplete: bool) -> Descriptors:
        """Descriptors of the dataset's images."""
        from rpml.evaluation.protocol.descriptors import read_dataset
        from rpml.runtime.context import Context
        from rpml.vision.descriptors import from_images

        if root is None:
            raise InputError("--backbone needs --root, the folder of the dataset")
        images = read_dataset(self.dataset, root, incomplete)
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.console.reporter() as report:
            context = Context(report=report)
            data = from_images(self.dataset, images, network, self.folder, context)
        if data.origin["left_out"]:
            self.console.note(
                f"rpml: warning: {data.origin['left_out']} images were skipped, see "
                f"{self.folder / 'failures.csv'}: these are not the published counts"
            )
        return data

    def measure(
        self, data: Descriptors, names: tuple[str, ...], figures: bool, force: bool
    ) -> None:
        """Run the methods, write results.json, results.md and the figures, print the table."""
        from rpml.evaluation.protocol import as_fields, as_lines, as_markdown, run_methods
        from rpml.evaluation.protocol.published import published_rows
        from rpml.io.checkpoint import data_digest, fingerprint

        if self.settings["whiten"] is not None:
            data = data.whitened(self.settings["whiten"])
        self.folder.mkdir(parents=True, exist_ok=True)
        digest = data_digest(data.X, data.train.astype("u1"))
        key = fingerprint(digest, self.settings)
        self._check_earlier(key, force)
        with self.console.reporter() as report:
            context = self._context(report, digest, key)
            rows, embeddings = run_methods(
                data, names, self.settings["dim"], self.settings["seed"], context
            )
            if self.deep is not None:
                more = self._run_deep(self.deep, data.ks, context)
                rows, embeddings = rows + more[0], embeddings | more[1]
        published = published_rows(self.dataset)
        drawn = self._draw(data, embeddings, rows) if figures else []
        fields = {**self._origin(data, key), **as_fields(rows, published), "figures": drawn}
        self._write("results.json", json.dumps(fields, indent=2, default=str) + "\n")
        self._write("results.md", as_markdown(rows, published, data.ks))
        text = table(as_lines(rows, published, data.ks))
        self.console.result(fields, f"{text}\n\nwritten to {self.folder}")

    def _run_deep(self, plan: DeepPlan, ks: tuple[int, ...], context: Context) -> Any:
        """Rows of the methods that train the network."""
        from rpml.deep.backbones import open_network
        from rpml.deep.protocol import DeepProtocol
        from rpml.evaluation.protocol.descriptors import read_dataset
        from rpml.runtime.context import Context

        images = read_dataset(self.dataset, plan.root, plan.incomplete)
        network = open_network(plan.backbone, plan.train_from)
        listener = Context(report=context.report)
        protocol = DeepProtocol(images, network, plan.training, self.folder / "deep", listener)
        return protocol.run(plan.names, ks)

    def _context(self, report: Any, digest: str, key: str) -> Context:
        from rpml.io.checkpoint import Checkpoint
        from rpml.runtime.context import Context

        place = self.folder / f"cache-{key[:12]}"
        return Context(report=report, store=Checkpoint(place, digest, self.settings, resume=True))

    def _check_earlier(self, key: str, force: bool) -> None:
        """Results of other data or settings are not replaced unasked."""
        path = self.folder / "results.json"
        if not path.exists() or force:
            return
        try:
            same = json.loads(path.read_text(encoding="utf8")).get("fingerprint") == key
        except (OSError, ValueError, AttributeError):
            same = False
        if not same:
            raise InputError(
                f"{path} is of other data or settings: choose another folder with -o, or pass "
                "--force to replace it"
            )

    def _origin(self, data: Descriptors, key: str) -> dict[str, Any]:
        """Everything needed to repeat the run."""
        from rpml.pages.report.training import versions
        from rpml.runtime.threads import thread_count

        train = data.train
        return {
            "dataset": self.dataset,
            "command": ["rpml", *sys.argv[1:]],
            "fingerprint": key,
            **self.settings,
            "origin": data.origin,
            "rows": {"train": int(train.sum()), "test": int((~train).sum())},
            "classes": {
                "train": len(set(data.labels[train].tolist())),
                "test": len(set(data.labels[~train].tolist())),
            },
            "threads": thread_count(),
            "versions": versions(),
        }

    def _write(self, name: str, text: str) -> None:
        from rpml.runtime.atomic import atomic_output

        with atomic_output(self.folder / name) as temporary:
            temporary.write_text(text, encoding="utf8")

    def _draw(self, data: Descriptors, embeddings: dict[str, Any], rows: list[Row]) -> list[str]:
        """The paper's pictures of the test images, if they are at hand."""
        from rpml.evaluation.protocol.scores import LEARNED
        from rpml.pages.report.protocol_figures import draw_figures

        if data.images is None:
            return []
        chosen = LEARNED if LEARNED in embeddings else rows[-1].method
        self.console.note(f"drawing the figures of {chosen}")
        return draw_figures(
            data, embeddings[chosen], self.folder / "figures", self.settings["seed"]
        )
