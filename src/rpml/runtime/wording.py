"""Words of messages."""


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 row", "2,000 rows"; `plural` if that does not end in s."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def one_line(message: object) -> str:
    """Return the text of a message with all white space folded."""
    return " ".join(str(message).split())


def first_line(error: BaseException) -> str:
    """Return the first line of an error of another library, or its type if it says nothing."""
    return str(error).split("\n")[0].strip() or type(error).__name__


def reason_of(error: Exception) -> str:
    """Return why a file could not be read, in words of our own for the most frequent case."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return getattr(error, "strerror", None) or str(error)
