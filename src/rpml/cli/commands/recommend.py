"""rpml recommend: which method and size to use, and the command that does it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.knowledge import read_compared
from rpml.cli.options.reading import EngineOptions, LabeledReadingOptions
from rpml.runtime.errors import text_table

if TYPE_CHECKING:
    from rpml.evaluation.advice import Recommendation

EXAMPLES = """
  rpml recommend vectors.npy
  rpml recommend vectors.npy --dim 64
  rpml recommend vectors.npy --labels labels.npy
  rpml recommend vectors.npy --bytes 16
  rpml recommend vectors.npy --keep 0.9 --queries queries.npy
  rpml recommend texts.parquet --nuisance language
  rpml recommend shards/ --bytes 16 --engine dask --scheduler tcp://host:8786
\b
Without labels, methods are judged by the rank gain: how highly they rank, in one half of the
principal axes, the rows that are near in the other half. With labels, Recall@1 on classes that were
not used to fit decides. With --bytes, codes of equal size are compared on a sample of the rows,
searched by float queries, which are the --queries if there are any. On Dask the rows are 20,000
random ones, with labels only labeled ones.
"""
ENGINE = ("engine", "scheduler", "workers")
READING = ("columns", "id_column", "array", "label_column")
Given = Mapping[str, str | int | None]
"""The files and columns of a command, from which the next one is made."""
NOTE = """[...]: 95% intervals; shares of the 10 nearest rows by the raw vectors, and by the float
embedding, that stay among the 10 nearest by the code"""


@command
def run(
    *,
    features: str = opt.FEATURES,
    labels: str | None = opt.LABELS,
    dim: int | None = opt.number("Dimensions of the embedding; default: 128, or fewer."),
    n_bytes: int | None = opt.number("Bytes per vector: recommend dimensions and code.", "--bytes"),
    keep: float | None = opt.share("Fewest bytes that keep this share of the neighbors."),
    nuisance: str | None = opt.NUISANCE,
    queries: str | None = opt.QUERIES,
    seed: int = opt.SEED,
    reading: LabeledReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """Recommend a method and a size; labels are optional."""
    from rpml.estimator.description import named_pairs, separated_question
    from rpml.evaluation.codes import SizeRecommendation
    from rpml.evaluation.recommendation import recommend
    from rpml.evaluation.registry import METHODS

    load = partial(engine.load, console)
    data, y, given, _ = read_compared(features, labels, nuisance, queries, reading, load)
    known = {**given, "y": y, "random_state": seed}
    options = {"features": features, "nuisance": nuisance, "queries": queries, **vars(reading)}
    if engine.on_dask():
        options |= {name: getattr(engine, name) for name in ENGINE}
    advice = recommend(data.values, dim, bytes=n_bytes, keep=keep, **known)
    if isinstance(advice, SizeRecommendation):
        step = fit_command(options, "--bytes", advice.n_bytes, given)
        place = {"n_components": advice.n_components, "output": advice.output}
        fields = {**place, "bytes": advice.n_bytes, "table": advice.table}
        text = "\n".join([*advice.reasons, f"Next: {step}"])
        shown = f"{text_table(advice.lines())}\n{NOTE}\n\n{text}"
        console.result({**fields, "reasons": advice.reasons, "next": step}, shown)
        return
    step = next_step(advice, options)
    pairs = named_pairs(advice.separated, data.ids)
    figure, form = ("Recall@1", ".1%") if advice.uses_labels else ("rank gain over PCA", "+z.3f")
    lines = [
        (METHODS[name].title, f"{gain.value:{form}}", f"{gain.low:{form}} to {gain.high:{form}}")
        for name, gain in advice.evidence.items()
    ]
    shown = text_table([("method", figure, "95% interval"), *lines]) + "\n\n" if lines else ""
    numbered = data.ids is None or data.id_name == "row"
    question = [separated_question(pairs, numbered)] if pairs else []
    text = "\n".join([*advice.reasons, *question, f"Next: {step}"])
    console.result({**asdict(advice), "separated": pairs, "next": step}, shown + text)


def fit_command(given: Given, option: str, size: int, known: Iterable[str]) -> str:
    words = ["rpml", "fit", str(given["features"]), option, str(size)]
    for name in (*known, *READING, *ENGINE):
        words += [f"--{name.replace('_', '-')}", str(given[name])] if given.get(name) else []
    return f"{shlex.join(words)} -o model.rpml"


def next_step(advice: Recommendation, given: Given) -> str:
    """Return the command that follows the advice, or the line of Python if there is none."""
    if advice.choice == "raw":
        return advice.next_step
    if advice.choice in ("rpml", "rpml-known", "pca"):  # without evidence for more, a fit is PCA
        return fit_command(given, "--dim", advice.n_components, advice.known)
    return f"in Python: {advice.next_step}"
