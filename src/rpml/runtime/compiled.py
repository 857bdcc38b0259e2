"""Numba compilation with an on-disk cache where a folder for it is writable."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import numba

Function = Callable[..., Any]
VECTORIZED = frozenset({"reassoc", "contract", "nsz"})
"""Fast-math flags that allow vectorization without changing the meaning of NaN and infinity."""

log = logging.getLogger(__name__)


def compiled(fastmath: frozenset[str] = frozenset()) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function on first use and releases the GIL.

    Where neither the package's folder nor the user's cache is writable, as in a read-only
    container, every process compiles again. A temporary folder is no substitute: other users could
    write to it, and its files would be executed.
    """

    def decorate(function: Function) -> Function:
        compile_ = functools.partial(numba.njit, nogil=True, fastmath=set(fastmath))
        loop: Function
        try:
            loop = compile_(cache=True)(function)
        except RuntimeError:  # "cannot cache function ...: no locator available"
            _explain()
            loop = compile_()(function)
        return loop

    return decorate


@functools.cache
def _explain() -> None:
    """Warn once that there is no cache folder."""
    log.warning(
        "no folder to keep compiled code in: every process compiles anew, which takes seconds; "
        "set NUMBA_CACHE_DIR to a folder of your own"
    )
