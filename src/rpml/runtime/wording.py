"""Words of messages."""


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 row", "2,000 rows"; `plural` if that does not end in s."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def system_reason(error: OSError) -> str:
    """Return why the system refused, in words of our own for the most frequent case."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return error.strerror or str(error)
