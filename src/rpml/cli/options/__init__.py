"""Options that commands share, and how Typer reads groups of them."""
