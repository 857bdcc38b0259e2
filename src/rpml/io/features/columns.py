"""Selection of columns by name, shared by all formats that have names."""

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from rpml.io.features.source import ReadOptions
from rpml.runtime.errors import InputError

_ID_NAMES = {"id", "ids", "key", "index", "uuid", "__index_level_0__"}


def is_id_name(name: str) -> bool:
    """Whether a column of this name holds the ids (pandas leaves an index unnamed)."""
    return name.strip().lower() in _ID_NAMES or name == ""


def find_ids(names: Sequence[str], wanted: str | None, where: str) -> int | None:
    """Return the position of the ids: the column named, or the first that is called like ids."""
    if wanted is not None:
        return _position(names, wanted, where)
    return next((i for i, name in enumerate(names) if is_id_name(name)), None)


def choose_column(
    names: Sequence[str], wanted: str | None, usual: Sequence[str], where: str
) -> int:
    """Return the position of a column: the one named, one with a usual name, or the only one."""
    if wanted is not None:
        return _position(names, wanted, where)
    named = [i for i, name in enumerate(names) if name.lower() in usual]
    if not named and len(names) > 1:
        raise InputError(
            f"{where} has {_listed(names)}: name the column to read with --label-column"
        )
    return named[0] if named else 0


def match_columns(names: Sequence[str], patterns: Sequence[str], where: str) -> list[int]:
    """Return the positions of the columns that match the patterns, in the order of these."""
    found: dict[int, None] = {}
    for pattern in patterns:
        here = [i for i, n in enumerate(names) if n == pattern or fnmatchcase(n, pattern)]
        if not here:
            raise InputError(f"{where} has no column {pattern!r}: {_hint(names, pattern)}")
        found.update(dict.fromkeys(here))
    return list(found)


def select_columns(
    names: Sequence[str],
    id_at: int | None,
    options: ReadOptions,
    where: str,
    vectors: Sequence[str] = (),
) -> tuple[tuple[str, ...], list[int]]:
    """Return the names of the columns to carry through, and the positions of the features.

    Without a choice in `options` the features are the only one of the `vectors`, which are columns
    of lists, or all columns that have no other purpose.
    """
    id_name = None if id_at is None else names[id_at]
    features = match_columns(names, options.columns or (), where)
    taken = {id_name, *options.exclude, *(names[i] for i in features)}
    taken |= set() if options.columns else set(vectors)
    free = [name for name in names if name not in taken]
    kept = tuple(free[i] for i in match_columns(free, options.keep, where))
    others = {*options.exclude, *kept}
    at = [i for i, name in enumerate(names) if i != id_at and name not in others]
    if options.columns is not None:
        at = [i for i in features if i in at]
    elif lists := [names[i] for i in at if names[i] in vectors]:
        if len(lists) > 1:
            raise InputError(
                f"{where} has the list columns {', '.join(lists)}: name one with --columns"
            )
        at = [names.index(lists[0])]
    if not at:
        raise InputError(f"{where} has no feature columns")
    return kept, at


def _position(names: Sequence[str], wanted: str, where: str) -> int:
    if wanted in names:
        return list(names).index(wanted)
    raise InputError(f"{where} has no column {wanted!r}: {_hint(names, wanted)}")


def _hint(names: Sequence[str], wanted: str) -> str:
    close = get_close_matches(wanted, list(names), n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"it has {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    """List the first names, for a message."""
    return ", ".join(repr(n) for n in names[:8]) + (", ..." if len(names) > 8 else "")
