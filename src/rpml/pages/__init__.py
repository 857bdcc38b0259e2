"""Pages that show embeddings, figures and demonstrations."""

from importlib.resources import files


def assets(page: str) -> dict[str, bytes]:
    """Return the files of a page, "report" or "explorer", and those that both share, by name."""
    folders = [files("rpml.pages") / "static", files(f"rpml.pages.{page}") / "static"]
    return {file.name: file.read_bytes() for folder in folders for file in folder.iterdir()}
