"""Progress, signals and text on the terminal."""

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import typer

from rpml.runtime.errors import text_table

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
    "train": "epochs",
    "figures": "drawing figures",
}
_SECONDS_BETWEEN_LINES = 2.0


class Reporter:
    """Prints progress: the start and the end of a stage, and lines in between.

    The longer a stage takes, the fewer its lines are.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet, self.stage = quiet, ""
        self._begun: dict[str, tuple[float, int]] = {}  # when, and with how much done
        self._last, self._shown, self._ended = 0.0, "", ""

    def __call__(self, event: "Progress") -> None:
        self.stage = event.stage
        now = time.monotonic()
        begun, first = self._begun.setdefault(event.stage, (now, event.done))
        elapsed, steps = now - begun, event.done - first
        finished = 0 < event.total <= event.done
        if finished:  # it may come again: the batches of the next epoch
            del self._begun[event.stage]
        wait = max(_SECONDS_BETWEEN_LINES, elapsed / 10)
        recent = event.stage == self._shown and now - self._last < wait
        if self.quiet or (self._ended == event.stage if finished else recent or event.total == 1):
            return
        self._last, self._shown = now, event.stage
        self._ended = event.stage if finished else ""
        parts = [STAGES.get(event.stage, event.stage) + ":"]
        if event.total > 1 or (event.total <= 0 and event.done):
            parts.append(f"{event.done}/{event.total}," if event.total > 0 else f"{event.done},")
        parts += [f"{name} {value:.5g}," for name, value in event.info.items()]
        if finished:
            parts.append(f"done in {elapsed:.1f} s")
        elif min(elapsed, steps) > 0 and event.total > 1:
            left = (event.total - event.done) * elapsed / steps
            rate = steps / elapsed
            parts.append(f"{rate:{',.0f' if rate >= 100 else '.3g'}}/s, {left:.0f} s left")
        print(" ".join(parts).rstrip(","), file=sys.stderr, flush=True)


@contextmanager
def answering(answer: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP in the block; signals that are ignored stay ignored."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
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
        if self.asked or self.reporter.stage != "optimize":
            raise KeyboardInterrupt
        self.asked = True


_CONTROL = re.compile(
    r"\x1b(?!\[[\d;]*m)"  # escape sequences other than colors
    "|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def say(text: str, err: bool = False) -> None:
    """Print text, which may come from a file, with control characters escaped."""
    escaped = _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
    typer.echo(escaped, err=err)


SHOWN: list[str] = []
"""The warnings of this run."""


def fields_text(fields: Mapping[str, object]) -> str:
    """Format one aligned "name: value" line per field."""
    rows = ((f"{name.replace('_', ' ')}:", shown(value)) for name, value in fields.items())
    return text_table(rows, "left")


def shown(value: object) -> str:
    """Format a value: numbers are rounded and grouped, without Python words."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float) and abs(value) < 1e5:
        return f"{value:.5g}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)
