"""rpml fit: learn an embedding from a file of vectors."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rpml.cli import options as opt
from rpml.cli.command import Console, Interrupted, command
from rpml.cli.console import STAGES, Stopper, answering
from rpml.cli.options.knowledge import (
    nuisance_columns,
    nuisance_files,
    read_knowledge,
    sampled_rows,
)
from rpml.cli.options.reading import EngineOptions, LabeledReadingOptions
from rpml.runtime.errors import InputError, counted

if TYPE_CHECKING:
    from rpml.estimator import RPML, ResumableFit
    from rpml.io.features import Features, ReadOptions
    from rpml.runtime.context import Json
    from rpml.runtime.rows import Array

EXAMPLES = """
  rpml fit vectors.npy -o model.rpml
  rpml fit birds.parquet -o birds.rpml --dim 64 --id-column image
  rpml fit vectors.npy -o model.rpml --bytes 16      (dimensions and code chosen)
  rpml fit vectors.npy -o model.rpml --resume        (after an interruption)
  rpml fit vectors.npy -o model.rpml --labels few.csv --must-link pairs.csv
  rpml fit vectors.npy -o model.rpml --pairs sessions.csv
  rpml fit texts.parquet -o model.rpml --nuisance language
  rpml fit documents.npy -o model.rpml --queries log.npy
  rpml fit vectors.npy -o model.rpml --set whiten=1 --set sampler=hard
  rpml fit vectors.npy --dim 64 --dry-run            (memory and time; also 1000000x128)
  rpml fit --config run.toml
  rpml fit shards/ -o model.rpml --engine dask --scheduler tcp://host:8786
\b
Constraint files hold one constraint per line: ids or row numbers from 0, then an optional weight.
Files of --pairs hold two of them per line.
"""


@opt.option_group
class MethodOptions:
    """Settings of the estimator with an option of their own."""

    dim: int | None = opt.number("Dimensions of the embedding; default: 128, or fewer.")
    seed: int = opt.SEED
    weight: str | None = opt.text("NAME", "Triplet weights: concat, bilinear or constant.")
    solver: str | None = opt.text("NAME", "cg, stochastic or gd.")
    neighbors: int | None = opt.number("Neighbors per row in the graph.")
    max_iter: int | None = opt.number("Maximum number of iterations.", minimum=0)
    paper: bool = opt.flag("Use the settings printed in the paper.")
    settings: list[str] | None = opt.SETTINGS
    subsample: int | None = opt.number(
        "Rows that neighbors and triplets come from; default: 20,000."
    )
    memory_limit: str | None = opt.text("SIZE", "Memory limit, on Dask per worker: 800MB, 4GB.")

    @property
    def memory(self) -> int | None:
        """The memory limit in bytes."""
        if (text := self.memory_limit) is None:
            return None
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
        if match is None:
            raise InputError(f"--memory-limit must be a size such as 800MB or 4GB, got {text!r}")
        return int(float(match[1]) * 1024 ** " kmgt".index(match[2] or " "))

    def build(self, on_dask: bool) -> RPML:
        """Build the estimator and check its settings, before any data is read."""
        from rpml.estimator import RPML

        kind = RPML
        if on_dask:
            from rpml.distributed import DaskRPML

            kind = DaskRPML
        names = RPML().get_params(deep=False).keys() - {"callback"}
        own = {n: vars(self).get(opt.option_of(n)[2:].replace("-", "_")) for n in names}
        own["memory_limit"] = None if on_dask else self.memory
        chosen = {name: value for name, value in own.items() if value is not None}
        given = chosen.keys() - ({"random_state"} if self.seed == 0 else set())
        chosen.update(opt.parse_settings(self.settings, names, given))
        model = kind.paper(**chosen) if self.paper else kind(**chosen)
        model._validate_params()
        return model


@opt.option_group
class SupervisionOptions:
    """Supervision of the rows, from files."""

    pseudo_labels: str | None = opt.text("FILE", "Clusters to learn from instead of those of AAS.")
    groups: str | None = opt.text("FILE", "One group per row: rows that show the same instance.")
    pairs: str | None = opt.text(
        "FILE", "CSV of row pairs that probably belong together; many may be wrong."
    )
    nuisance: str | None = opt.NUISANCE
    queries: str | None = opt.QUERIES
    labels: str | None = opt.text("FILE", "True labels of some rows; empty or -1 elsewhere.")
    must_link: str | None = opt.text("FILE", "CSV of row pairs of the same class.")
    cannot_link: str | None = opt.text("FILE", "CSV of row pairs of different classes.")
    comparisons: str | None = opt.text("FILE", "CSV of rows a, b, c: a is closer to b than to c.")
    conflicts: str = opt.text(
        "HOW", "Contradictions: raise an error, or weight: drop the lower weight.", default="raise"
    )

    def paths(self) -> list[str | None]:
        files = {**vars(self), "conflicts": None, "nuisance": None}
        return [*files.values(), *nuisance_files(self.nuisance)]

    def notes(self, features: str, reading: LabeledReadingOptions) -> Json:
        """Return the names of files and columns, to be stored in the model file."""
        files = {"features": features, **vars(self), "conflicts": None}
        names = {name: path and os.path.basename(path) for name, path in files.items()}
        return {k: v for k, v in {**names, **vars(reading)}.items() if v is not None}

    def read(
        self, model: RPML, data: Features, reading: LabeledReadingOptions
    ) -> dict[str, object]:
        """Return the arguments of `RPML.fit`; pseudo-labels become a setting of the model."""
        from rpml.estimator.knowledge import read_constraints, read_pairs
        from rpml.io.features.labels import as_label_array

        inputs: Json = {}
        if self.pseudo_labels is not None:
            labels = as_label_array(reading.read_values(self.pseudo_labels, data))
            model.set_params(clustering=labels)
        if self.groups is not None:
            inputs["groups"] = as_label_array(reading.read_values(self.groups, data))
        if self.pairs is not None:
            inputs["pairs"] = read_pairs(self.pairs, data)
        inputs |= read_knowledge(self.nuisance, self.queries, data, reading)
        if self.labels is not None:
            model.set_params(use_labels=True)
            inputs["y"] = reading.read_labels(self.labels, data)
        files = {k: vars(self)[k] for k in ("must_link", "cannot_link", "comparisons")}
        return inputs | read_constraints(files, data, inputs.get("y"), self.conflicts)


@command
def run(
    *,
    features: str = opt.FEATURES,
    method: MethodOptions,
    supervision: SupervisionOptions,
    output: str | None = opt.output("MODEL", "Model file to write.", default=None),
    resume: bool = opt.RESUME,
    force: bool = opt.FORCE,
    checkpoint: bool = opt.flag(
        "Keep finished stages next to the output until the fit ends.", default=True
    ),
    keep_exemplars: bool = opt.flag("Store exemplars (training rows), which update needs."),
    n_bytes: int | None = opt.number(
        "Choose dimensions and a code for this many bytes per vector.", "--bytes"
    ),
    dry_run: bool = opt.flag("Only estimate memory and time, from a short pilot run."),
    keep_training: bool = opt.flag("Store labels, triplets and their weights too."),
    reading: LabeledReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """Learn an embedding from unlabeled vectors.

    Without evidence for more, the model is PCA of unit-norm rows, and says so.
    """
    from rpml.estimator import ResumableFit
    from rpml.io.features import open_features
    from rpml.runtime.context import Context

    on_dask = engine.on_dask(method.memory)
    opt.check_choice("--conflicts", supervision.conflicts, ("raise", "weight"))
    model = method.build(on_dask)
    if n_bytes is not None:
        check_left_open(method, model)
    excluded = reading.excluded(features, supervision.labels)
    read = reading.options((*excluded, *nuisance_columns(supervision.nuisance)))
    if dry_run:
        if on_dask:
            raise InputError("--dry-run is for --engine local: it measures this machine")
        estimate(features, model, read, console)
        return
    if output is None:
        raise InputError("give the model file to write with -o MODEL, or --dry-run")
    notes = supervision.notes(features, reading)
    keep = {"exemplars": keep_exemplars, "training": keep_training}
    job = ResumableFit(output, resume, force, checkpoint, notes, **keep)
    job.check([features, *supervision.paths()])
    with ExitStack() as stack:
        inputs: Json = {}
        if on_dask:
            by_id = any(path not in (None, features) for path in supervision.paths())
            load = engine.load(console, features, read, by_id, method.memory)
            data = stack.enter_context(load)
            inputs["cluster"] = data.values.cluster  # type: ignore[attr-defined]
        else:
            source = open_features(features, read)
            with Context(report=console.reporter()).reporting("read"):
                data = source.load()
            n, d = data.values.shape
            console.note(
                f"{data.name}: {counted(n, 'row')} of {counted(d, 'feature')}, {data.values.dtype}"
            )
        inputs |= supervision.read(model, data, reading)
        advice = None
        if n_bytes is not None:
            advice, code_rows = choose_code(data.values, n_bytes, method.seed, inputs)
            model.set_params(n_components=advice.n_components, center=advice.estimator.center)
            size = n_bytes if advice.output == "pq" else None
            job = replace(job, code_bytes=size, code_rows=code_rows)
            console.note(" ".join(advice.reasons))
        with interruptible(job, model, console):
            outcome = job.fit(model, data, **inputs)
    if outcome.state == "stopped":
        raise Interrupted(
            f"interrupted: {output} holds the best model so far "
            f"({counted(model.n_iter_, 'iteration')}); {how_to_go_on(job)}"
        )
    fields: Json = summary(outcome.model, output)
    fields |= {} if advice is None else {"codes": advice.output}
    if outcome.state == "complete":
        console.result(fields, f"{output} is already complete")
    else:
        console.result(fields, outcome_fields(outcome.model, data, inputs, fields))


def check_left_open(method: MethodOptions, model: RPML) -> None:
    """Raise InputError if settings that --bytes chooses are given."""
    names = opt.parse_settings(method.settings, model.get_params(deep=False))
    given = ["--dim"] * (method.dim is not None)
    given += [f"--set {name}" for name in ("n_components", "center") if name in names]
    if given:
        raise InputError(f"--bytes does not go with {given[0]}: it chooses that itself")


def choose_code(X: Any, n_bytes: int, seed: int, inputs: Json) -> tuple[Any, Array]:
    """Return the advice for a number of bytes, and the rows to learn codebooks from."""
    from rpml.estimator.knowledge import fit_knowledge
    from rpml.evaluation.codes import recommend_size

    known: Json = {name: inputs.get(name) for name in ("nuisance", "queries")}
    if "cluster" in inputs:
        rows = sampled_rows(len(X))
        X = X[rows]
        if known["nuisance"] is not None:
            known["nuisance"] = known["nuisance"][rows]
    known = fit_knowledge(X, **known)
    return recommend_size(X, n_bytes, known=known, random_state=seed, others=()), X


def outcome_fields(model: RPML, data: Features, inputs: Json, fields: Json) -> Json:
    """Return the fields that apply in words, and a question about pairs that the model separated.

    Their ids become a field, too.
    """
    from rpml.estimator import description
    from rpml.estimator.knowledge import as_nuisance

    shown = ("rows", "features", "dim", "iterations", "converged", "message")
    made = {n: value for n, value in fields.items() if value is not None and n not in shown}
    lines = made | description.outcome_lines(model)
    lines = {"outcome": lines.pop("outcome"), **lines}
    if "cluster" in inputs:
        return lines
    known = as_nuisance(inputs.get("nuisance"), len(data.values))
    values = None if known is None else known.values
    pairs = description.discounted_pairs(model, data.values, values)
    fields["separated"] = description.named_pairs(pairs, data.ids)
    if pairs:
        lines["discounted"] = description.separated_question(fields["separated"], data.ids is None)
    return lines


def estimate(features: str, model: RPML, read: ReadOptions, console: Console) -> None:
    """Print the memory and time of a fit to a file, or to a shape such as 1000000x128."""
    from rpml.evaluation.resources import estimate_resources
    from rpml.io.features import open_features
    from rpml.runtime.environment import memory_gb

    data: Array | None = None
    if shape := re.fullmatch(r"(\d+)x(\d+)", features):
        n, d = int(shape[1]), int(shape[2])
    else:
        data = open_features(features, read).load().values
        n, d = data.shape
    settings = {k: v for k, v in model.get_params(deep=False).items() if k != "callback"}
    mapped = type(data).__name__ == "memmap"
    expected = estimate_resources(n, d, X=data, mapped=mapped, **settings)
    fields = {
        "rows": n,
        "features": d,
        "memory_gb": round(expected.memory / 2**30, 2),
        "seconds": round(expected.seconds, 3),
        "stages": {name: round(seconds, 3) for name, seconds in expected.stages.items()},
        "pilot_rows": expected.pilot_rows,
        "machine_memory_gb": memory_gb(),
    }
    shown = {
        "rows": n,
        "features": d,
        "memory": f"{fields['memory_gb']} GB (this machine has {memory_gb() or '?'})",
        "time": f"{fields['seconds']} s",
        "stages": ", ".join(f"{STAGES.get(k, k)} {s:.3f} s" for k, s in expected.stages.items()),
        "measured on": counted(expected.pilot_rows, "row"),
    }
    console.result(fields, shown)


@contextmanager
def interruptible(job: ResumableFit, model: RPML, console: Console) -> Iterator[None]:
    """Report progress; on Ctrl-C let the solver stop, or say how to continue without a model."""
    try:
        stopper = Stopper(console.reporter())
        model.set_params(callback=stopper)
        with console.following("rpml.estimator.features"), answering(stopper.answer):
            yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted before there was a model; {how_to_go_on(job)}") from None


def how_to_go_on(job: ResumableFit) -> str:
    if not job.directory.exists():
        return "run the command again to start over"
    again = [argument for argument in sys.argv[1:] if argument != "--resume"]
    return f"continue with: rpml {shlex.join([*again, '--resume'])}"


def summary(model: RPML, output: str) -> Json:
    """Summarize a fit; the loss is the mean over triplets."""
    from rpml.estimator.description import mean_losses

    losses, made = mean_losses(model), vars(model)
    labels, weights = made.get("labels_"), made.get("triplet_weights_")
    return {
        "output": output,
        "rows": model.n_samples_,
        "features": model.n_features_in_,
        "dim": len(model.components_),
        "outcome": model.outcome_,
        "clusters": None if labels is None else len(set(labels[labels >= 0].tolist())),
        "triplets": None if weights is None else len(weights),
        "iterations": model.n_iter_,
        "converged": model.converged_,
        "message": model.message_,
        "loss": losses[-1] if losses else None,
        "mean_weight": float(weights.mean()) if weights is not None and len(weights) else None,
    }
