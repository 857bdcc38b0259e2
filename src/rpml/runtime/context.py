"""The context of a fit: digests of inputs, random streams, progress, stages stored on disk."""

import hashlib
import inspect
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.rows import AnyArray

_BLOCK_BYTES = 2**26
_WHOLE, _PIECES, _PIECE = 2**20, 256, 2**12  # bytes of a file that is hashed whole; pieces


def data_digest(*values: object) -> str:
    """Return the sha256 of the values; arrays count by dtype, shape and content.

    Arrays, including memory maps, are read in blocks of rows. Everything else counts by its
    `plain_text`: numbers, strings, tuples of them, frozen dataclasses, estimators.
    """
    state = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray):
            for piece in _pieces(value):
                state.update(piece)
        else:
            state.update(b"none" if value is None else plain_text(value).encode())
    return state.hexdigest()


def plain_text(value: object) -> str:
    """Return a text that differs between values: `repr`, which abbreviates arrays, does not.

    Estimators show the settings that are not at their defaults, arrays their shape and a digest.
    """
    if isinstance(value, np.ndarray):
        return f"<array of shape {value.shape}, {data_digest(value)[:12]}>"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(plain_text, value))})"
    if not hasattr(value, "get_params") or isinstance(value, type):
        return repr(value)
    defaults = inspect.signature(type(value)).parameters
    settings = ", ".join(
        f"{name}={plain_text(setting)}"
        for name, setting in sorted(value.get_params(deep=False).items())
        if name not in defaults or plain_text(defaults[name].default) != plain_text(setting)
    )
    return f"{type(value).__name__}({settings})"


def _pieces(array: AnyArray) -> Iterator[bytes | memoryview]:
    if array.dtype.hasobject or array.dtype.kind == "U":
        text = json.dumps(array.tolist(), sort_keys=True, separators=(",", ":"))
        array = np.frombuffer(text.encode(), np.uint8)
    yield f"{array.dtype.str}{array.shape}".encode()
    row_bytes = max(1, array.nbytes // max(1, len(array)))
    step = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, len(array), step):
        block = np.ascontiguousarray(array[start : start + step])
        yield block.reshape(-1).view(np.uint8).data


def file_fingerprint(path: str | Path) -> str:
    """Return a hash of a file's size and content; of a file over 1 MB, of 256 pieces of 4 KB.

    This is cheap enough to be checked at every read. Vectors of two runs differ in nearly every
    piece.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        state = hashlib.sha256(str(size).encode())
        if size <= _WHOLE:
            state.update(file.read())
        else:
            for piece in range(_PIECES):
                file.seek(piece * (size - _PIECE) // (_PIECES - 1))
                state.update(file.read(_PIECE))
    return state.hexdigest()[:32]


WORKING_MEMORY = 512 * 2**20  # bytes of the blocks of the neighbor search
Arrays = dict[str, NDArray[Any]]
Json = dict[str, Any]
_KEY = "inputs"  # metadata of a stage: digest of its inputs
LOOP_SECONDS = 10.0  # between two saves of a loop


@dataclass(frozen=True)
class Progress:
    """A progress report, as passed to callbacks."""

    stage: str
    done: int
    total: int
    info: Mapping[str, float] = field(default_factory=dict)
    """Current figures, such as the loss."""


@dataclass
class PrintedProgress:
    """Prints each finished stage and its time, with verbose=2 every step, then reports it."""

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
class LoopState:
    """The arrays that a long loop changes in place, stored between two rounds of it.

    Not after every round, if rounds are short: a kill loses a round, or what ten seconds did.
    """

    context: "Context"
    name: str
    key: str
    report: Callable[[float], object] = lambda share: None
    stored: float = field(default_factory=time.monotonic)

    def __call__(self, share: float) -> None:
        """Report the finished share of the loop."""
        self.report(share)

    def resume(self, arrays: Arrays) -> int:
        """Fill the arrays with those stored; return how many rounds are done."""
        saved = self.context.load(self.name, self.key)
        if saved is None:
            return 0
        for name, array in arrays.items():
            array[:] = saved[0][name]
        return int(saved[1]["rounds"])

    def finished(self, rounds: int, arrays: Arrays) -> None:
        """Store the arrays after a round, if the last time is long ago."""
        if time.monotonic() - self.stored >= LOOP_SECONDS:
            self.context.save(self.name, arrays, {"rounds": rounds}, self.key)
            self.stored = time.monotonic()


@dataclass(frozen=True)
class Context:
    """Passed through the stages of a fit.

    If `report` returns a true value, the solver stops and keeps its current result.
    """

    seed: int = 0
    report: Callable[[Progress], object] = lambda progress: None
    store: Any = None
    """The `rpml.io.checkpoint.Checkpoint` of finished stages; io is above this package."""
    blocks: int = WORKING_MEMORY
    """Bytes for the working blocks of the neighbor search."""

    def rng(self, stage: str) -> np.random.Generator:
        """Return a random stream of the stage's own, so that resuming does not change the next."""
        return np.random.default_rng([self.seed, *stage.encode()])

    @contextmanager
    def reporting(self, stage: str) -> Iterator[None]:
        """Report the begin and the end of a stage."""
        self.report(Progress(stage, 0, 1))
        yield
        self.report(Progress(stage, 1, 1))

    def steps(self, stage: str, total: int) -> Callable[[], object]:
        """Return a function that reports one more finished step; the stage reports its own end."""
        done = itertools.count(1)
        return lambda: self.report(Progress(stage, min(next(done), total - 1), total))

    def key(self, *inputs: object) -> str:
        """Return the digest of a stage's inputs; empty without a store, and nothing is read."""
        return data_digest(*inputs) if self.store else ""

    def load(self, name: str, key: str = "") -> tuple[Arrays, Json] | None:
        """Return a stored stage if its key matches, else None."""
        saved = self.store.load(name) if self.store else None
        if saved is None or saved[1].pop(_KEY, "") != key:
            return None
        arrays, metadata = saved
        return arrays, metadata

    def save(
        self, name: str, arrays: Arrays, metadata: Mapping[str, object] | None = None, key: str = ""
    ) -> None:
        if self.store:
            self.store.save(name, arrays, {**(metadata or {}), _KEY: key} if key else metadata)
