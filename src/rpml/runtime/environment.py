"""What a result depends on besides the data: versions, threads, memory and optional extras."""

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from threadpoolctl import threadpool_info

from rpml.runtime.errors import counted
from rpml.runtime.threads import thread_count

CORE = ("numpy", "scipy", "scikit-learn", "numba", "threadpoolctl", "safetensors", "typer", "rich")
NUMERIC = ("rpml", "numpy", "scipy", "scikit-learn", "numba", "faiss-cpu")
EXTRAS = {
    "parquet": "reading and writing .parquet, .feather and .jsonl",
    "export": "ONNX and faiss export",
    "remote": "vectors from s3:// and https:// addresses",
    "compare": "data frames and Leiden clustering in comparisons",
    "vision": "features from images",
    "deep": "end-to-end training",
    "report": "figures and reports",
    "explore": "the explorer page",
    "distributed": "fits on a cluster",
}


def installed_version(package: str) -> str | None:
    """Return the installed version without importing the package; None if it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that the results depend on."""
    installed = {package: installed_version(package) for package in NUMERIC}
    return {"python": platform.python_version()} | {k: v for k, v in installed.items() if v}


def describe_environment() -> dict[str, Any]:
    """Describe everything a bug report needs, as JSON values."""
    extras: dict[str, Any] = {}
    declared = "\n".join(requires("rpml") or []) if installed_version("rpml") else ""
    for name, purpose in EXTRAS.items():
        packages = re.findall(rf"""^([\w.-]+).*extra\s*==\s*['"]{name}['"]""", declared, re.M)
        versions = {package: installed_version(package) for package in packages}
        install = f"pip install 'rpml[{name}]'" if None in versions.values() else None
        extras[name] = {"packages": versions, "install": install, "purpose": purpose}
    return {
        "rpml": installed_version("rpml"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {package: installed_version(package) for package in CORE},
        "cores": os.cpu_count(),
        "threads": thread_count(),
        "memory_gb": memory_gb(),
        "blas": blas_libraries(),
        "extras": extras,
    }


def memory_gb() -> float | None:
    """Return the memory of this machine; None where the system does not tell."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def blas_libraries() -> list[str]:
    """Return name, version and threads of each loaded BLAS."""
    return [
        f"{info['internal_api']} {info.get('version')}, {counted(info['num_threads'], 'thread')}"
        for info in threadpool_info()
        if info["user_api"] == "blas"
    ]
