"""The inputs of training: cached activations of the trunk, or images decoded on demand."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rpml.deep.backbones import Network
from rpml.deep.embedder import MultiViewDataset
from rpml.io.checkpoint import Checkpoint, check_directory
from rpml.runtime.context import Context, Progress
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Indices, slices
from rpml.runtime.threads import thread_count
from rpml.vision.extract import Failure, Tile, describe_images, files_digest, nothing_left
from rpml.vision.images import MAX_PIXELS, ImageError, ImageFile, Views, as_array, load_rgb

_PART = 64  # images per file
_LARGEST = float(np.finfo(np.float16).max)


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


def open_inputs(
    files: Sequence[ImageFile],
    network: Network,
    image_spec: ImageSpec,
    folder: str | Path | None,
    context: Context | None = None,
) -> MultiViewDataset:
    """Compute or read the activations of the trunk, in parts; an interrupted run is resumed.

    Unreadable images are skipped. The folder is for this cache only and created if needed; None:
    the checkpoint of the context, which also receives progress. A network without a trunk reads
    images that are decoded on demand.
    """
    if not len(network.trunk):
        return decoded_images(files, network, image_spec)
    context = context or Context()
    if folder is not None:
        context = replace(context, store=_open_cache(Path(folder), files, network, image_spec))
    failures: list[Failure] = []
    parts: list[NDArray[np.float16]] = []
    for part in slices(len(files), _PART):
        name = f"trunk-{part.start:09d}"
        if saved := context.load(name):
            maps = saved[0]["maps"]
            missing = [(image, reason) for image, reason in saved[1]["failures"]]
        else:
            maps, missing = _activations(files[part], network, image_spec)
            context.save(name, {"maps": maps}, {"failures": missing})
            context.report(Progress("trunk", part.stop, len(files)))
        failures += missing
        path = context.store.directory / f"{name}.safetensors"
        if maps.size:  # the only array of the file is at its end
            start = path.stat().st_size - maps.nbytes
            maps = np.memmap(path, np.float16, "r", start, maps.shape)
        parts.append(maps)
    used, ids = _without(files, failures)

    def load(rows: Indices, views: Indices) -> torch.Tensor:
        wanted = zip(used[rows].tolist(), views.tolist(), strict=True)
        maps = np.stack([parts[i // _PART][i % _PART, view] for i, view in wanted])
        return torch.from_numpy(maps.astype(np.float32))

    return MultiViewDataset(len(ids), image_spec.views.count + 1, load, ids, failures)


def _activations(
    files: Sequence[ImageFile], network: Network, image_spec: ImageSpec
) -> tuple[NDArray[np.float16], list[Failure]]:
    """Return the activations (image, view, ...) of files, zero for those that failed."""
    workers = thread_count()
    torch.set_num_threads(1)  # one batch per core is faster than one batch on all cores
    described, failures = describe_images(files, image_spec.tiles, network.trunk_maps, workers)
    torch.set_num_threads(workers)
    # float16 rounds by 0.1%, less than the difference between views
    found = {i: np.clip(np.stack(tiles), -_LARGEST, _LARGEST) for i, tiles in described.items()}
    shape = next(iter(found.values())).shape if found else (0,)
    maps = np.zeros((len(files), *shape), np.float16)
    for place, activations in found.items():
        maps[place] = activations
    return maps, failures


def _without(files: Sequence[ImageFile], failures: Sequence[Failure]) -> tuple[Indices, list[str]]:
    """Return the positions and ids of the files that could be read."""
    failed = {name for name, _ in failures}
    used = np.array([i for i, file in enumerate(files) if file.id not in failed], np.intp)
    if not len(used):
        raise nothing_left(failures)
    return used, [files[i].id for i in used]


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
