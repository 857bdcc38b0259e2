"""Inputs that change while they are read: noticed, and never the death of the process.

A file that is truncated beneath a memory map answers a read beyond its new end with SIGBUS. As in
systemd's journal, the handler puts a page of zeros there and the work goes on; the change of the
file is then reported before anything is published.
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
    """Which file a name stood for, and as what."""

    path: str
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, path: str | Path) -> Self:
        """The present one."""
        status = os.stat(path)
        return cls(str(path), status.st_ino, status.st_size, status.st_mtime_ns)

    def check(self, mapped: bool = False) -> None:
        """Raise an InputError if the file has changed since.

        `mapped`: a file that was replaced or removed is still there for who has mapped it.
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
"""What is mapped at present, which is by nature one list per process."""


def map_npy(path: Path) -> NDArray[Any]:
    """The array of a .npy file, memory-mapped for reading; `check_mapped` tells if it changed."""
    _survive_truncation()
    stamp = Stamp.of(path)
    array = np.lib.format.open_memmap(path, mode="r")
    _maps[:] = [(ref, other) for ref, other in _maps if ref() is not None]
    _maps.append((weakref.ref(array._mmap), stamp))  # type: ignore[attr-defined]
    return array


def check_mapped(closed: bool = False) -> None:
    """Raise an InputError if a mapped file that is still in use, or was, has changed."""
    for ref, stamp in list(_maps):
        if closed or ref() is not None:
            stamp.check(mapped=True)


class _Action(ctypes.Structure):
    """struct sigaction of Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


@functools.cache
def _survive_truncation() -> Any:
    """Answer SIGBUS with a page of zeros; the compiled handler, which must live on."""
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
            default(signal_number, 0)  # the next attempt ends the process

    action = _Action(answer.address, flags=_SA_SIGINFO)
    libc.sigaction(signal.SIGBUS, ctypes.byref(action), None)
    return answer
