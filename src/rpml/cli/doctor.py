"""rpml doctor: is everything installed, and how to install what is not."""

from dataclasses import asdict

from rpml.cli.command import command
from rpml.cli.console import Console, table

EXAMPLES = """\b
Examples:
  rpml doctor
  rpml doctor --json
"""


@command
def run(console: Console) -> None:
    """Show versions, threads, extras and what is missing."""
    from rpml.runtime.environment import describe_environment

    found = describe_environment()
    rows = [("rpml", found.rpml), ("python", found.python), *found.packages.items()]
    rows += [("cores, threads", f"{found.cores}, {found.threads}")]
    rows += [("memory", f"{found.memory_gb} GB"), ("blas", "; ".join(found.blas))]
    versions = [(name, value or "missing") for name, value in rows]
    extras = [(n, e.install or "present", e.purpose) for n, e in found.extras.items()]
    tables = (versions, [("extra", "state", "for"), *extras])
    console.result(asdict(found), "\n\n".join(table(rows, "left") for rows in tables))
