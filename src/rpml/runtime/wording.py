"""Words of messages, and text tables."""

from collections.abc import Iterable, Sequence
from typing import Literal


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 row", "2,000 rows"; `plural` if that does not end in s."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def one_line(message: object) -> str:
    """Return the text of a message with all white space folded."""
    return " ".join(str(message).split())


def first_line(error: BaseException) -> str:
    """Return the first line of an error of another library, or its type if it says nothing."""
    return str(error).split("\n")[0].strip() or type(error).__name__


def reason_of(error: Exception) -> str:
    """Return why a file could not be read, in words of our own for the most frequent case."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return getattr(error, "strerror", None) or first_line(error)


def text_table(rows: Iterable[Sequence[str]], justify: Literal["left", "right"] = "right") -> str:
    """Format aligned columns as plain text of any width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for row in rows:
        if not grid.columns:
            for i in range(len(row)):
                grid.add_column(justify="left" if i == 0 else justify, no_wrap=True)
        grid.add_row(*map(Text, row))
    console = Console(width=10_000, color_system=None)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
