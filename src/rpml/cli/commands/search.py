"""rpml search: the nearest rows of an index."""

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import ReadingOptions, check_text_table
from rpml.runtime.errors import counted, text_table

EXAMPLES = """
  rpml index model.rpml vectors.npy -o vectors.index
  rpml search vectors.index queries.npy -k 10
  rpml search vectors.index queries.npy -k 10 --scale -o hits.csv
\b
Queries are raw vectors, like those the model was fitted on. --scale adds the share of random
pairs of training rows that are less similar: 0.999 is closer than 99.9% of them.
"""


@command
def run(
    *,
    index: str = opt.argument("INDEX", "Index written by rpml index."),
    queries: str = opt.argument("QUERIES", f"Vectors: {opt.KINDS}."),
    k: int = opt.number("Rows per query.", "-k", default=10),
    oversample: int = opt.number("With rescoring, rows ranked again per returned row.", default=4),
    scale: bool = opt.flag("Add the share of random pairs that are less similar."),
    output: str | None = opt.output("HITS", "Write the hits: .csv, .json or .md.", default=None),
    force: bool = opt.FORCE,
    reading: ReadingOptions,
    console: Console,
) -> None:
    """Find the nearest rows of query vectors."""
    from rpml.estimator.features import check_features
    from rpml.search import Index

    if output is not None:
        check_text_table(output, force, [index, queries])
    loaded = Index.load(index)
    source = reading.open(queries)
    loaded.model = check_features(loaded.model, source, index)
    data = source.load()
    hits = loaded.search(data.values, k, oversample=oversample)
    names = range(len(data.values)) if data.ids is None else data.ids
    rows = [
        {"query": name, "rank": rank, "id": row, "score": round(float(score), 6)}
        for name, ids, scores in zip(names, hits.ids.tolist(), hits.scores, strict=True)
        for rank, (row, score) in enumerate(zip(ids, scores, strict=True), 1)
    ]
    if scale:
        shares = loaded.similarity_quantile([row["score"] for row in rows])
        rows = [{**row, "scale": round(float(s), 6)} for row, s in zip(rows, shares, strict=True)]
    lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
    if output is None:
        console.result({"hits": rows}, text_table(lines))
        return
    from rpml.evaluation.comparison import write_rows

    write_rows(output, rows, lines, force)
    text = (
        f"{counted(len(rows), 'row')} found for "
        f"{counted(len(names), 'query', 'queries')}, written to {output}"
    )
    console.result({"hits": rows}, text)
