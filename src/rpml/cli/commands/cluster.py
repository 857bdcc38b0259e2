"""rpml cluster: Authority Ascent Shift alone."""

from collections import Counter

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import ReadingOptions, check_table

EXAMPLES = """
  rpml cluster vectors.npy -o clusters.csv
  rpml cluster vectors.parquet -o clusters.parquet --clusters 20
  rpml cluster vectors.npy -o clusters.csv --min-cluster-size 50 --metric cosine
  rpml cluster vectors.npy -o labels.npy --set merge=none --set epsilon=0.65
"""


@command
def run(
    *,
    features: str = opt.FEATURES,
    output: str = opt.output("LABELS", "Where to write one label per row; - for CSV."),
    neighbors: int = opt.number("Neighbors per row in the graph.", default=50),
    metric: str = opt.text("NAME", "euclidean or cosine.", default="euclidean"),
    clusters: int | None = opt.number("Number of clusters; default: chosen by persistence."),
    min_cluster_size: int = opt.number("Smaller basins join a neighbor.", default=5),
    settings: list[str] | None = opt.SETTINGS,
    force: bool = opt.FORCE,
    reading: ReadingOptions,
    console: Console,
) -> None:
    """Cluster vectors by Authority Ascent Shift.

    Rows ascend the authority in their neighborhood graph; those that reach the same mode are a
    basin. Average linkage merges the basins into a tree, which is cut into clusters; --set
    merge=none is the paper's ascent.
    """
    from rpml.io.features import Layout, write_table
    from rpml.method.clustering.aas import AuthorityAscentShift
    from rpml.method.graph.neighbors import nearest_neighbors
    from rpml.runtime.context import Context, Progress

    check_table(output, force, console.json_output, [features])
    defaults = AuthorityAscentShift().get_params()
    named = {
        "n_neighbors": neighbors,
        "metric": metric,
        "n_clusters": clusters,
        "min_cluster_size": min_cluster_size,
    }
    given = [name for name, value in named.items() if value != defaults[name]]
    aas = AuthorityAscentShift(**{**named, **opt.parse_settings(settings, defaults, given)})
    aas.check_parameters()
    data = reading.open(features).load()
    n = len(data.values)
    context = Context(report=console.reporter())
    graph = nearest_neighbors(
        data.values,
        aas.n_neighbors,
        metric=aas.metric,
        method=aas.method,
        progress=lambda share: context.report(Progress("neighbors", round(share * n), n)),
    )
    with context.reporting("cluster"):
        labels = aas.fit_predict(graph)
    layout = Layout("label", ["label"], data.id_column, False)
    write_table(output, labels, layout, data.ids, force)
    counts = sorted(Counter(labels.tolist()).values(), reverse=True)
    fields = {
        "output": output,
        "rows": len(labels),
        "clusters": len(counts),
        "largest": counts[0],
        "singletons": counts.count(1),
        "epsilon": float(aas.epsilon_),
    }
    console.result(fields, "" if output == "-" else fields)
