"""rpml doctor: is everything installed, and how to install what is not."""

from __future__ import annotations

import os
import platform
from typing import Any

from rpml.cli.command import command
from rpml.cli.console import Console, table

EXAMPLES = """\b
Examples:
  rpml doctor
  rpml doctor --json
"""

CORE = ["numpy", "scipy", "scikit-learn", "numba", "threadpoolctl", "safetensors", "typer", "rich"]
WHAT_FOR = {
    "ann": "approximate neighbours beyond 100,000 rows, faiss export",
    "parquet": "reading and writing .parquet",
    "compare": "more methods in rpml compare",
    "vision": "features from images, ONNX export",
    "deep": "end-to-end training",
    "report": "figures and reports",
    "explore": "the explorer page",
    "distributed": "fits on a cluster",
}


@command
def run(console: Console) -> None:
    """Show versions, threads and optional extras, and how to install what is missing."""
    fields = examine()
    console.result(fields, as_text(fields))


def version_of(package: str) -> str | None:
    """The installed version, without importing the package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def extras() -> dict[str, list[str]]:
    """Extra -> packages, as this installation declares them."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    try:
        declared = requires("rpml") or []
    except PackageNotFoundError:
        return {}
    found: dict[str, list[str]] = {name: [] for name in WHAT_FOR}
    for line in declared:
        match = re.match(r"""([A-Za-z0-9_.-]+).*extra\s*==\s*['"]([\w-]+)['"]""", line)
        if match and match.group(2) in found:
            found[match.group(2)].append(match.group(1))
    return found


def examine() -> dict[str, Any]:
    """Everything the command prints."""
    import rpml
    from rpml.runtime.threads import thread_count

    present = {}
    for extra, packages in extras().items():
        versions = {p: version_of(p) for p in packages}
        missing = [p for p, v in versions.items() if v is None]
        install = f"pip install 'rpml[{extra}]'" if missing else None
        present[extra] = {"packages": versions, "install": install, "for": WHAT_FOR[extra]}
    return {
        "rpml": rpml.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {p: version_of(p) for p in CORE},
        "cores": os.cpu_count(),
        "threads": thread_count(),
        "memory_gb": memory_gb(),
        "blas": _blas(),
        "extras": present,
    }


def memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _blas() -> list[str]:
    import numpy as np  # noqa: F401 (loads the library to be asked)
    from threadpoolctl import threadpool_info

    return [f"{i['internal_api']} {i.get('version')}, {i['num_threads']} threads"
            for i in threadpool_info() if i["user_api"] == "blas"]  # fmt: skip


def as_text(fields: dict[str, Any]) -> str:
    """Two tables: versions and resources, then the extras."""
    rows = [["rpml", fields["rpml"]], ["python", fields["python"]]]
    rows += [[name, version or "missing"] for name, version in fields["packages"].items()]
    rows += [["cores, threads", f"{fields['cores']}, {fields['threads']}"]]
    rows += [["memory", f"{fields['memory_gb']} GB"], ["blas", "; ".join(fields["blas"])]]
    extras = [["extra", "state", "for"]]
    for name, extra in fields["extras"].items():
        extras.append([name, extra["install"] or "present", extra["for"]])
    return f"{table(rows, 'left')}\n\n{table(extras, 'left')}"
