"""Terminal output: results on standard output, everything else on standard error."""

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Literal, Self

import typer

from rpml.cli.config import load_config

if TYPE_CHECKING:
    from rpml.runtime.context import Progress

STAGES = {
    "read": "reading",
    "whiten": "whitening",
    "neighbors": "nearest neighbors",
    "keep": "keeping neighbors",
    "graph": "graph",
    "labels": "pseudo-labels",
    "triplets": "triplets",
    "optimize": "optimizing",
    "embed": "embedding",
    "cluster": "clustering",
    "recall": "nearest neighbors",
    "kmeans": "k-means",
    "trunk": "frozen layers",
    "frozen": "descriptors",
    "linear": "linear start",
    "train": "epochs",
    "methods": "methods",
    "figures": "drawing figures",
}
_SECONDS_BETWEEN_LINES = 2.0


_CONTROL = re.compile(
    r"\x1b(?!\[[\d;]*m)"  # escape sequences other than colors
    "|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def say(text: str, err: bool = False) -> None:
    """Print text, which may come from a file, with control characters escaped."""
    escaped = _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
    typer.echo(escaped, err=err)


class Reporter:
    """Receives progress reports and shows nothing; subclasses display them."""

    def __init__(self) -> None:
        self.stage = ""
        self._begun: dict[str, tuple[float, int]] = {}  # when, and with how much done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __call__(self, event: "Progress") -> None:
        self.stage = event.stage
        self._begun.setdefault(event.stage, (time.monotonic(), event.done))
        self.show(event)
        if 0 < event.total <= event.done:  # it may come again: the batches of the next epoch
            del self._begun[event.stage]

    def show(self, event: "Progress") -> None:
        """Display an event."""

    def close(self) -> None:
        """Finish the display."""

    def rate(self, event: "Progress") -> tuple[float, float | None]:
        """Return (steps per second, seconds left) of the stage; None while unknown."""
        begun, first = self._begun[event.stage]
        elapsed, steps = time.monotonic() - begun, event.done - first
        if steps <= 0 or elapsed <= 0 or event.total <= 1:
            return 0.0, None
        return steps / elapsed, (event.total - event.done) * elapsed / steps


class LineReporter(Reporter):
    """Plain lines: at the start and the end of a stage, and every two seconds in between."""

    def __init__(self) -> None:
        super().__init__()
        self._last, self._shown, self._ended = 0.0, "", ""

    def show(self, event: "Progress") -> None:
        now = time.monotonic()
        finished = 0 < event.total <= event.done
        recent = event.stage == self._shown and now - self._last < _SECONDS_BETWEEN_LINES
        if self._ended == event.stage if finished else recent or event.total == 1:
            return
        self._last, self._shown = now, event.stage
        self._ended = event.stage if finished else ""
        print(self._line(event, finished), file=sys.stderr, flush=True)

    def _line(self, event: "Progress", finished: bool) -> str:
        parts = [STAGES.get(event.stage, event.stage) + ":"]
        if event.total > 1 or (event.total <= 0 and event.done):
            of = f"/{event.total}" if event.total > 0 else ""
            parts.append(f"{event.done}{of},")
        parts += [f"{name} {value:.5g}," for name, value in event.info.items()]
        rate, left = self.rate(event)
        if finished:
            parts.append(f"done in {time.monotonic() - self._begun[event.stage][0]:.1f} s")
        elif left is not None:
            parts.append(f"{rate:.3g}/s, {left:.0f} s left")
        return " ".join(parts).rstrip(",")


class BarReporter(Reporter):
    """One rich bar per stage, with rate and remaining time."""

    def __init__(self) -> None:
        super().__init__()
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
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[info]}"),
            console=RichConsole(stderr=True),
        )
        self._bars.start()
        self._tasks: dict[str, TaskID] = {}

    def show(self, event: "Progress") -> None:
        if event.stage not in self._tasks:
            name = STAGES.get(event.stage, event.stage)
            self._tasks[event.stage] = self._bars.add_task(name, total=None, rate="", info="")
        task = self._tasks[event.stage]
        finished = 0 < event.total <= event.done
        total = self._bars.tasks[task].total
        if event.total > 1 or (finished and total is None):
            total = event.total
        rate, _ = self.rate(event)
        self._bars.update(
            task,
            completed=total if finished else event.done,
            total=total,
            rate=f"{rate:.3g}/s" if rate else "",
            info=" ".join(f"{name} {value:.5g}" for name, value in event.info.items()),
        )

    def close(self) -> None:
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


def stop(number: int, frame: FrameType | None) -> None:
    """Signal handler that ends the program like Ctrl-C."""
    raise KeyboardInterrupt


class Stopper:
    """Signal handler that lets a running solver stop with its best result; else interrupts."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter, self.asked = reporter, False

    def __call__(self, event: "Progress") -> bool:
        self.reporter(event)
        return self.asked

    @contextmanager
    def listening(self) -> Iterator[Self]:
        """Handle signals until the block ends."""
        with answering(self._answer):
            yield self

    def _answer(self, number: int, frame: FrameType | None) -> None:
        if self.asked or self.reporter.stage != "optimize":
            raise KeyboardInterrupt
        self.asked = True


SHOWN: list[str] = []
"""The warnings of this run."""


@dataclass(frozen=True)
class Console:
    """The options of every command, and its output: text, or JSON."""

    threads: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Number of threads; default: all cores.")
    ] = None
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            callback=load_config,
            is_eager=True,
            help="TOML file that sets any of these options.",
        ),
    ] = None
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only the result and errors.")
    ] = False
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False

    def reporter(self) -> Reporter:
        """Return bars on a terminal, plain lines in a pipe, nothing with --quiet."""
        if self.quiet:
            return Reporter()
        return BarReporter() if sys.stderr.isatty() else LineReporter()

    def note(self, text: str) -> None:
        """Print a remark to standard error."""
        if not self.quiet:
            say(text, err=True)

    @contextmanager
    def following(self, logger: str) -> Iterator[None]:
        """Print what a logger of the library logs while the block runs."""
        import logging

        handler = logging.Handler()
        handler.emit = lambda record: self.note(record.getMessage())  # type: ignore[method-assign]
        source = logging.getLogger(logger)
        level = source.level
        source.addHandler(handler)
        source.setLevel(logging.INFO)
        try:
            yield
        finally:
            source.removeHandler(handler)
            source.setLevel(level)

    def result(self, fields: Mapping[str, object], text: str) -> None:
        """Print the result: the fields as JSON, or the text."""
        if self.json_output:
            from rpml.runtime.schema import finite_json

            told = finite_json({**fields, "warnings": list(SHOWN)})
            typer.echo(json.dumps(told, default=_plain, allow_nan=False))
        elif text:
            say(text)


def _plain(value: object) -> object:
    from rpml.runtime.schema import finite_json

    return finite_json(value.tolist()) if hasattr(value, "tolist") else str(value)


def table(rows: Iterable[Sequence[str]], justify: Literal["left", "right"] = "right") -> str:
    """Format aligned columns as plain text of any width."""
    from rich.console import Console as RichConsole
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for row in rows:
        if not grid.columns:
            for i in range(len(row)):
                grid.add_column(justify="left" if i == 0 else justify, no_wrap=True)
        grid.add_row(*map(Text, row))
    console = RichConsole(width=10_000, color_system=None)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def fields_text(fields: Mapping[str, object]) -> str:
    """Format one aligned "name: value" line per field."""
    rows = ((f"{name.replace('_', ' ')}:", shown(value)) for name, value in fields.items())
    return table(rows, "left")


def shown(value: object) -> str:
    """Format a value: numbers are rounded and grouped, without Python words."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.5g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return str(value)
