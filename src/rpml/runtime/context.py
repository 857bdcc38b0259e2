"""What surrounds a fit: random streams, a listener, and finished stages on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.memory import WORKING_MEMORY

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Progress:
    """What a callback is told."""

    stage: str
    done: int
    total: int
    info: Mapping[str, float] = field(default_factory=dict)
    """Figures of the moment, such as the loss."""


class Store(Protocol):
    """Finished stages kept on disk; see `rpml.io.checkpoint.Checkpoint`."""

    def path(self, name: str) -> Path: ...

    def load(self, name: str) -> tuple[Arrays, dict[str, Any]] | None: ...

    def save(
        self, name: str, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any] | None
    ) -> None: ...


@dataclass(frozen=True)
class Context:
    """Passed through the stages of a fit.

    A true result of `report` asks the solver to stop and keep what it has.
    """

    seed: int = 0
    report: Callable[[Progress], Any] = lambda progress: None
    store: Store | None = None
    blocks: int = WORKING_MEMORY
    """Bytes for the working blocks of the neighbour search."""
    memory: dict[str, Arrays] = field(default_factory=dict)
    """Stages of this fit that were asked for, so that a second request costs nothing."""

    def rng(self, stage: str) -> np.random.Generator:
        """A random stream of the stage's own: resuming after one does not disturb the next."""
        return np.random.default_rng([self.seed, *stage.encode()])

    def load(self, name: str) -> tuple[Arrays, dict[str, Any]] | None:
        return self.store.load(name) if self.store else None

    def save(self, name: str, arrays: Arrays, metadata: Mapping[str, Any] | None = None) -> None:
        if self.store:
            self.store.save(name, arrays, metadata)

    def stage(self, name: str, compute: Callable[[], Arrays]) -> Arrays:
        """The arrays of a stage, computed unless they are in memory or in the store."""
        if name not in self.memory:
            self.report(Progress(name, 0, 1))
            saved = self.load(name)
            self.memory[name] = saved[0] if saved else compute()
            if not saved:
                self.save(name, self.memory[name])
            self.report(Progress(name, 1, 1))
        return self.memory[name]
