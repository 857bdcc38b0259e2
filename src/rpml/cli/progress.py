"""Progress of a run on the terminal, and the signals that stop it."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rpml.runtime.context import Progress

STAGES = {
    "read": "reading",
    "prepare": "preparing",
    "whiten": "whitening",
    "neighbors": "nearest neighbors",
    "labels": "pseudo-labels",
    "optimize": "optimizing",
    "embed": "embedding",
    "cluster": "clustering",
    "recall": "nearest neighbors",
    "kmeans": "k-means",
    "trunk": "frozen layers",
    "frozen": "descriptors",
    "linear": "linear start",
    "train": "epochs",
    "figures": "drawing figures",
}
_SECONDS_BETWEEN_LINES = 2.0


class Reporter:
    """Receives progress reports and shows nothing; subclasses display them."""

    stage = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def __call__(self, event: "Progress") -> None:
        self.stage = event.stage


class LineReporter(Reporter):
    """Plain lines: at the start and the end of a stage, and every two seconds in between."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[float, int]] = {}  # when, and with how much done
        self._last, self._shown, self._ended = 0.0, "", ""

    def __call__(self, event: "Progress") -> None:
        super().__call__(event)
        now = time.monotonic()
        begun, first = self._begun.setdefault(event.stage, (now, event.done))
        finished = 0 < event.total <= event.done
        if finished:  # it may come again: the batches of the next epoch
            del self._begun[event.stage]
        recent = event.stage == self._shown and now - self._last < _SECONDS_BETWEEN_LINES
        if self._ended == event.stage if finished else recent or event.total == 1:
            return
        self._last, self._shown = now, event.stage
        self._ended = event.stage if finished else ""
        parts = [STAGES.get(event.stage, event.stage) + ":"]
        if event.total > 1 or (event.total <= 0 and event.done):
            parts.append(f"{event.done}/{event.total}," if event.total > 0 else f"{event.done},")
        parts += [f"{name} {value:.5g}," for name, value in event.info.items()]
        elapsed, steps = now - begun, event.done - first
        if finished:
            parts.append(f"done in {elapsed:.1f} s")
        elif min(elapsed, steps) > 0 and event.total > 1:
            left = (event.total - event.done) * elapsed / steps
            parts.append(f"{steps / elapsed:.3g}/s, {left:.0f} s left")
        print(" ".join(parts).rstrip(","), file=sys.stderr, flush=True)


class BarReporter(Reporter):
    """One rich bar per stage, with the remaining time."""

    def __init__(self) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TaskID,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bars = Progress(
            TextColumn("{task.description:<19}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[info]}"),
            console=RichConsole(stderr=True),
        )
        self._bars.start()
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, event: "Progress") -> None:
        super().__call__(event)
        if event.stage not in self._tasks:
            name = STAGES.get(event.stage, event.stage)
            self._tasks[event.stage] = self._bars.add_task(name, total=None, info="")
        task = self._tasks[event.stage]
        finished = 0 < event.total <= event.done
        total = self._bars.tasks[task].total
        if event.total > 1 or (finished and total is None):
            total = event.total
        self._bars.update(
            task,
            completed=total if finished else event.done,
            total=total,
            info=" ".join(f"{name} {value:.5g}" for name, value in event.info.items()),
        )

    def __exit__(self, *error: object) -> None:
        self._bars.stop()


@contextmanager
def answering(answer: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP in the block; signals that are ignored stay ignored."""
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    heard = {n: h for n in numbers if (h := signal.getsignal(n)) is not signal.SIG_IGN}
    for number in heard:
        signal.signal(number, answer)
    try:
        yield
    finally:
        for number, previous in heard.items():
            signal.signal(number, previous)


class Stopper:
    """Lets a running solver stop with its best result at a signal; else interrupts."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter, self.asked = reporter, False

    def __call__(self, event: "Progress") -> bool:
        self.reporter(event)
        return self.asked

    def answer(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.asked or self.reporter.stage != "optimize":
            raise KeyboardInterrupt
        self.asked = True
