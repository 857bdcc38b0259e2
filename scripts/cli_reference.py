"""Write docs/cli*.md from the commands themselves; --check only says whether they are up to date.

docs/cli.md has the help of the program; each group of commands in it has a page of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from click import Command, Context
from typer.main import get_command

from rpml.cli.app import GROUPS, app

DOCS = Path(__file__).parent.parent / "docs"
WIDTH = 90
OVERVIEW = """# Command line

What `rpml --help` prints, and the pages with the help of each command; `make docs` writes them
from the code.
"""
GROUP = """# Command line: {title}

What `rpml COMMAND --help` prints, as `make docs` copies it from the code ([all commands](cli.md)).
"""


def file_name(group: str) -> str:
    return f"cli-{group.lower().replace(' ', '-')}.md"


def help_block(command: Command, context: Context) -> str:
    lines = (line.rstrip() for line in command.get_help(context).splitlines())
    return "```text\n" + "\n".join(lines).rstrip() + "\n```\n"


def links() -> str:
    """One line per group: its page, and a link to each of its commands."""
    lines = ["| page | commands |", "|---|---|"]
    for group, names in GROUPS.items():
        page = file_name(group)
        commands = ", ".join(f"[{name}]({page}#rpml-{name})" for name in names)
        lines.append(f"| [{group}]({page}) | {commands} |")
    return "\n".join(lines) + "\n"


def reference() -> dict[str, str]:
    """The text of every page, by file name."""
    program = get_command(app)
    root = program.make_context("rpml", [], resilient_parsing=True, terminal_width=WIDTH)
    pages = {"cli.md": "\n".join([OVERVIEW, help_block(program, root), links()])}
    for group, names in GROUPS.items():
        parts = [GROUP.format(title=group.lower())]
        for name in names:
            command = program.commands[name]  # type: ignore[attr-defined]
            context = command.make_context(
                name, [], parent=root, resilient_parsing=True, terminal_width=WIDTH
            )
            parts.append(f"## rpml {name}\n\n{help_block(command, context)}")
        pages[file_name(group)] = "\n".join(parts)
    return pages


def main() -> int:
    pages = reference()
    if "--check" in sys.argv:
        written = {path.name: path.read_text(encoding="utf8") for path in DOCS.glob("cli*.md")}
        return int(written != pages)
    for name, text in pages.items():
        (DOCS / name).write_text(text, encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
