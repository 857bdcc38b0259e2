"""rpml fit: learn an embedding from a file of vectors."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpml.cli import links
from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, fields_text
from rpml.cli.engine import EngineOptions
from rpml.cli.job import Job
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from rpml.estimator import RPML
    from rpml.io.features import Features

EXAMPLES = """\b
Examples:
  rpml fit vectors.npy -o model.rpml
  rpml fit birds.parquet -o birds.rpml --dim 64 --id-column image
  rpml fit vectors.npy -o model.rpml --resume        (after an interruption)
  rpml fit vectors.npy -o model.rpml --labels few.csv --must-link pairs.csv
  rpml fit vectors.npy -o model.rpml --set whiten=1 --set sampler=hard
  rpml fit --config run.toml
  rpml fit shards/ -o model.rpml --engine dask --scheduler tcp://host:8786
"""


@dataclass(frozen=True)
class MethodOptions:
    """Settings of the estimator that have an option of their own."""

    dim: Annotated[
        int | None,
        typer.Option(min=1, help="Dimensions of the embedding; default: 128, or fewer."),
    ] = None
    seed: opt.Seed = 0
    weight: Annotated[
        str | None, typer.Option(metavar="NAME", help="concat, bilinear or constant.")
    ] = None
    solver: Annotated[str | None, typer.Option(metavar="NAME", help="cg, stochastic or gd.")] = None
    neighbors: Annotated[
        int | None, typer.Option(min=1, help="Neighbors per row in the graph.")
    ] = None
    max_iter: opt.MaxIter = None
    paper: Annotated[
        bool, typer.Option("--paper", help="Use the settings printed in the paper.")
    ] = False
    settings: opt.Settings = None
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory limit, on Dask per worker: 800MB, 4GB."),
    ] = None

    @property
    def memory(self) -> int | None:
        """The memory limit in bytes."""
        return opt.parse_size(self.memory_limit, "--memory-limit")

    def build(self, on_dask: bool) -> RPML:
        """The estimator with these settings, checked before any data is read."""
        from rpml.estimator import RPML

        kind = RPML
        if on_dask:
            from rpml.distributed import DaskRPML

            kind = DaskRPML
        given: dict[str, Any] = {
            "n_components": self.dim,
            "random_state": self.seed,
            "weight": self.weight,
            "solver": self.solver,
            "n_neighbors": self.neighbors,
            "max_iter": self.max_iter,
            "memory_limit": None if on_dask else self.memory,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        known = RPML().get_params(deep=False).keys() - {"callback"}
        chosen.update(opt.parse_settings(self.settings, known))
        model = kind.paper(**chosen) if self.paper else kind(**chosen)
        model._validate_params()
        return model


@dataclass(frozen=True)
class SupervisionOptions:
    """What is known of the rows beside the vectors."""

    pseudo_labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Clusters to learn from instead of our own."),
    ] = None
    groups: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="One group per row: rows that show the same instance."),
    ] = None
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="True labels of some rows; empty or -1 elsewhere."),
    ] = None
    must_link: links.MustLink = None
    cannot_link: links.CannotLink = None
    comparisons: links.Comparisons = None
    conflicts: links.Conflicts = "raise"

    def read(
        self, model: RPML, data: Features, reading: opt.LabeledReadingOptions
    ) -> dict[str, Any]:
        """The arguments of `RPML.fit`; pseudo-labels are a setting of the model."""
        from rpml.io.features import read_labels

        n, ids = len(data.values), data.ids
        inputs: dict[str, Any] = {}
        if self.pseudo_labels is not None:
            model.set_params(clustering=read_labels(self.pseudo_labels, n, ids, partial=True))
        if self.groups is not None:
            inputs["groups"] = read_labels(self.groups, n, ids, partial=True)
        if self.labels is not None:
            model.set_params(use_labels=True)
            inputs["y"] = reading.read_labels(self.labels, data, partial=True)
        files = {
            "must_link": self.must_link,
            "cannot_link": self.cannot_link,
            "closer": self.comparisons,
        }
        return inputs | links.read_constraints(files, data, inputs.get("y"), self.conflicts)


@command
def run(
    features: opt.FeaturesPath,
    output: Annotated[str, opt.output("MODEL", "Model file to write.")],
    method: MethodOptions,
    supervision: SupervisionOptions,
    resume: opt.Resume = False,
    force: opt.Force = False,
    checkpoint: Annotated[
        bool, typer.Option(help="Keep finished stages next to the output until the fit ends.")
    ] = True,
    threads: opt.Threads = None,
    *,
    reading: opt.LabeledReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """Learn an embedding from vectors without labels and write it to a model file."""
    opt.use_threads(threads)
    target = check_model_output(output, force or resume)
    on_dask = engine.on_dask(method.memory)
    model = method.build(on_dask)
    files = {"features": features, **vars(supervision)}
    files = {k: v and os.path.basename(v) for k, v in files.items() if k != "conflicts"}
    with ExitStack() as stack:
        if on_dask:
            from rpml.io.features import Features

            cluster = stack.enter_context(engine.cluster(console, threads, method.memory))
            rows = engine.open_rows(features, reading.options(), cluster, console)
            values: Any = rows
            data = Features(values, None, "id", rows.feature_names, features)
            side, digest = {"cluster": cluster}, rows.digest(cluster)
        else:
            data, side, digest = load(features, reading, console), {}, None
        side |= supervision.read(model, data, reading)
        job = Job(target, data, model, console, {**files, **vars(reading)}, side, digest)
        finish(job, resume, force, checkpoint)


def finish(job: Job, resume: bool, force: bool, checkpoint: bool) -> None:
    """Run what is left to do and print the result."""
    if resume and job.already_done():
        job.console.result(job.summary(), f"{job.target} is already complete")
        return
    if resume and not force:
        job.check_resumable()
    job.open_checkpoint(resume, force, checkpoint)
    job.fit()
    job.console.result(job.summary(), fields_text(job.summary()))


def check_model_output(output: str, may_exist: bool) -> Path:
    """Refuse an output that exists, that cannot be written, or that looks like data."""
    from rpml.io.features.reading import SUFFIXES
    from rpml.runtime.atomic import check_output

    if Path(output).suffix.lower() in SUFFIXES:
        raise InputError(f"{output} is the name of a data file: call the model something.rpml")
    target = check_output(output, may_exist)
    if target.is_dir():
        raise InputError(f"{output} is a folder: give the model a file name")
    return target


def load(path: str, reading: opt.ReadingOptions, console: Console) -> Features:
    """All rows, reported as they are read."""
    from rpml.runtime.context import Progress

    source = reading.open(path)
    with console.reporter() as reporter:
        reporter(Progress("read", 0, 1))
        data = source.load()
        reporter(Progress("read", 1, 1))
    rows, width = data.values.shape
    console.note(f"{data.name}: {rows} rows of {width} features, {data.values.dtype}")
    return data
