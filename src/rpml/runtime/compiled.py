"""Compiled loops, kept on disk between processes where there is a folder to keep them in."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import numba

Function = Callable[..., Any]
VECTORIZED = frozenset({"reassoc", "contract", "nsz"})
"""Flags of fast mathematics that let the compiler use vector registers; NaN and infinity keep
their meaning."""

log = logging.getLogger(__name__)


def compiled(fastmath: frozenset[str] = frozenset()) -> Callable[[Function], Function]:
    """Compile a function on first use, with the GIL released.

    Where neither the package's folder nor the user's cache can be written, as in a read-only
    container, it is compiled anew in every process. A folder for temporary files is no substitute:
    what lies there is code, and others may write to it.
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
    """Say once what it costs and what to do."""
    log.warning(
        "no folder to keep compiled code in: every process compiles anew, which takes seconds; "
        "set NUMBA_CACHE_DIR to a folder of your own"
    )
