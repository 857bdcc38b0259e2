"""What a row of the features is to a person: an id, a label, a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rpml.io.features.reading import check_readable
from rpml.runtime.errors import InputError

VIEW_MARK = "#view"  # ids of augmented views: the image's own id, this, and a number


@dataclass(frozen=True)
class Items:
    """Names, labels and pictures of rows, each in row order.

    Attributes
    ----------
    ids : list of str
    labels : list of str or None
        What each row is, if known.
    images : list of Path or None
        The picture of each row; None for a row without one.
    """

    ids: list[str]
    labels: list[str] | None = None
    images: list[Path | None] | None = None

    def __len__(self) -> int:
        return len(self.ids)


def make_items(
    n_rows: int, ids: Any = None, labels: Any = None, images: str | Path | None = None
) -> Items:
    """Items of `n_rows` rows; without ids a row is called by its number, counted from 0.

    Parameters
    ----------
    n_rows : int
    ids, labels : sequence, optional
        One a row.
    images : path, optional
        A folder whose files are found by the ids, or by their order where there are no ids.
    """
    names = [str(i) for i in (range(n_rows) if ids is None else ids)]
    if len(names) != n_rows:
        raise InputError(f"there are {len(names)} ids, the features have {n_rows} rows")
    classes = None if labels is None else [str(label) for label in labels]
    pictures = None
    if images is not None:
        pictures = match_images(Path(images), None if ids is None else names, n_rows)
    return Items(names, classes, pictures)


def read_ids(path: str | Path, n_rows: int) -> list[str]:
    """One id a line, in row order."""
    path = Path(path)
    check_readable(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the ids in {path}: {error}") from error
    if len(lines) != n_rows:
        raise InputError(f"{path} has {len(lines)} ids, the features have {n_rows} rows")
    name, times = Counter(lines).most_common(1)[0]
    if times > 1:
        raise InputError(f"{path} gives the id {name!r} to {times} rows: ids must be unique")
    return lines


def match_images(folder: Path, ids: Sequence[str] | None, n_rows: int) -> list[Path | None]:
    """The picture of every row: by id (path below the folder, with or without its suffix).

    Files that a link leads out of the folder to are not used.
    """
    from rpml.vision.files import find_images

    if not folder.is_dir():
        raise InputError(f"--images {folder}: there is no such folder")
    root = folder.resolve()
    files = [f for f in find_images(folder) if f.path.resolve().is_relative_to(root)]
    if ids is None:
        if len(files) != n_rows:
            raise InputError(
                f"{folder} holds {len(files)} images and the features have {n_rows} rows without "
                "ids: give --ids, one file name a line"
            )
        return [f.path for f in files]
    by_name: dict[str, Path] = {}
    for file in files:
        path = PurePosixPath(file.id)
        for name in (path.stem, path.name, str(path.with_suffix("")), file.id):
            by_name[name] = file.path  # the whole path comes last, so it wins
    found = [by_name.get(name.partition(VIEW_MARK)[0]) for name in ids]
    if not any(found):
        raise InputError(
            f"no image in {folder} is named like an id: the first id is {ids[0]!r}, "
            f"the first image {files[0].id!r}"
        )
    return found
