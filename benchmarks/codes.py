"""How fast are codes written and searched, compared with faiss and with `transform`?

python benchmarks/codes.py [--rows 1000000]

One thread, CPU seconds. The scan ranks all codes for single queries and for a batch; faiss' IndexPQ
scans as many bytes per row. Encoding is `transform(X, output=...)`, compared with `transform(X)`,
for rows of several numbers of features.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import faiss
import numpy as np
from common import alternate, publish

from rpml import RPML
from rpml.runtime.threads import using_jobs
from rpml.search import Index
from rpml.search.scan import CodeScan

N_FEATURES, SIZE, N_BYTES, N_QUERIES, K = 384, 64, 16, 32, 10
ENCODED = 20_000
ENCODED_FEATURES, ENCODED_SIZES, ENCODED_BYTES = (128, 384, 768, 2048), (64, 192), (8, 16, 32)
OUTPUTS = ("float", "int8", "int4", "int2", "binary", "pq")


def scan_seconds(model: RPML, Y: np.ndarray, rows: int) -> dict[str, float]:
    """CPU seconds per query of the search by codes, ours and faiss'."""
    codec = model.codec("pq")
    codes = np.random.default_rng(1).integers(0, 256, (rows, N_BYTES), dtype=np.uint8)
    scan = CodeScan(codec, codes)
    peer = faiss.IndexPQ(SIZE, N_BYTES, 8)
    peer.train(Y)
    faiss.copy_array_to_vector(codes.ravel(), peer.codes)
    peer.ntotal = rows
    queries = Y[:N_QUERIES]
    subjects = {
        "one query": lambda: scan.best(queries[:1], K),
        "one query, faiss": lambda: peer.search(queries[:1], K),
        "batch": lambda: scan.best(queries, K),
        "batch, faiss": lambda: peer.search(queries, K),
    }
    seconds = alternate(subjects, repeats=9, clock=time.process_time)
    return {n: s / (N_QUERIES if "batch" in n else 1) for n, s in seconds.items()}


def encoding_seconds(n_features: int, size: int, n_bytes: int) -> dict[str, float]:
    """CPU seconds of `transform` by its output, and of `Index.add`."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ENCODED, n_features), np.float32)
    X *= np.linspace(2, 0.5, n_features, dtype=np.float32)  # axes of unlike variance, as real ones
    model = RPML(size, random_state=0, n_jobs=1).fit(X[:3000]).learn_codebooks(X[:5000], n_bytes)
    subjects = {output: partial(model.transform, X, output=output) for output in OUTPUTS}
    subjects["Index.add"] = lambda: Index(model, output="pq").add(X)
    return alternate(subjects, repeats=5, clock=time.process_time)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    X = np.random.default_rng(0).standard_normal((ENCODED, N_FEATURES), np.float32)
    with using_jobs(1):
        model = RPML(SIZE, random_state=0, n_jobs=1).fit(X).learn_codebooks(X, N_BYTES)
        scan = scan_seconds(model, np.asarray(model.transform(X), np.float32), options.rows)
        encoding = {
            f"{d} features, {size} dimensions, {n} bytes": encoding_seconds(d, size, n)
            for d in ENCODED_FEATURES
            for size in ENCODED_SIZES
            for n in ENCODED_BYTES
            if size <= d
        }
    publish(
        "codes",
        {
            "rows": options.rows,
            "bytes": N_BYTES,
            "CPU seconds per query": scan,
            "scan / faiss": {n: scan[n] / scan[f"{n}, faiss"] for n in ("one query", "batch")},
            "CPU seconds of transform": {name: s["float"] for name, s in encoding.items()},
            "encoded / float": {
                name: {output: round(s[output] / s["float"], 2) for output in s}
                for name, s in encoding.items()
            },
        },
    )


if __name__ == "__main__":
    main()
