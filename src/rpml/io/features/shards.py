"""A folder of feature files, read as one."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from rpml.io.features.source import Batch, FeatureSource
from rpml.runtime.errors import InputError
from rpml.runtime.outputs import FOLDER_MANIFEST, Manifest
from rpml.runtime.wording import counted


def natural_key(path: Path) -> list[tuple[int, int, str]]:
    """Return a sort key that puts part-2 before part-10."""
    pieces = re.split(r"(\d+)", path.name)
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in pieces]


def shard_paths(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the feature files of a folder in natural order; they must be of one format."""
    try:
        entries = [folder / name for name in os.listdir(folder)]
    except OSError as error:
        raise InputError(f"cannot read the folder {folder}: {error.strerror}") from error
    paths = [path for path in entries if is_feature_file(path, suffixes)]
    check_one_format(folder, paths, suffixes)
    return sorted(paths, key=natural_key)


def is_feature_file(path: Path, suffixes: tuple[str, ...]) -> bool:
    """Whether a file of a folder of shards holds vectors; ids next to .npy files do not."""
    hidden = path.name.startswith(".") or path.name.endswith(".ids.csv")
    return path.suffix.lower() in suffixes and not hidden


def check_one_format(folder: object, paths: Iterable[Path], suffixes: tuple[str, ...]) -> None:
    """Raise InputError if a folder has no feature files, or files of several formats."""
    kinds = sorted({path.suffix.lower() for path in paths})
    if not kinds:
        raise InputError(f"{folder} has no feature files ({', '.join(suffixes)})")
    if len(kinds) > 1:
        raise InputError(f"{folder} mixes {' and '.join(kinds)} files: keep one kind per folder")


def _check_complete(folder: Path, paths: list[Path]) -> None:
    """Raise InputError if a folder that rpml wrote has not exactly the vectors of its manifest."""
    manifest = Manifest(folder / FOLDER_MANIFEST)
    listed = {path.name for path in manifest.listed() if is_feature_file(path, (".npy",))}
    if not listed:
        return
    for name in sorted(listed | {path.name for path in paths}):
        if name not in listed or manifest.differs(folder / name):
            raise InputError(
                f"{folder / name} is not as {FOLDER_MANIFEST} lists it: write the folder again, or "
                f"remove {FOLDER_MANIFEST} if its files do belong together"
            )


class ShardedSource(FeatureSource):
    """Several files with the same columns, concatenated."""

    def __init__(
        self, folder: Path, paths: list[Path], open_one: Callable[[Path], FeatureSource]
    ) -> None:
        self.name = str(folder)
        _check_complete(folder, paths)
        self._parts = [open_one(path) for path in paths]
        first = self._parts[0]
        for part in self._parts[1:]:
            self._check_like(part, first)
        self.n_features, self.has_ids = first.n_features, first.has_ids
        self.id_name, self.feature_names = first.id_name, first.feature_names
        self.kept_names = first.kept_names
        self.dtype = np.result_type(*(p.dtype for p in self._parts))
        counts = [p.n_rows for p in self._parts]
        self.n_rows = None if None in counts else sum(c for c in counts if c is not None)

    @staticmethod
    def _check_like(part: FeatureSource, first: FeatureSource) -> None:
        if part.n_features != first.n_features:
            raise InputError(
                f"{part.name} has {counted(part.n_features, 'column')}, {first.name} has "
                f"{first.n_features}: keep files of other vectors in other folders"
            )
        if part.feature_names != first.feature_names:
            raise InputError(f"{part.name} has other column names than {first.name}")
        if part.kept_names != first.kept_names:
            raise InputError(f"{part.name} has other columns to keep than {first.name}")
        if part.has_ids != first.has_ids:
            raise InputError(f"of {part.name} and {first.name} only one has ids")

    def raw_batches(self, rows: int) -> Iterator[Batch]:
        """Yield the batches of each file, checked here so that errors name the file."""
        start = 0
        for part in self._parts:
            for batch in part.raw_batches(rows):
                part._check_finite(batch)
                yield replace(batch, start=start + batch.start)
            part.check_unchanged()
            start += part.n_rows if part.n_rows is not None else batch.start + len(batch.values)
