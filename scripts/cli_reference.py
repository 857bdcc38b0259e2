"""Write docs/cli.md from the commands themselves; --check only says whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from typer.main import get_command

from rpml.cli.app import app

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"
HEAD = """# Command line

What `rpml COMMAND --help` prints; this page is made from the code by `make docs`.
"""


def reference() -> str:
    """The page: the help of the program and of every command."""
    group = get_command(app)
    root = group.make_context("rpml", [], resilient_parsing=True, terminal_width=90)
    parts = [HEAD, f"```text\n{group.get_help(root).rstrip()}\n```\n"]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        context = command.make_context(
            name, [], parent=root, resilient_parsing=True, terminal_width=90
        )
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        parts.append(f"## rpml {name}\n\n```text\n{text.rstrip()}\n```\n")
    return "\n".join(parts)


def main() -> int:
    text = reference()
    if "--check" in sys.argv:
        return int(TARGET.read_text(encoding="utf8") != text)
    TARGET.write_text(text, encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
