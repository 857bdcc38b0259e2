"""The frozen trunk's output for every image and view: computed once, read at random."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rpml.deep.backbones import Network
from rpml.io.container import canonical_json
from rpml.runtime.atomic import atomic_output
from rpml.runtime.context import Context, Progress
from rpml.runtime.errors import InputError
from rpml.runtime.threads import thread_count
from rpml.vision.decode import MAX_PIXELS, as_array, load_rgb
from rpml.vision.engine import Engine, Failure, Tile, in_parts
from rpml.vision.extract import files_digest, nothing_left
from rpml.vision.files import ImageFile
from rpml.vision.views import Views

_PART = 64  # images between two notes of how far the work has come
_BATCH = 8
_HALF_MAX = float(np.finfo(np.float16).max)

Indices = NDArray[np.intp]


class Inputs(Protocol):
    """What training reads: every image in a fixed number of views, the first being itself."""

    views: int

    def __len__(self) -> int: ...

    def load(self, rows: Indices, views: Indices) -> torch.Tensor:
        """A batch: the given view of each given image."""


@dataclass(frozen=True)
class Sight:
    """How the network sees an image.

    Parameters
    ----------
    size : int
        Height and width in pixels; images are scaled to it whatever their shape.
    views : Views
        Augmented views beside the image itself.
    """

    size: int = 224
    views: Views = field(default_factory=lambda: Views(8))

    def tiles(self, file: ImageFile) -> list[Tile]:
        """The image, then its views, all of one size."""
        image = load_rgb(file.path, MAX_PIXELS, enough=2 * self.size)
        shape = (self.size, self.size)
        return [as_array(view, shape) for view in self.views.of(image, file.id)]


class TrunkCache:
    """Opened activations.

    Parameters
    ----------
    folder : Path
        As `build_cache` left it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            manifest = json.loads((self.folder / "cache.json").read_text(encoding="utf8"))
            self._maps = np.load(self.folder / "activations.npy", mmap_mode="r")
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} is not a finished cache of a trunk") from error
        self.failures = tuple(Failure(*pair) for pair in manifest["failures"])
        failed = {failure.id for failure in self.failures}
        self._rows = np.array([i for i, name in enumerate(manifest["ids"]) if name not in failed])
        self.ids = [manifest["ids"][i] for i in self._rows]
        self.views = int(self._maps.shape[1])

    def __len__(self) -> int:
        return len(self._rows)

    def load(self, rows: Indices, views: Indices) -> torch.Tensor:
        """A batch: the given view of each given image."""
        maps = self._maps[self._rows[rows], views]
        return torch.from_numpy(maps.astype(np.float32))


def build_cache(
    files: Sequence[ImageFile],
    network: Network,
    sight: Sight,
    folder: str | Path,
    context: Context | None = None,
) -> TrunkCache:
    """Compute the trunk's activations, or find them; a killed run continues where it was.

    Parameters
    ----------
    files : sequence of ImageFile
        Images; one that cannot be read is left out and listed in `failures`.
    network : Network
        Its trunk is what is cached.
    sight : Sight
        Size and views.
    folder : path
        Of this cache alone; made if need be.
    context : Context, optional
        Hears of progress.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {
        "trunk": network.fingerprint(),
        "sight": asdict(sight),
        "files": files_digest(files),
        "ids": [file.id for file in files],
    }
    done = _found(folder, wanted)
    if done is None or done["images"] < len(files):
        report = (context or Context()).report
        _compute(files, network, sight, _Progress(folder, wanted, done, report))
    cache = TrunkCache(folder)
    if not len(cache):
        raise nothing_left(cache.failures)
    return cache


def _found(folder: Path, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """What is there already; a cache of something else is refused."""
    path = folder / "cache.json"
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf8"))
    except ValueError:
        raise InputError(f"{path} is damaged: remove the folder {folder}") from None
    for name, value in json.loads(canonical_json(wanted)).items():
        if found.get(name) != value:
            raise InputError(
                f"{folder} is the cache of another {name}: choose another folder, or remove it"
            )
    return found


class _Progress:
    """How far the cache is; noted on disk after every part."""

    def __init__(
        self,
        folder: Path,
        wanted: dict[str, Any],
        found: dict[str, Any] | None,
        report: Callable[[Progress], Any],
    ) -> None:
        self.folder, self._wanted, self._report = folder, wanted, report
        self.images = found["images"] if found else 0
        self.failures: list[list[str]] = list(found["failures"]) if found else []

    def add(self, images: int, failures: Sequence[Failure]) -> None:
        """Note that the next images are on disk."""
        self.images += images
        self.failures += [[failure.id, failure.reason] for failure in failures]
        state = {**self._wanted, "images": self.images, "failures": self.failures}
        with atomic_output(self.folder / "cache.json") as temporary:
            temporary.write_text(canonical_json(state), encoding="utf8")
        self._report(Progress("trunk", self.images, len(self._wanted["ids"])))


def _compute(
    files: Sequence[ImageFile], network: Network, sight: Sight, progress: _Progress
) -> None:
    path = progress.folder / "activations.npy"
    shape = (len(files), sight.views.count + 1, *_map_shape(network, sight.size))
    if progress.images == 0:
        _check_space(progress.folder, shape)
        np.lib.format.open_memmap(path, "w+", np.float16, shape).flush()
    workers = thread_count()
    torch.set_num_threads(1)  # a batch a core is faster than a core a part of a batch
    with Engine(sight.tiles, network.trunk_maps, workers, _BATCH) as engine:
        todo = files[progress.images :]
        for start, some in in_parts(todo, _PART):
            maps = np.lib.format.open_memmap(path, "r+")
            described, failures = engine.run(some)
            first = len(files) - len(todo) + start
            for place, tiles in described.items():
                # half precision: a tenth of a percent, less than the views differ by
                maps[first + place] = np.clip(np.stack(tiles), -_HALF_MAX, _HALF_MAX)
            maps.flush()
            progress.add(len(some), failures)
    torch.set_num_threads(workers)


def _check_space(folder: Path, shape: tuple[int, ...]) -> None:
    """The file is written page by page through a memory map: a full disk would kill the process."""
    needed, free = 2 * math.prod(shape), shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"{folder}: {shape[0]} images in {shape[1]} views need {needed / 1e9:.1f} GB there and "
            f"{free / 1e9:.1f} GB are free: take fewer views, smaller images or another folder"
        )


def _map_shape(network: Network, size: int) -> tuple[int, ...]:
    black = np.zeros((1, size, size, 3), np.uint8)
    return network.trunk_maps(black).shape[1:]
