"""The inputs of training: cached activations of the trunk, or images decoded on demand."""

import math
import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from rpml.deep.backbones import Network
from rpml.deep.embedder import MultiViewDataset
from rpml.deep.methods.base import Indices
from rpml.io.checkpoint import Checkpoint, check_directory, remove_checkpoint
from rpml.runtime.context import Context, Json, Progress
from rpml.runtime.errors import InputError
from rpml.runtime.rows import slices
from rpml.runtime.schema import COUNT, Schema
from rpml.runtime.threads import thread_count
from rpml.runtime.wording import counted
from rpml.vision.extract import (
    Execution,
    Failure,
    Tile,
    describe_images,
    files_digest,
    nothing_left,
)
from rpml.vision.images import MAX_PIXELS, ImageError, ImageFile, Views, as_array, load_rgb

_CHUNK = 64  # images between two writes of the manifest
_BATCH = 8
_ACTIVATIONS, _STAGE = "activations.npy", "trunk"
_SCHEMA = Schema({}, {"images": COUNT, "failures": [[str]]})
_FLOAT16_MAX = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class ImageSpec:
    """Size and augmented views of the images that the network reads."""

    size: int = 224
    """Height and width in pixels; images of any aspect ratio are resized to it."""
    views: Views = field(default_factory=lambda: Views(8))
    """In addition to the image itself."""

    def tiles(self, file: ImageFile, views: Iterable[int] | None = None) -> list[Tile]:
        """Return views of an image, all of one size; by default the image, then all its views."""
        image = load_rgb(file.path, MAX_PIXELS, enough=2 * self.size)
        views = range(self.views.count + 1) if views is None else views
        shape = (self.size, self.size)
        return [as_array(self.views.view(image, file.id, view), shape) for view in views]


def build_cache(
    files: Sequence[ImageFile],
    network: Network,
    image_spec: ImageSpec,
    folder: str | Path | None,
    context: Context | None = None,
) -> MultiViewDataset:
    """Compute or read the activations of the trunk; an interrupted run is resumed.

    Unreadable images are skipped. The folder is for this cache only and created if needed; None:
    the checkpoint of the context, which also receives progress.
    """
    context = context or Context()
    if folder is not None:
        context = replace(context, store=_open_cache(Path(folder), files, network, image_spec))
    saved = context.load(_STAGE, _SCHEMA)
    state: Json = saved[1] if saved else {"images": 0, "failures": []}
    if state["images"] < len(files):
        _compute(files, network, image_spec, state, context)
    maps = _open_maps(context.store.directory, len(files))
    failures = [(name, reason) for name, reason in state["failures"]]
    used, ids = _without(files, failures)

    def load(rows: Indices, views: Indices) -> torch.Tensor:
        return torch.from_numpy(maps[used[rows], views].astype(np.float32))

    return MultiViewDataset(len(ids), maps.shape[1], load, ids, failures)


def _open_cache(
    folder: Path, files: Sequence[ImageFile], network: Network, image_spec: ImageSpec
) -> Checkpoint:
    """Open or start a cache; InputError if the folder holds another one, or other files."""
    check_directory(folder)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"trunk": network.fingerprint(whole=False), "image_spec": asdict(image_spec)}
    try:
        return Checkpoint(folder, files_digest(files), settings, resume=True)
    except InputError:
        raise InputError(
            f"{folder} is the cache of other images, of another network, or of images of another "
            "size or with other views: choose another folder, or remove it"
        ) from None


def _without(files: Sequence[ImageFile], failures: Sequence[Failure]) -> tuple[Indices, list[str]]:
    """Return the positions and ids of the files that could be read."""
    failed = {name for name, _ in failures}
    used = np.array([i for i, file in enumerate(files) if file.id not in failed], np.intp)
    if not len(used):
        raise nothing_left(failures)
    return used, [files[i].id for i in used]


def remove_cache(folder: Path) -> None:
    """Delete the files of a cache, and the folder if it is then empty."""
    with suppress(InputError):
        check_directory(folder)
        (folder / _ACTIVATIONS).unlink(missing_ok=True)
        remove_checkpoint(folder)


def _compute(
    files: Sequence[ImageFile],
    network: Network,
    image_spec: ImageSpec,
    state: Json,
    context: Context,
) -> None:
    """Compute the activations of the images that are not on disk yet, chunk by chunk."""
    folder, done = context.store.directory, state["images"]
    path = folder / _ACTIVATIONS
    black = np.zeros((1, image_spec.size, image_spec.size, 3), np.uint8)
    shape = (len(files), image_spec.views.count + 1, *network.trunk_maps(black).shape[1:])
    if done == 0:
        _check_space(folder, shape)
        context.save(_STAGE, {}, state)  # first, to identify the folder as ours
        np.lib.format.open_memmap(path, "w+", np.float16, shape).flush()
    offset = _open_maps(folder, len(files)).offset
    workers = thread_count()
    torch.set_num_threads(1)  # one batch per core is faster than one batch on all cores
    execution = Execution(workers, _BATCH)
    for part in slices(len(files) - done, _CHUNK):
        chunk = files[done:][part]
        described, failures = describe_images(
            chunk, image_spec.tiles, network.trunk_maps, execution
        )
        maps = np.zeros((len(chunk), *shape[1:]), np.float16)
        for place, tiles in described.items():
            # float16 rounds by 0.1%, less than the difference between views
            maps[place] = np.clip(np.stack(tiles), -_FLOAT16_MAX, _FLOAT16_MAX)
        with open(path, "r+b") as file:  # a full disk would kill a process that writes to a map
            file.seek(offset + (done + part.start) * maps[0].nbytes)
            file.write(maps.data)
            file.flush()
            os.fsync(file.fileno())
        state["images"] += len(chunk)
        state["failures"] += failures
        context.save(_STAGE, {}, state)
        context.report(Progress("trunk", state["images"], len(files)))
    torch.set_num_threads(workers)


def _open_maps(folder: Path, n_images: int) -> np.memmap[tuple[int, ...], np.dtype[np.float16]]:
    try:
        maps = np.lib.format.open_memmap(folder / _ACTIVATIONS, "r")
        if maps.ndim != 5 or len(maps) != n_images:
            raise ValueError("activations of other images")
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} is a damaged cache: remove it") from error
    return maps


def _check_space(folder: Path, shape: tuple[int, ...]) -> None:
    """Raise InputError if the disk is too small, before the hours that the activations take."""
    needed, free = 2 * math.prod(shape), shutil.disk_usage(folder.parent).free
    if needed > free:
        raise InputError(
            f"{folder}: {counted(shape[0], 'image')} in {counted(shape[1], 'view')} need "
            f"{needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free: take "
            "fewer views, smaller images or another folder"
        )


def decoded_images(
    files: Sequence[ImageFile], network: Network, image_spec: ImageSpec
) -> MultiViewDataset:
    """Images that are decoded in threads when a batch is loaded, for networks without a trunk.

    Each image is decoded once to find unreadable ones. Of the trunk, only the network's input
    convention is applied.
    """
    pool = ThreadPoolExecutor(thread_count(), "rpml-decode")

    def reason(file: ImageFile) -> str:
        try:
            image_spec.tiles(file, [0])
        except ImageError as error:
            return str(error)
        return ""

    reasons = zip(files, pool.map(reason, files), strict=True)
    failures = [(file.id, why) for file, why in reasons if why]
    used, ids = _without(files, failures)

    def load(rows: Indices, views: Indices) -> torch.Tensor:
        wanted = [files[i] for i in used[rows]]
        tiles = pool.map(image_spec.tiles, wanted, ([view] for view in views.tolist()))
        return torch.from_numpy(network.trunk_maps(np.stack([tile for (tile,) in tiles])))

    return MultiViewDataset(len(ids), image_spec.views.count + 1, load, ids, failures)


def open_inputs(
    files: Sequence[ImageFile],
    network: Network,
    image_spec: ImageSpec,
    folder: str | Path | None,
    context: Context | None = None,
) -> MultiViewDataset:
    """Return the trunk's activations (see `build_cache`); without a trunk the images themselves."""
    if len(network.trunk):
        return build_cache(files, network, image_spec, folder, context)
    return decoded_images(files, network, image_spec)
