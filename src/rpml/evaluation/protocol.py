"""The paper's protocol: descriptors, whitening, a fit without labels, scores on new classes.

And its Tables 1 and 2, in percent: U. K. Dutta, M. Harandi, C. C. Sekhar, "A Probabilistic approach
for Learning Embeddings without Supervision" (preprint, 2019).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator

from rpml.evaluation.comparison import markdown_text
from rpml.evaluation.metrics import clustering_scores, recall_at_k
from rpml.evaluation.metrics.retrieval import KS
from rpml.evaluation.registry import PCA, Method, chosen_methods
from rpml.io.datasets import image_sets
from rpml.io.datasets.image_sets import PUBLISHED, ImageSet
from rpml.io.features import ReadOptions, read_features
from rpml.io.features.labels import as_label_array, read_values
from rpml.io.features.numpy_files import NpzFile
from rpml.io.features.reading import check_readable
from rpml.runtime.context import Context, Json, Progress
from rpml.runtime.errors import InputError, one_line
from rpml.runtime.rows import AnyArray, Array, Mask

READERS: dict[str, Callable[[str], ImageSet]] = {
    "cub": image_sets.read_cub,
    "cars": image_sets.read_cars,
    "sop": image_sets.read_sop,
    "folders": image_sets.read_folders,
}
DEFAULT_METHODS = (
    *("raw", "whitened-512", "random", "pca", "half-whitened", "pca-whitened"),
    *("rpml", "rpml-bilinear", "srpml-random", "paper", "paper-stochastic"),
)
_CLUSTER = {"NMI": "nmi", "F": "f", "P": "precision", "R": "recall"}
RECALL_AT = {"cub": KS, "cars": KS, "sop": (1, 10, 100)}
"""The K of Recall@K on each dataset."""
# Per dataset NMI, then Recall@K in the order of RECALL_AT.
_TABLE_1 = """
Initial (random) | 34.6 31.5 42.4 55.0 67.0 | 23.4 22.7 31.7 42.7 54.8 | 79.8 25.4 35.6 48.5
Exemplar         | 45.0 38.2 50.3 62.8 75.0 | 35.4 36.5 48.1 59.2 71.0 | 85.0 45.0 60.3 75.2
NCE              | 45.1 39.2 51.4 63.7 75.8 | 35.6 37.5 48.7 59.8 71.5 | 85.8 46.6 62.3 76.8
DeepCluster      | 53.0 42.9 54.1 65.6 76.2 | 38.5 32.6 43.8 57.0 69.5 | 82.8 34.6 52.6 66.8
MOM              | 55.0 45.3 57.8 68.6 78.4 | 38.6 35.5 48.2 60.6 72.4 | 84.4 43.3 57.2 73.2
Invariant        | 55.4 46.2 59.0 70.1 80.2 | 35.8 41.3 52.3 63.6 74.9 | 86.0 48.9 64.0 78.0
sRPML            | 53.1 43.7 56.5 68.3 79.4 | 40.0 44.6 56.9 68.6 79.5 | 82.5 47.5 63.5 78.1
"""
# On CUB, with class labels; the paper repeats its own row there.
_TABLE_2 = """
Contrastive      | 47.2 27.2 36.3 49.8 62.1
DDML             | 47.3 31.2 41.6 54.7 67.1
Triplet          | 49.8 35.9 47.7 59.1 70.0
Triplet + hard   | 53.4 40.6 52.3 64.2 75.0
Triplet + DAML   | 51.3 37.6 49.3 61.3 74.4
Triplet + HDML   | 55.1 43.6 55.8 67.7 78.3
Lifted           | 56.4 46.9 59.8 71.2 81.5
"""
LEARNED = "rpml"  # the row whose embedding the figures show


@dataclass(frozen=True)
class Descriptors:
    """Rows of all images, their classes, the split, and their origin.

    `images` are the files in row order, if available; `ks` the K of Recall@K.
    """

    X: Array
    labels: AnyArray
    train: Mask
    origin: Json
    ks: tuple[int, ...] = KS
    images: tuple[Path, ...] | None = None

    def __post_init__(self) -> None:
        if not self.train.any() or self.train.all():
            side = "training" if not self.train.any() else "test"
            raise InputError(
                f"there are no {side} rows: give classes of both sides, or an array "
                f"'train' of True and False in the .npz file"
            )
        both = set(self.labels[self.train].tolist()) & set(self.labels[~self.train].tolist())
        if both:
            raise InputError(
                f"class {min(both, key=str)!r} is on both sides of the split, and the test must be "
                "of classes never seen in training"
            )

    def whitened(self, dim: int) -> Self:
        """Return the descriptors PCA-whitened to `dim`, learned on the training rows only."""
        whitening = PCA(dim, exponent=1.0).fit(self.X[self.train])
        return replace(self, X=whitening.transform(self.X), origin={**self.origin, "whitened": dim})


def read_dataset(dataset: str, root: str, incomplete: bool = False) -> ImageSet:
    """Read a dataset's images; check that the files exist and the counts are the published ones."""
    images = READERS[dataset](root)
    images.check_files()
    if dataset in PUBLISHED and not incomplete:
        images.check_counts(PUBLISHED[dataset])
    return images


def from_file(
    dataset: str, path: str, options: ReadOptions, labels: str | None = None
) -> Descriptors:
    """Read descriptors from any file of features, and labels from it or another file.

    An .npz file may also hold the labels (``y``) and the split (``train``); otherwise the split
    follows the class numbers of the dataset ("cub", "cars", "sop" or "folders").
    """
    train = None
    if path.endswith(".npz"):
        check_readable(Path(path))
        archive = NpzFile(Path(path))
        if options.array is None:  # the only matrix; of several, the reader chooses
            matrices = [name for name in archive.names if archive.read(name).ndim == 2]
            options = replace(options, array=matrices[0] if len(matrices) == 1 else None)
        train = archive.read("train").astype(bool) if "train" in archive.names else None
    features = read_features(path, options)
    X = np.asarray(features.values, np.float32)
    y = as_label_array(read_values(labels or path, features))
    if train is None:
        if dataset not in PUBLISHED or y.dtype.kind not in "iu":
            raise InputError(
                f"{path} does not say which rows are for training: give an .npz file with an array "
                "'train', or a dataset with numbered classes"
            )
        train = np.asarray(y.astype(np.int64) <= PUBLISHED[dataset].train_classes)
    if train.shape != y.shape:
        raise InputError(f"{path}: the array 'train' must have one value per row")
    origin = {"features": Path(path).name, "array": options.array}
    return Descriptors(X, y, train, origin, RECALL_AT.get(dataset, KS))


def run_methods(
    data: Descriptors, names: Sequence[str], dim: int, seed: int = 0, context: Context | None = None
) -> tuple[list[Json], dict[str, Array]]:
    """Measure methods of the registry on descriptors; only the scores use the labels.

    The context's store keeps finished rows. Returns the rows, and the embedding of the test rows
    by each method.
    """
    methods = chosen_methods(names)
    context = context or Context()
    rows, embeddings = [], {}
    for number, method in enumerate(methods):
        context.report(Progress("methods", number, len(methods)))
        saved = context.load(f"row-{method.name}")
        if saved is None:
            row, Z = measure(data, method, dim, seed)
            context.save(f"row-{method.name}", {"Z": Z}, row)
        else:
            row, Z = saved[1], saved[0]["Z"]
        rows.append(row)
        embeddings[method.name] = Z
    context.report(Progress("methods", len(names), len(names)))
    return rows, embeddings


def measure(data: Descriptors, method: Method, dim: int, seed: int) -> tuple[Json, Array]:
    """Fit a method on the training rows, embed and score the test rows.

    `scores` has an entry "cosine" and, for embeddings without unit norm, another "euclidean" (the
    measure of the paper's authors); each has nmi, f, precision, recall and recall@K, as shares.
    """
    train = data.train
    model, seconds, caught = method.fit(data.X[train], data.labels[train], dim, seed)
    Z, y = np.asarray(model.transform(data.X[~train]), np.float32), data.labels[~train]
    metrics = ["cosine"] + ([] if getattr(model, "normalize", True) else ["euclidean"])
    row = {
        "method": method.name,
        "title": method.title,
        "dim": Z.shape[1],
        "scores": {metric: scores_of(Z, y, metric, data.ks, seed) for metric in metrics},
        "seconds": seconds,
        "settings": _settings(model),
        "warnings": caught,
        "uses_labels": method.uses_labels,
    }
    return row, Z


def scores_of(Z: Array, y: AnyArray, metric: str, ks: tuple[int, ...], seed: int) -> Json:
    """Return NMI, F, precision, recall and Recall@K of embedded test rows."""
    recall = {f"recall@{k}": v for k, v in recall_at_k(Z, y, ks, metric).items()}
    return {**recall, **clustering_scores(Z, y, seed, metric)}


def _settings(estimator: BaseEstimator) -> Json:
    """Return the non-default arguments of the constructor, as text where necessary."""
    defaults = type(estimator)().get_params(deep=False)
    parameters = estimator.get_params(deep=False)
    plain = (bool, int, float, str, type(None))
    changed = {k: v for k, v in parameters.items() if repr(v) != repr(defaults[k])}
    return {
        "class": type(estimator).__name__,
        **{k: v if isinstance(v, plain) else one_line(repr(v)) for k, v in changed.items()},
    }


def as_lines(rows: Sequence[Json], published: Sequence[Json], ks: Sequence[int]) -> list[list[str]]:
    """Return the cells of a header, of the published rows and of the measured rows."""
    names = [*_CLUSTER.values(), *(f"recall@{k}" for k in ks)]
    shown = [(q["method"], "", q, 1, q["uses_labels"], "published") for q in published]
    for row in rows:
        for metric, scores in row["scores"].items():
            title = row["title"] + ("" if metric == "cosine" else ", Euclidean")
            place = title, str(row["dim"]), scores
            shown.append((*place, 100, row["uses_labels"], "measured"))
    lines = [["method", "dim", *_CLUSTER, *(f"R@{k}" for k in ks), "labels", "source"]]
    for title, dim, scores, scale, uses_labels, source in shown:
        cells = (f"{scale * scores[name]:.1f}" if name in scores else "" for name in names)
        lines.append([title, dim, *cells, "yes" if uses_labels else "no", source])
    return lines


def as_markdown(rows: Sequence[Json], published: Sequence[Json], ks: Sequence[int]) -> str:
    """Return a Markdown table with published figures in italics."""
    header, *body = as_lines(rows, published, ks)
    for line in body:
        if line[-1] == "published":
            line[:] = [f"*{cell}*" if cell else "" for cell in line]
    return markdown_text([header, *body])


def as_fields(rows: Sequence[Json], published: Sequence[Json]) -> dict[str, list[Json]]:
    """Return both kinds of rows as JSON values; published figures are in percent, as printed."""
    measured = [{**row, "source": "measured"} for row in rows]
    printed = {"source": "published", "unit": "percent"}
    return {"measured": measured, "published": [{**quoted, **printed} for quoted in published]}


def published_rows(dataset: str) -> list[Json]:
    """Return all published rows of a dataset ("cub", "cars", "sop"), if any.

    `table` is the number of the table in the paper.
    """
    if dataset not in RECALL_AT:
        return []
    rows = _column(_TABLE_1, dataset, uses_labels=False, table=1)
    return rows + (_column(_TABLE_2, dataset, True, 2) if dataset == "cub" else [])


def _column(text: str, dataset: str, uses_labels: bool, table: int) -> list[Json]:
    rows = []
    for line in text.strip().splitlines():
        method, *cells = line.split("|")
        nmi, *recall = map(float, cells[list(RECALL_AT).index(dataset)].split())
        by_k = {f"recall@{k}": r for k, r in zip(RECALL_AT[dataset], recall, strict=True)}
        row = {"method": method.strip(), "uses_labels": uses_labels, "nmi": nmi, "table": table}
        rows.append({**by_k, **row})
    return rows
