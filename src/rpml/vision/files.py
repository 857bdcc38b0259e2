"""Find image files and name them."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rpml.io.datasets.image_sets import IMAGE_SUFFIXES
from rpml.io.features.text_files import text_lines
from rpml.runtime.errors import InputError


@dataclass(frozen=True)
class ImageFile:
    """An image on disk; `id` names it in every output."""

    id: str
    path: Path


def find_images(source: str | Path) -> list[ImageFile]:
    """List the images of a folder and its subfolders, those of a .txt list, or a single image.

    The paths of a list, one per line, are relative to the list. Images of a folder are sorted by
    path, others in the order of the list. Ids are paths relative to the folder with ``/`` between
    their parts. Hidden files and other suffixes are ignored, and symbolic links that form a cycle
    are followed once.
    """
    source = Path(source)
    if source.is_dir():
        files = sorted(_walk(source), key=lambda file: file.id)
        if not files:
            raise InputError(
                f"{source} holds no images (looked for {' '.join(IMAGE_SUFFIXES)} "
                "in it and in the folders below)"
            )
        return files
    if not source.exists():
        raise InputError(f"cannot read {source}: there is no such file or folder")
    if source.suffix.lower() == ".txt":
        return _listed(source)
    return [ImageFile(printable(source.name), source)]


def _walk(root: Path) -> Iterator[ImageFile]:
    seen = set()
    closed: list[str] = []
    for folder, below, names in os.walk(root, True, lambda e: closed.append(e.filename), True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            below.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        # sorted, so that of two links to one folder the same one is always followed
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in names:
            if not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES:
                yield _below(root, Path(folder, name))
    for folder in closed:  # listed like an image, so that it is reported as a failure
        yield _below(root, Path(folder))


def _below(root: Path, path: Path) -> ImageFile:
    return ImageFile(printable(path.relative_to(root).as_posix()), path)


def _listed(source: Path) -> list[ImageFile]:
    names = [line.strip() for line in text_lines(source) if line.strip()]
    if not names:
        raise InputError(f"{source} lists no images")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(f"{source} lists {repeated[0]!r} twice: ids must be unique")
    return [ImageFile(name, source.parent / name) for name in names]


def printable(name: str) -> str:
    """Return the name as valid UTF-8, whatever the bytes of the file system are."""
    return name.encode("utf8", "backslashreplace").decode("utf8")
