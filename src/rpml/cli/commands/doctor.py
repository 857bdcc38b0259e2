"""rpml doctor: what is installed, and how to install what is missing."""

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

    environment = describe_environment()
    rows = [
        ("rpml", environment.rpml),
        ("python", environment.python),
        *environment.packages.items(),
    ]
    rows += [("cores, threads", f"{environment.cores}, {environment.threads}")]
    rows += [("memory", f"{environment.memory_gb} GB"), ("blas", "; ".join(environment.blas))]
    versions = [(name, value or "missing") for name, value in rows]
    extras = [(n, e.install or "present", e.purpose) for n, e in environment.extras.items()]
    tables = (versions, [("extra", "state", "for"), *extras])
    console.result(asdict(environment), "\n\n".join(table(rows, "left") for rows in tables))
