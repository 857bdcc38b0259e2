"""What surrounds a fit: random streams, a listener, and finished stages on disk."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.digest import data_digest
from rpml.runtime.errors import ModelFormatError
from rpml.runtime.memory import WORKING_MEMORY
from rpml.runtime.schema import Schema

logger = logging.getLogger(__name__)
Arrays = dict[str, NDArray[Any]]
Json = dict[str, Any]
_KEY = "inputs"  # metadata of a stage: the digest of what it was computed from


@dataclass(frozen=True)
class Progress:
    """What a callback is told."""

    stage: str
    done: int
    total: int
    info: Mapping[str, float] = field(default_factory=dict)
    """Figures of the moment, such as the loss."""


@dataclass
class PrintedProgress:
    """Prints each finished stage and its time, or from verbose=2 every step; then reports it."""

    verbose: int
    report: Callable[[Progress], object]
    stage: str = ""
    started: float = 0.0
    ended: str = ""

    def __call__(self, progress: Progress) -> object:
        if progress.stage != self.stage:
            self.stage, self.started, self.ended = progress.stage, time.perf_counter(), ""
        finished = 0 < progress.total <= progress.done
        if (finished and self.ended != progress.stage) or self.verbose > 1:
            self.ended = progress.stage if finished else ""
            figures = "".join(f", {name} {value:.5g}" for name, value in progress.info.items())
            seconds = time.perf_counter() - self.started
            count = f"{progress.done}/{progress.total}"
            print(f"[RPML] {progress.stage} {count}{figures}, {seconds:.1f} s", flush=True)
        return self.report(progress)


@dataclass
class Steps:
    """Reports each step of a stage when it is done."""

    stage: str
    total: int
    report: Callable[[Progress], object]
    done: int = 0

    def __call__(self) -> None:
        self.done = min(self.done + 1, self.total - 1)  # the stage itself reports its end
        self.report(Progress(self.stage, self.done, self.total))


def silent() -> None:
    """A step that nobody is told of."""


class Store(Protocol):
    """Finished stages kept on disk; see `rpml.io.checkpoint.Checkpoint`."""

    def path(self, name: str) -> Path: ...

    def load(self, name: str) -> tuple[Arrays, Json] | None: ...

    def save(self, name: str, arrays: Arrays, metadata: Mapping[str, object] | None) -> None: ...


@dataclass(frozen=True)
class Context:
    """Passed through the stages of a fit.

    A true result of `report` asks the solver to stop and keep what it has.
    """

    seed: int = 0
    report: Callable[[Progress], object] = lambda progress: None
    store: Store | None = None
    blocks: int = WORKING_MEMORY
    """Bytes for the working blocks of the neighbor search."""

    def rng(self, stage: str) -> np.random.Generator:
        """A random stream of the stage's own: resuming after one does not disturb the next."""
        return np.random.default_rng([self.seed, *stage.encode()])

    def stage(
        self, name: str, schema: Schema, compute: Callable[[], Arrays], *inputs: object
    ) -> Arrays:
        """The arrays of a stage: what the store holds for the same inputs, or computed.

        `inputs` are all that the stage depends on: arrays, and settings as plain values.
        """
        self.report(Progress(name, 0, 1))
        key = self.key(*inputs)
        saved = self.load(name, schema, key)
        if saved:
            arrays = saved[0]
        else:  # in the layout that they have when they are read again: products round alike
            arrays = {part: np.asarray(array, order="C") for part, array in compute().items()}
            self.save(name, arrays, key=key)
        self.report(Progress(name, 1, 1))
        return arrays

    def key(self, *inputs: object) -> str:
        """Digest of the inputs of a stage; nothing is read where there is no store."""
        return data_digest(*inputs) if self.store else ""

    def load(self, name: str, schema: Schema, key: str = "") -> tuple[Arrays, Json] | None:
        """What the store holds of a stage that had the same key, if it is as the schema says."""
        saved = self.store.load(name) if self.store else None
        if saved is None or saved[1].get(_KEY, "") != key:
            return None
        try:
            schema.check(*saved)
        except ModelFormatError as error:
            logger.warning("the finished stage %s is damaged: %s: computed again", name, error)
            return None
        return saved

    def save(
        self, name: str, arrays: Arrays, metadata: Mapping[str, object] | None = None, key: str = ""
    ) -> None:
        if self.store:
            self.store.save(name, arrays, {**(metadata or {}), _KEY: key} if key else metadata)
