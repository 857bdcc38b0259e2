"""Bytes per vector against Recall@1: codes of RPML, of PCA, of faiss and of the first columns.

python benchmarks/bytes.py --data DIR [--sets A,B] [--sizes 8,16] [--codes pq,int2] [--uses new]
    [--systems RPML,OPQ] [--seeds 3] [--rows 3000] [--queries 1500] [--into FILE]

Three uses: `searched`, fitted on the rows that are searched; `new`, the map fitted on the training
classes and used on the others; `queries`, documents of DIR/queries searched by real queries, which
no fit knows (nDCG@10). Queries are floats, rows are codes whose codebooks are learned from the
searched rows. Peers at their best: unit rows, centered, PCA to 256 dimensions where there are more,
compared by L2. Other maps get the same product codes: principal axes divided by a power of their
eigenvalues, with the power that is best by the labels of the queries (an upper bound of Spectral
Tempering, arXiv 2603.19339, which chooses it by the eigenvalues alone), and rows without the
direction of their mean. Figures of learned codebooks are means over --seeds; each but the first
gives faiss the rows in another order. results/bytes.json is written after every set, and what it
holds is not measured again: delete rows to have them measured anew. bytes_page.py makes the page.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from common import RESULTS, machine
from knowledge import ndcg
from numpy.typing import NDArray
from results_sets import FeatureSet, commit, feature_sets, parser

from rpml.evaluation.codes import BYTES, LEARNED_SIZE, coded, coded_methods, configurations
from rpml.evaluation.registry import Method
from rpml.method.calibration import AxisRanges
from rpml.method.codes import BITS, CODES, Int8Codec
from rpml.method.graph.heaps import nearest_rows
from rpml.method.whitening.linear_map import principal_axes
from rpml.runtime.rows import sorted_sample, unit_rows

TARGET = RESULTS / "bytes.json"
PEER_AXES, OPQ_ROUNDS = 256, 20
TEMPERED = "tempered PCA in hindsight, pq"
POWERS, TEMPERED_BYTES = (0.0, 0.25, 0.5, 0.75, 1.0), 16  # 0 is PCA, 1 whitening
Row = dict[str, Any]
Vectors = NDArray[np.float32]
Wanted = Callable[[str, int], bool]  # whether a system is to be measured at a number of bytes
Map = Callable[[Vectors], Vectors]  # unit rows to the floats that are compared with decoded rows


class Rows:
    """The searched rows, their queries and their nearest rows by the raw vectors."""

    def __init__(self, X: Vectors, y: NDArray[np.integer], most: int) -> None:
        self.X, self.y = unit_rows(X), y
        self.queries = np.sort(np.random.default_rng(0).permutation(len(X))[:most])
        self.near = nearest_rows(self.X[self.queries], self.X, 10, own=self.queries)[1]

    def score(self, project: Map, decoded: Vectors) -> Row:
        """Recall@1 and the share of the raw neighbors, of float queries against decoded rows."""
        found = nearest_rows(project(self.X[self.queries]), decoded, 10, own=self.queries)[1]
        right = np.mean(self.y[found[:, 0]] == self.y[self.queries])
        return {"recall": round(float(right), 5), "kept": kept(found, self.near)}


class Documents:
    """Documents, and queries whose answers are known."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.X, self.queries = (unit_rows(file[n].astype(np.float32)) for n in ("D", "Q"))
            self.grades = np.zeros((len(self.queries), len(self.X)))
            self.grades[tuple(file["rel"].T)] = file["grade"] if "grade" in file.files else 1
        self.near = nearest_rows(self.queries, self.X, 10)[1]

    def score(self, project: Map, decoded: Vectors) -> Row:
        """nDCG@10 and the share of the raw vectors' ten best documents."""
        queries = project(self.queries)
        found = nearest_rows(queries, decoded, 10)[1]
        value = ndcg(decoded, queries, self.grades, unit_length=False) / 100
        return {"recall": round(value, 5), "kept": kept(found, self.near)}


def over_seeds(
    rows: Rows | Documents, seeds: int, encode: Callable[[int], tuple[Map, Vectors]]
) -> Row:
    """The mean scores of the codes of so many seeds, and CPU seconds to make one of them."""
    seconds, scores = 0.0, []
    for seed in range(seeds):
        start = time.process_time()
        pair = encode(seed)
        seconds += time.process_time() - start
        scores.append(rows.score(*pair))
    means = {n: round(float(np.mean([s[n] for s in scores])), 5) for n in scores[0]}
    return {"seconds": round(seconds / seeds, 2), "seeds": seeds, **means}


def kept(found: NDArray[np.intp], near: NDArray[np.intp]) -> float:
    return round(float((found[:, :, None] == near[:, None]).any(axis=1).mean()), 5)


def by_l2(project: Map, decoded: Vectors) -> tuple[Map, Vectors]:
    """A map and rows whose dot products rank as the Euclidean distances do."""
    length = -0.5 * np.square(decoded).sum(axis=1, keepdims=True)

    def with_one(X: Vectors) -> Vectors:
        Z = project(X)
        return np.hstack([Z, np.ones((len(Z), 1), np.float32)])

    return with_one, np.hstack([decoded, length])


def principal(X: Vectors, most: int) -> Map:
    """Unit rows, centered, in their leading principal axes."""
    spectrum = principal_axes(X, unit_input=False)
    axes, mean = spectrum.axes[:, :most].astype(np.float32), spectrum.mean.astype(np.float32)
    return lambda rows: np.ascontiguousarray((rows - mean) @ axes, np.float32)


def product_quantized(X: Vectors, n_bytes: int, rotate: bool, seed: int = 0) -> tuple[Map, Vectors]:
    project, turn = principal(X, PEER_AXES), None
    missing = -project(X[:1]).shape[1] % n_bytes

    def turned(rows: Vectors) -> Vectors:
        padded = np.ascontiguousarray(np.pad(project(rows), ((0, 0), (0, missing))))
        return padded if turn is None else turn.apply(padded)

    rows = turned(X)
    order = np.random.default_rng(seed).permutation(len(X)) if seed else np.arange(len(X))
    if rotate:
        learned = faiss.OPQMatrix(rows.shape[1], n_bytes)
        learned.niter = OPQ_ROUNDS
        learned.train(rows[order])
        turn, rows = learned, learned.apply(rows)
    quantizer = faiss.ProductQuantizer(rows.shape[1], n_bytes, 8)
    quantizer.train(rows[order])
    return by_l2(turned, quantizer.decode(quantizer.compute_codes(rows)))


def rabitq(X: Vectors, n_bytes: int) -> tuple[Map, Vectors]:
    """One bit per rotated principal axis and two floats per row, by faiss' own distances."""
    project = principal(X, min(PEER_AXES, 8 * (n_bytes - 8)))
    rows = project(X)
    turn = faiss.RandomRotationMatrix(rows.shape[1], rows.shape[1])
    turn.init(0)
    rows = turn.apply(rows)
    index = faiss.IndexRaBitQ(rows.shape[1], faiss.METRIC_L2)
    index.train(rows)
    index.add(rows)
    return by_l2(lambda X: turn.apply(project(X)), index.reconstruct_n(0, len(rows)))


def scalar_quantized(X: Vectors, n_bytes: int, bits: int) -> tuple[Map, Vectors]:
    """As many principal axes as there are bytes for, each in equal steps of its range."""
    project = principal(X, 8 * n_bytes // bits)
    rows = project(X)
    kind = {4: faiss.ScalarQuantizer.QT_4bit, 8: faiss.ScalarQuantizer.QT_8bit}[bits]
    quantizer = faiss.ScalarQuantizer(rows.shape[1], kind)
    quantizer.train(rows)
    return by_l2(project, quantizer.decode(quantizer.compute_codes(rows)))


def first_columns(X: Vectors, n_bytes: int, output: str) -> tuple[Map, Vectors]:
    """sentence-transformers' codes of a prefix: ranges of the rows, or signs, neither rotated."""
    size = min(X.shape[1], 8 * n_bytes // BITS[output])
    rows = unit_rows(X[:, :size])
    if output == "binary":
        return (lambda X: unit_rows(X[:, :size])), np.where(rows > 0, 1, -1).astype(np.float32)
    codec = Int8Codec(AxisRanges.from_rows(rows, unit=True))
    return (lambda X: unit_rows(X[:, :size])), codec.decode(codec.encode(rows))


PEERS: dict[str, Callable[[Vectors, int, int], tuple[Map, Vectors]]] = {
    "first columns, int8 of sentence-transformers": lambda X, n, _: first_columns(X, n, "int8"),
    "first columns, binary of sentence-transformers": lambda X, n, _: first_columns(X, n, "binary"),
    "faiss SQ8": lambda X, n, _: scalar_quantized(X, n, 8),
    "faiss SQ4": lambda X, n, _: scalar_quantized(X, n, 4),
    "faiss PQ": lambda X, n, seed: product_quantized(X, n, rotate=False, seed=seed),
    "faiss OPQ": lambda X, n, seed: product_quantized(X, n, rotate=True, seed=seed),
    "faiss RaBitQ": lambda X, n, _: rabitq(X, n),
}


def tempered(fitted: Vectors, n_components: int, power: float) -> Map:
    """Centered unit rows in their principal axes, divided by a power of the deviations."""
    spectrum = principal_axes(fitted, unit_input=False)
    axes = spectrum.axes * np.maximum(spectrum.variances, 1e-9) ** (-power / 2)
    axes = axes[:, :n_components]
    return lambda X: unit_rows(((X - spectrum.mean) @ axes).astype(np.float32))


def without_mean_direction(fitted: Vectors, n_components: int) -> Map:
    """Unit rows, not centered, without their mean's direction, in their leading axes."""
    mean = unit_rows(fitted.mean(axis=0)[None])[0]
    rest = fitted - np.outer(fitted @ mean, mean)
    axes = np.linalg.eigh(rest.T @ rest)[1][:, ::-1][:, :n_components]
    return lambda X: unit_rows((X @ axes).astype(np.float32))  # the mean is not among the axes


def other_maps(
    rows: Rows | Documents, fitted: Vectors, most: int, seeds: int, wanted: Wanted
) -> Iterator[Row]:
    """The same product codes after maps that a reader may ask for."""
    for size, _, n_bytes in configurations(TEMPERED_BYTES, most, ["pq"]):
        if not wanted(TEMPERED, n_bytes):
            continue
        place = {"bytes": n_bytes, "dim": size}

        def scored(fit: Callable[..., Map], *powers: float, place: Row = place) -> Row:
            def encode(seed: int) -> tuple[Map, Vectors]:
                project = fit(fitted, place["dim"], *powers)
                return project, coded(project(rows.X), "pq", place["bytes"], seed)

            return over_seeds(rows, seeds, encode)

        found = [{**scored(tempered, power), "power": power} for power in POWERS]
        yield {**place, "system": TEMPERED, **max(found, key=lambda row: row["recall"])}
        found = scored(without_mean_direction)
        yield {**place, "system": "mean direction removed, pq", **found}


def own_codes(
    rows: Rows | Documents,
    fitted: Vectors,
    asked: tuple[list[int], list[str], int],
    most: int,
    wanted: Wanted,
) -> Iterator[Row]:
    """Codes of PCA and of RPML."""
    for method in coded_methods(("pca", "rpml")):
        spaces: dict[int, tuple[Map, Vectors, float, str]] = {}

        def space(
            size: int, method: Method = method, spaces: dict[int, Any] = spaces
        ) -> tuple[Map, Vectors, float, str]:
            if size not in spaces:
                start = time.process_time()
                model = method.fit(fitted, None, size, 0)[0]
                seconds = time.process_time() - start

                def embed(X: Vectors) -> Vectors:
                    return unit_rows(np.asarray(model.transform(X), np.float32))

                outcome = str(getattr(model, "outcome_", "PCA"))
                spaces[size] = embed, embed(rows.X), seconds, outcome
            return spaces[size]

        names = {output: f"{method.title}, {output}" for output in asked[1]}
        if not any(wanted(name, n) for name in names.values() for n in asked[0]):
            continue
        learned = space(min(most, LEARNED_SIZE))[3].startswith("learned")
        every = [c for n in asked[0] for c in configurations(n, most, asked[1], learned)]
        for size, output, n_bytes in every:
            if not wanted(names[output], n_bytes):
                continue
            project, Z, seconds, outcome = space(size)

            def encode(
                seed: int, project: Map = project, code: tuple = (Z, output, n_bytes)
            ) -> tuple[Map, Vectors]:
                return project, coded(*code, seed)

            row = over_seeds(rows, asked[2] if output == "pq" else 1, encode)
            row["seconds"] = round(seconds + row["seconds"], 2)
            place = {"bytes": n_bytes, "dim": size, "map": outcome}
            yield {**place, "system": names[output], **row}


def peers(rows: Rows | Documents, sizes: list[int], seeds: int, wanted: Wanted) -> Iterator[Row]:
    for n in sizes:
        for name, peer in PEERS.items():
            too_few = len(rows.X) < 256 if "PQ" in name else name == "faiss RaBitQ" and n <= 8
            if too_few or not wanted(name, n):
                continue
            encode = partial(peer, rows.X, n)
            found = over_seeds(rows, seeds if "PQ" in name else 1, encode)
            yield {"bytes": n, "system": name, **found}


def measure(
    base: Row,
    rows: Rows | Documents,
    fitted: Vectors,
    asked: tuple[list[int], list[str], int],
    wanted: Wanted,
) -> Iterator[Row]:
    """Every system on one set; maps and codes of one's own, then the peers."""
    X = rows.X
    base |= {"features": X.shape[1], "rows": len(X), "queries": len(rows.queries)}
    if wanted("raw", 4 * X.shape[1]):
        yield {**base, "bytes": 4 * X.shape[1], "system": "raw", **rows.score(lambda X: X, X)}
    fitted = unit_rows(fitted)
    most = len(principal_axes(fitted, unit_input=False).variances)
    found = list(own_codes(rows, fitted, asked, most, wanted))
    found += other_maps(rows, fitted, most, asked[2], wanted)
    if base["use"] != "new":
        found += peers(rows, asked[0], asked[2], wanted)
    yield from ({**base, **row} for row in found)


def subjects(data: Path, sets: str, uses: list[str], caps: dict[str, int]) -> Iterator[tuple]:
    """(set, use, searched rows, fitted rows) of every set and use; the last two by a call."""

    def labeled(part: FeatureSet, use: str) -> tuple[Rows, Vectors]:
        split = part.split
        X, y = (part.X, part.y) if use == "searched" else (split.X_test, split.y_test)
        few = sorted_sample(len(X), caps["rows"], np.random.default_rng(0))
        fitted = X[few] if use == "searched" else split.X_train
        fitted = fitted[sorted_sample(len(fitted), caps["rows"], np.random.default_rng(0))]
        return Rows(X[few], y[few], caps["queries"]), fitted

    def asked(path: Path) -> tuple[Documents, Vectors]:
        documents = Documents(path)
        return documents, documents.X

    for part in feature_sets(data, sets):
        for use in uses:
            if use != "queries":
                yield part.name, use, lambda part=part, use=use: labeled(part, use)
    for path in sorted((data / "queries").glob("*.npz")) if "queries" in uses else ():
        if not sets or path.stem in sets.split(","):
            yield path.stem, "queries", lambda path=path: asked(path)


def load(path: Path = TARGET) -> list[Row]:
    return json.loads(path.read_text(encoding="utf8"))["rows"] if path.exists() else []


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--sizes", default=",".join(map(str, BYTES)), help="bytes, by comma")
    arguments.add_argument("--codes", default=",".join(CODES), help="codes, by comma")
    arguments.add_argument("--uses", default="searched,new,queries")
    arguments.add_argument("--systems", default="", help="parts of their names, by comma")
    arguments.add_argument("--seeds", type=int, default=1, help="of learned codebooks")
    arguments.add_argument("--rows", type=int, default=100_000, help="most rows per set")
    arguments.add_argument("--queries", type=int, default=5000, help="most queries per set")
    arguments.add_argument("--into", type=Path, default=TARGET)
    given, source = arguments.parse_args(), {"source": commit(), "cpu": machine()["cpu"]}
    asked = [int(n) for n in given.sizes.split(",")], given.codes.split(","), given.seeds
    caps = {"rows": given.rows, "queries": given.queries}
    for name, use, read in subjects(given.data, given.sets, given.uses.split(","), caps):
        rows = load(given.into)
        mine = [row for row in rows if (row["set"], row["use"]) == (name, use)]
        done = {(row["system"], row["bytes"]) for row in mine}

        def wanted(system: str, n_bytes: int, done: set[tuple[str, int]] = done) -> bool:
            return (system, n_bytes) not in done and any(
                part in system for part in (given.systems + ",raw").split(",")
            )

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            new = list(measure({"set": name, "use": use}, *read(), asked, wanted))
        rows += [{**row, **source} for row in new]
        content = {"machine": machine(), "most": caps, "rows": rows}
        given.into.write_text(json.dumps(content, indent=1) + "\n", encoding="utf8")
        print(name, use, len(new), flush=True)


if __name__ == "__main__":
    main()
