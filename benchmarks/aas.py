"""What does AAS cost once the graph is there, and does it grow with the edges?

python benchmarks/aas.py            10,000 to 100,000 rows
python benchmarks/aas.py --large    up to 1,000,000 rows

Processor seconds: the share of the graph's time does not depend on who else uses the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from common import peak_memory_mb, publish
from generators import mixture

from rpml.method.clustering.ascent import GraphAscent, affinity_graph
from rpml.method.clustering.hierarchy import merge_basins
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.threads import thread_count

K = 50


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    out = run()
    return time.process_time() - start, out


def one_size(n: int, repeats: int) -> dict[str, Any]:
    X = mixture(n)
    search, near = timed(lambda: nearest_neighbors(X, K, metric="euclidean"))
    weigh, graph = timed(lambda: affinity_graph(near, affinity="gaussian"))
    runs = [timed(lambda: GraphAscent(graph).run()) for _ in range(repeats)]
    cluster = statistics.median(seconds for seconds, _ in runs)
    merge, merged = timed(lambda: GraphAscent(graph, merge=partial(merge_basins, graph)).run())
    return {
        "rows": n,
        "edges": graph.nnz,
        "neighbors": near.method,
        "seconds for the neighbors": search,
        "seconds for the affinities": weigh,
        "seconds for AAS": cluster,
        "seconds for AAS with basins merged": merge,
        "AAS as a share of the graph": cluster / (search + weigh),
        "nanoseconds an edge": 1e9 * cluster / graph.nnz,
        "clusters": len(runs[0][1].modes),
        "clusters with basins merged": len(merged.modes),
        "peak MB so far": peak_memory_mb(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    one_size(2000, 1)  # compile
    sizes = [10_000, 30_000, 100_000] + ([300_000, 1_000_000] if options.large else [])
    results = [one_size(n, options.repeats) for n in sizes]
    name = "aas-large" if options.large else "aas"
    publish(name, {"threads": thread_count(), "sizes": results})


if __name__ == "__main__":
    main()
