"""The inputs of training: cached activations, or images that are decoded on demand."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch

from rpml.deep.backbones import Network
from rpml.deep.cache import ImageSpec, build_cache
from rpml.deep.descriptors import MultiViewDataset
from rpml.deep.samplers import Indices
from rpml.runtime.context import Context
from rpml.runtime.threads import thread_count
from rpml.vision.decode import ImageError
from rpml.vision.engine import Failure
from rpml.vision.extract import nothing_left
from rpml.vision.files import ImageFile

Item = TypeVar("Item")
Loaded = TypeVar("Loaded")


class ImageInputs(MultiViewDataset, Protocol):
    """Views of images with names; unreadable images are skipped."""

    ids: list[str]
    failures: tuple[Failure, ...]


class DecodedImages:
    """Images that are decoded in threads when a batch is loaded, for networks without a trunk.

    Each image is decoded once to find unreadable ones. Of the trunk, only the network's input
    convention is applied.
    """

    def __init__(self, files: Sequence[ImageFile], network: Network, image_spec: ImageSpec) -> None:
        self._network, self._spec = network, image_spec
        self._pool = ThreadPoolExecutor(thread_count(), "rpml-decode")
        reasons = list(self._pool.map(self._reason, files))
        self._files = [file for file, why in zip(files, reasons, strict=True) if why is None]
        self.failures = tuple(
            Failure(file.id, why) for file, why in zip(files, reasons, strict=True) if why
        )
        if not self._files:
            raise nothing_left(self.failures)
        self.ids = [file.id for file in self._files]
        self.n_views = image_spec.views.count + 1

    def __len__(self) -> int:
        return len(self._files)

    def load(self, rows: Indices, views: Indices) -> torch.Tensor:
        """Return a batch: view ``views[i]`` of image ``rows[i]``."""
        files = [self._files[row] for row in rows]
        tiles = self._pool.map(self._spec.tile, files, views.tolist())
        return torch.from_numpy(self._network.trunk_maps(np.stack(list(tiles))))

    def _reason(self, file: ImageFile) -> str | None:
        try:
            self._spec.tile(file, 0)
        except ImageError as error:
            return str(error)
        return None


def open_inputs(
    files: Sequence[ImageFile],
    network: Network,
    image_spec: ImageSpec,
    folder: str | Path,
    context: Context | None = None,
) -> ImageInputs:
    """Return the trunk's activations, cached in `folder`; without a trunk the images themselves."""
    if len(network.trunk):
        return build_cache(files, network, image_spec, folder, context)
    return DecodedImages(files, network, image_spec)


def prefetched(
    items: Iterable[Item], load: Callable[[Item], Loaded]
) -> Iterator[tuple[Item, Loaded]]:
    """Yield each item with its loaded data, while a thread loads the next one."""
    waiting: tuple[Item, Future[Loaded]] | None = None
    with ThreadPoolExecutor(1, "rpml-load") as pool:
        for item in items:
            previous, waiting = waiting, (item, pool.submit(load, item))
            if previous is not None:
                yield previous[0], previous[1].result()
        if waiting is not None:
            yield waiting[0], waiting[1].result()
