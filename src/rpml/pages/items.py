"""The items that the rows represent: ids, labels, pictures, texts and metadata."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rpml.estimator import RPML
from rpml.estimator.knowledge import MAX_CATEGORIES, NUMBER_BINS
from rpml.io.datasets.image_sets import VIEW_MARK
from rpml.io.features.labels import UNLABELED, read_values
from rpml.io.features.reading import check_readable
from rpml.io.features.source import Features
from rpml.io.features.text_files import read_column, text_lines
from rpml.runtime.errors import InputError, counted
from rpml.runtime.rows import AnyArray, Array, Indices, Integers, Labels, Mask

if TYPE_CHECKING:
    from rpml.vision.images import ImageFile

Category = dict[str, object]
_TABLES = (".parquet", ".feather", ".jsonl", ".csv", ".tsv")


@dataclass(frozen=True)
class Items:
    """Ids, labels and pictures of the rows, each in row order."""

    ids: list[str]
    labels: list[str | None] | None = None
    """None for a row without a label."""
    images: list[Path | None] | None = None
    """None for a row without a picture."""
    texts: list[str] | None = None
    """Shown instead of the ids; texts may repeat."""
    metadata: dict[str, list[str]] = field(default_factory=dict)
    """Other columns by name, with empty text for missing values."""
    nuisance: tuple[str, ...] = ()
    """Those of the columns that do not matter."""
    queries: Array | None = None
    """Vectors that the items are searched by."""

    def __len__(self) -> int:
        return len(self.ids)

    def label(self, row: int) -> str | None:
        return None if self.labels is None else self.labels[row]

    def text(self, row: int) -> str:
        return self.ids[row] if self.texts is None else self.texts[row]

    @property
    def nuisance_values(self) -> list[str] | None:
        """The values of all columns that do not matter; empty text where one is missing."""
        if not self.nuisance:
            return None
        rows = zip(*(self.metadata[name] for name in self.nuisance), strict=True)
        return [", ".join(row) if all(row) else "" for row in rows]

    @property
    def labeled_mask(self) -> Mask:
        if self.labels is None:
            return np.zeros(len(self), np.bool_)
        return np.array([label is not None for label in self.labels], np.bool_)


def make_items(
    n_rows: int,
    ids: Iterable[object] | None = None,
    labels: Iterable[object] | None = None,
    images: str | Path | None = None,
    texts: Iterable[object] | None = None,
    nuisance: ArrayLike | Mapping[str, Iterable[object]] | None = None,
) -> Items:
    """Create the items of `n_rows` rows, which are numbered from 0 without `ids`.

    Labels None, NaN, -1 and empty text mean that a row has no label, and so for a nuisance. The
    files of the folder `images` are matched to the ids, or to the row order without ids.
    """
    names = [str(i) for i in (range(n_rows) if ids is None else ids)]
    classes = None if labels is None else [_label(label) for label in labels]
    shown = None if texts is None else ["" if text is None else str(text) for text in texts]
    known = {} if nuisance is None else _nuisance_columns(nuisance)
    counts = (("id", names), ("label", classes), ("text", shown))
    for noun, values in (*counts, *(("value of nuisance", column) for column in known.values())):
        if values is not None:
            _check_count(values, n_rows, noun, "got")
    if classes is not None and not any(label is not None for label in classes):
        raise InputError("no row has a label: every label is empty or -1")
    pictures = None
    if images is not None:
        pictures = match_images(Path(images), None if ids is None else names, n_rows)
    return Items(names, classes, pictures, shown, known, tuple(known))


def _check_count(values: Sequence[object], n_rows: int, noun: str, start: str) -> None:
    if len(values) != n_rows:
        found, rows = counted(len(values), noun), counted(n_rows, "row")
        raise InputError(f"{start} {found}, the features have {rows}")


def _nuisance_columns(nuisance: Any) -> dict[str, list[str]]:
    """Return the columns of a nuisance as text: a column, an array, a table or a mapping."""
    if hasattr(nuisance, "columns") or isinstance(nuisance, Mapping):
        table = {str(name): nuisance[name] for name in getattr(nuisance, "columns", nuisance)}
    elif (values := np.asarray(nuisance)).ndim == 2:
        table = {f"nuisance {i + 1}": values[:, i] for i in range(values.shape[1])}
    else:
        table = {"nuisance": nuisance}
    return {name: _ranges([_label(value) or "" for value in table[name]]) for name in table}


def _ranges(column: list[str]) -> list[str]:
    """Return the range of each number if a column has many different ones, else the column."""
    try:
        numbers = np.array([float(text or "nan") for text in column])
    except ValueError:
        return column
    known = np.isfinite(numbers)
    whole = all(text.lstrip("-").isdigit() for text in column if text)
    if len(np.unique(numbers[known])) <= MAX_CATEGORIES or whole:
        return column
    edges = np.unique(np.quantile(numbers[known], np.arange(NUMBER_BINS + 1) / NUMBER_BINS))
    names = [f"{a:.3g} to {b:.3g}" for a, b in pairwise(edges)]
    places = np.clip(np.searchsorted(edges, numbers) - 1, 0, len(names) - 1)
    return [names[place] if ok else "" for place, ok in zip(places, known, strict=True)]


def _label(value: object) -> str | None:
    text = "" if value is None or value != value else str(value).strip()  # NaN is no label
    return None if text in UNLABELED else text


def read_ids(path: str | Path, n_rows: int) -> list[str]:
    """Read ids in row order: one per line, or the id column of a .csv or .tsv table."""
    path = Path(path)
    check_readable(path)
    table = path.suffix in (".csv", ".tsv")
    lines = read_column(path, None, ("id",)) if table else text_lines(path)
    _check_count(lines, n_rows, "id", f"{path} has")
    name, times = Counter(lines).most_common(1)[0]
    if times > 1:
        raise InputError(f"{path} gives the id {name!r} to {times} rows: ids must be unique")
    return lines


def read_texts(path: str | Path, data: Features, features: str | Path = "") -> list[object]:
    """Read texts in row order: one per line of a .txt file, or the column "text" of a table.

    A table with ids is matched by id; missing ids have no text. A name without a suffix that is not
    a file is a column of the features file, if that is a table.
    """
    path = Path(path)
    if not path.suffix and not path.exists() and Path(features).suffix in _TABLES:
        return read_values(features, data, str(path), id_column="", partial=True)  # by order
    check_readable(path)
    if path.suffix != ".txt":
        return read_values(path, data, "text", partial=True)
    lines = text_lines(path)
    _check_count(lines, len(data.values), "line", f"{path} has")
    return list(lines)


def encode_category(values: Sequence[str | None]) -> Category:
    """Return names, counts and one code per row, the most frequent first; -1 for no value."""
    counts = Counter(value for value in values if value is not None)
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    code = {name: i for i, name in enumerate(ranked)}
    return {
        "names": ranked,
        "counts": [counts[name] for name in ranked],
        "codes": [-1 if value is None else code[value] for value in values],
    }


def match_images(folder: Path, ids: Sequence[str] | None, n_rows: int) -> list[Path | None]:
    """Return the picture of every row, by id (relative path, with or without its suffix).

    Symbolic links that lead out of the folder are ignored.
    """
    from rpml.vision.images import find_images

    if not folder.is_dir():
        raise InputError(f"--images {folder}: there is no such folder")
    root = os.path.realpath(folder)  # unlike Path.resolve it does not raise on a looping link
    files = [f for f in find_images(folder) if Path(os.path.realpath(f.path)).is_relative_to(root)]
    if ids is None:
        if len(files) != n_rows:
            raise InputError(
                f"{folder} holds {counted(len(files), 'image')} and the features have "
                f"{counted(n_rows, 'row')} without ids: give --ids, one file name per line"
            )
        return [f.path for f in files]
    forms: list[dict[str, list[ImageFile]]] = [{}, {}, {}, {}]  # the most exact first
    for file in files:
        path = PurePosixPath(file.id)
        names = (file.id, str(path.with_suffix("")), path.name, path.stem)
        for form, name in zip(forms, names, strict=True):
            form.setdefault(name, []).append(file)
    paths: list[Path | None] = []
    for name in ids:
        wanted = (name, name.partition(VIEW_MARK)[0])
        found = next((form[w] for w in wanted for form in forms if w in form), [])
        if len(found) > 1:
            raise InputError(
                f"--images {folder}: {found[0].id} and {found[1].id} are both pictures of the id "
                f"{name!r}: use such paths as ids"
            )
        paths.append(found[0].path if found else None)
    if not any(paths):
        raise InputError(
            f"no image in {folder} is named like an id: the first id is {ids[0]!r}, "
            f"the first image {files[0].id!r}"
        )
    return paths


def fitted_on(model: RPML, X: Array) -> bool:
    """Whether X are the training rows: as many, and with the exemplars of the fit in place."""
    n_labels = len(getattr(model, "labels_", X))  # of more rows than the new ones after an update
    if not len(X) == model.n_samples_ == n_labels or X.shape[1] != model.n_features_in_:
        return False
    if not hasattr(model, "exemplar_vectors_"):
        return True
    rows = np.asarray(X[model.exemplars_.rows], np.float64)
    return bool(np.allclose(rows, model.exemplar_vectors_, rtol=1e-3, atol=1e-6))


def clusters_of(model: RPML, X: Array, rows: Indices | None = None) -> Labels | None:
    """Return the clusters of X: those of the fit if X are its rows, or their own if it made none.

    Their own are only of some `rows`, if given. None if the model has clusters, but of other rows.
    """
    if hasattr(model, "labels_"):
        return model.labels_ if fitted_on(model, X) else None
    chosen = np.arange(len(X)) if rows is None else rows
    labels = np.full(len(X), -1)
    labels[chosen] = model.cluster_rows(X[chosen])[0]
    return labels


def retrieval_queries(nearest: Integers, labels: AnyArray, count: int) -> tuple[Indices, Indices]:
    """Return up to `count` queries with mostly right `nearest` rows, and as many with wrong ones.

    Each class has at most one query, the first that qualifies, and the queries are spread evenly
    over the classes. Classes that are too small for mostly right results are skipped.
    """
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    right = (codes[nearest] == codes[:, None]).mean(axis=1)
    able = sizes[codes] - 1 > nearest.shape[1] / 2

    def spread(wanted: Mask) -> Indices:
        rows = np.flatnonzero(wanted & able)
        firsts = rows[np.unique(codes[rows], return_index=True)[1]]
        places = np.linspace(0, len(firsts) - 1, min(count, len(firsts)))
        return firsts[places.round().astype(np.intp)]

    return spread(right > 0.5), spread(right < 0.5)


SIDES = (96, 80, 64, 48, 40, 32)
MAX_PIXELS = 50_000_000
SMALL, LARGE = 256, 900  # sides in the explorer
_FEW_COLORS = 64  # line drawings, which are smaller and sharp without loss
_TRIED = 32
_TINY = 40  # smaller pictures are enlarged with hard pixels instead of a blur


def thumbnail(path: Path, side: int) -> bytes | None:
    """Return the picture as WebP, its longer side at most `side`; None if it cannot be read."""
    from rpml.vision.images import ImageError, load_rgb

    try:
        image = load_rgb(path, MAX_PIXELS, enough=2 * side)
    except ImageError:
        return None
    image.thumbnail((side, side))
    if max(image.size) < _TINY:
        factor = max(1, side // max(image.size))
        image = image.resize((factor * image.width, factor * image.height), resample=0)
    buffer = BytesIO()
    lossless = image.getcolors(_FEW_COLORS) is not None
    image.save(buffer, "WEBP", quality=68, method=2, lossless=lossless)
    return buffer.getvalue()


def fitting_side(paths: Sequence[Path | None], budget: int) -> int:
    """Estimate from a sample the largest side at which all fit (base64 takes 4 bytes for 3)."""
    tried = [path for path in paths[:: max(1, len(paths) // _TRIED)] if path is not None]
    for side in SIDES:
        sizes = [len(thumbnail(path, side) or b"") for path in tried]
        if 1.2 * sum(sizes) / max(1, len(sizes)) * 4 / 3 * len(paths) <= budget:
            return side
    return SIDES[-1]


PictureReader = Callable[[int, bool], bytes | None]


def picture_reader(items: Items, folder: Path) -> PictureReader:
    """Return a function from a row to its picture, large or small, encoded again and cached.

    Files outside the folder, by a link created since the start, are not read.
    """
    images, root = items.images or [], folder.resolve()

    @lru_cache(maxsize=4096)
    def read(row: int, large: bool) -> bytes | None:
        path = images[row] if row < len(images) else None
        try:
            real = None if path is None else path.resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        if real is None or not real.is_relative_to(root):
            return None
        return thumbnail(real, LARGE if large else SMALL)

    return read
