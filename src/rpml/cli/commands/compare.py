"""rpml compare: RPML next to its alternatives, and which one to use."""

from dataclasses import asdict
from functools import partial

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.commands.recommend import next_step
from rpml.cli.options.knowledge import nuisance_files, read_compared
from rpml.cli.options.reading import EngineOptions, LabeledReadingOptions, check_text_table
from rpml.runtime.errors import InputError, text_table

EXAMPLES = """
  rpml compare vectors.npy --dim 64
  rpml compare vectors.npy --labels labels.npy --dim 64 -o table.md
  rpml compare vectors.npy --labels labels.npy --methods raw,pca,rpml,rpml-trained --seeds 1
  rpml compare vectors.npy --labels labels.npy --bytes 8,16,32,64
  rpml compare texts.parquet --label-column topic --nuisance language
\b
Methods are fitted on half of the classes without their labels and scored on the other half; if
there are no labels, on random halves of the rows. Methods that see the training labels are upper
bounds and are marked as such. With --nuisance or --queries RPML is also fitted with them.
\b
Methods: raw, truncation, random, pca, half-whitened, pca-whitened, whitened-512, rpml, rpml-known,
rpml-trained, rpml-bilinear, srpml, srpml-random, paper, paper-stochastic; with labels lda and nca.
"""
NOTE = "[...]: 95% intervals"
SHORT_NOTE = """±: half the width of the 95% interval, both ends with --json and -o
kept: share of the 10 nearest neighbors by the raw vectors that are still among the 10 nearest"""


@command
def run(
    *,
    features: str = opt.FEATURES,
    labels: str | None = opt.LABELS,
    dim: int | None = opt.number("Dimensions of the embeddings; default: 128."),
    methods: str | None = opt.text("NAMES", "Methods to compare, comma-separated."),
    sizes: str | None = opt.text("NUMBERS", "Compare codes of these bytes per vector.", "--bytes"),
    seeds: int = opt.number("Runs per stochastic method.", default=3),
    nuisance: str | None = opt.NUISANCE,
    queries: str | None = opt.QUERIES,
    output: str | None = opt.output("TABLE", "Write the table: .csv, .json or .md.", default=None),
    force: bool = opt.FORCE,
    seed: int = opt.SEED,
    reading: LabeledReadingOptions,
    console: Console,
) -> None:
    """Compare RPML with PCA, whitening and others; recommend one."""
    from rpml.estimator.knowledge import fit_knowledge
    from rpml.evaluation.advice import recommend_from
    from rpml.evaluation.codes import CODED_METHODS, code_lines, compare_bytes
    from rpml.evaluation.comparison import compare, write_rows
    from rpml.evaluation.recommendation import CANDIDATES, fitted_rank_gain, recommend_fitted

    if output is not None:
        check_text_table(output, force, [features, labels, queries, *nuisance_files(nuisance)])
    load = partial(EngineOptions().load, console)
    data, y, known, n_read = read_compared(features, labels, nuisance, queries, reading, load)
    values = data.values
    if len(values) < n_read:
        console.note(f"{len(values):,} of {n_read:,} rows have a label: only these are compared")
    names, runs = opt.parse_names(methods), range(seed, seed + seeds)
    n_bytes = None if sizes is None else opt.parse_numbers("--bytes", sizes)
    if n_bytes is not None and (dim is not None or known):
        what = "--dim" if dim is not None else "--nuisance and --queries"
        raise InputError(f"--bytes compares codes of PCA and RPML alone: leave out {what}")
    fields: dict[str, object] = {}
    given = {"features": features, "nuisance": nuisance, "queries": queries, **vars(reading)}
    with console.following("rpml.evaluation"):
        if n_bytes is not None:
            chosen = names or CODED_METHODS
            measured = compare_bytes(values, y, n_bytes, methods=chosen, seed=seed)
            lines = code_lines(measured)
            text = f"{text_table(lines)}\n{NOTE}"
        else:
            comparison = compare(values, y, dim, methods=names, seeds=runs, **known)
            measured, lines = comparison.rows, comparison.lines()
            if y is None:
                own = fitted_rank_gain(comparison, comparison.order[0][1])
                checked = fit_knowledge(values, **known)
                advice = recommend_fitted(values, dim, own, names or CANDIDATES, seed, checked)
            else:
                advice = recommend_from(comparison, dim is None, tuple(known))
            fields["verdict"] = asdict(advice)
            reasons = " ".join([*advice.reasons, f"Next: {next_step(advice, given)}"])
            text = f"{text_table(comparison.short_lines())}\n{SHORT_NOTE}\n\n{reasons}"
    if output is not None:
        write_rows(output, measured, lines, force)
    console.result({"measured": measured, **fields}, text)
