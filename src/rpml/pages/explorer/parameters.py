"""Validation of query parameters."""

from collections.abc import Mapping

Query = Mapping[str, str]
LARGEST = 10**9


class RequestError(Exception):
    """A request that cannot be answered, with an HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def is_digits(text: str) -> bool:
    """Whether a text is a non-negative integer of at most ten ASCII digits."""
    return text.isascii() and text.isdigit() and len(text) <= 10


def integer(query: Query, name: str, default: int, low: int = 0, high: int = LARGEST) -> int:
    """Return an integer parameter within limits."""
    text = query.get(name)
    if text is None:
        return default
    if not (is_digits(text) and low <= int(text) <= high):
        raise RequestError(400, f"{name} must be a whole number from {low} to {high}")
    return int(text)


def choice(query: Query, name: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words, by default the first."""
    value = query.get(name, allowed[0])
    if value not in allowed:
        raise RequestError(400, f"{name} must be one of {', '.join(allowed)}")
    return value
