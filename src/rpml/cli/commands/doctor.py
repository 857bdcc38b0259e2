"""rpml doctor: what is installed, and how to install what is missing."""

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

    fields = describe_environment()
    rows = [("rpml", fields["rpml"]), ("python", fields["python"]), *fields["packages"].items()]
    rows += [("cores, threads", f"{fields['cores']}, {fields['threads']}")]
    rows += [("memory", f"{fields['memory_gb']} GB"), ("blas", "; ".join(fields["blas"]))]
    versions = [(name, value or "missing") for name, value in rows]
    extras = [
        (name, extra["install"] or "present", extra["purpose"])
        for name, extra in fields["extras"].items()
    ]
    tables = (versions, [("extra", "state", "for"), *extras])
    console.result(fields, "\n\n".join(table(rows, "left") for rows in tables))
