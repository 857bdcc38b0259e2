"""Temporary folders; those that a killed process leaves are deleted by the next one."""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from rpml.runtime.locks import try_lock

_PREFIX = "rpml-scratch-"
_MINUTE = 60.0


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder that is locked while the process lives."""

    def __init__(self) -> None:
        remove_dead()
        super().__init__(prefix=_PREFIX)
        self._lock = os.open(self.name, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks
            try_lock(self._lock)

    def cleanup(self) -> None:
        super().cleanup()
        os.close(self._lock)


def remove_dead() -> None:
    """Delete the folders that killed processes have left."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                young = time.time() - os.fstat(lock).st_mtime < _MINUTE  # may not be locked yet
                if os.fstat(lock).st_uid == os.getuid() and not young and try_lock(lock):
                    shutil.rmtree(path)
            finally:
                os.close(lock)
