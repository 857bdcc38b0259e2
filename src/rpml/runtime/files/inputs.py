"""Detection of input files that change while they are read.

Reading a memory map beyond the end of a truncated file raises SIGBUS. As in systemd's journal, the
handler maps a page of zeros there and the work continues; the change of the file is then reported
before anything is published.
"""

import ctypes
import functools
import mmap
import os
import signal
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import InputError

_SA_SIGINFO, _MAP_FIXED = 4, 0x10


@dataclass(frozen=True)
class Stamp:
    """Identity, size and modification time of a file when it was opened."""

    path: str
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, path: str | Path) -> Self:
        """Return the current stamp of a file."""
        status = os.stat(path)
        return cls(str(path), status.st_ino, status.st_size, status.st_mtime_ns)

    def check(self, mapped: bool = False) -> None:
        """Raise InputError if the file has changed since.

        With `mapped`, a replaced or deleted file is fine: its mapped content is unchanged.
        """
        try:
            now = Stamp.of(self.path)
        except OSError:
            now = None
        if now == self or (mapped and (now is None or now.inode != self.inode)):
            return
        raise InputError(
            f"{self.path} was changed while it was read: run again when it is complete"
        )


_maps: list[tuple[weakref.ref[mmap.mmap], Stamp]] = []
"""All current memory maps of the process."""


def map_npy(path: Path) -> NDArray[Any]:
    """Memory-map the array of a .npy file for reading; `check_mapped` detects changes."""
    _survive_truncation()
    stamp = Stamp.of(path)
    array = np.lib.format.open_memmap(path, mode="r")
    _maps[:] = [(ref, other) for ref, other in _maps if ref() is not None]
    _maps.append((weakref.ref(array._mmap), stamp))  # type: ignore[attr-defined]
    return array


def check_mapped(closed: bool = False) -> None:
    """Raise InputError if a mapped file has changed; `closed` includes maps no longer in use."""
    for ref, stamp in list(_maps):
        if closed or ref() is not None:
            stamp.check(mapped=True)


class _Action(ctypes.Structure):
    """Linux's struct sigaction."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


@functools.cache
def _survive_truncation() -> Any:
    """Handle SIGBUS by mapping zeros; return the compiled handler, which must stay alive."""
    if not sys.platform.startswith("linux"):
        return None
    from numba import cfunc

    libc, word, number = ctypes.CDLL(None), ctypes.c_size_t, ctypes.c_int
    remap, default = libc.mmap, libc.signal
    remap.restype, remap.argtypes = word, (word, word, number, number, number, ctypes.c_long)
    default.restype, default.argtypes = word, (number, word)
    size, access = mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED

    @cfunc("void(int32, CPointer(int64), voidptr)")
    def answer(signal_number, info, context):  # type: ignore[no-untyped-def]
        page = info[2] & ~(size - 1)  # si_addr
        if remap(page, size, access, flags, -1, 0) != page:
            default(signal_number, 0)  # the next access ends the process

    action = _Action(answer.address, flags=_SA_SIGINFO)
    libc.sigaction(signal.SIGBUS, ctypes.byref(action), None)
    return answer
