"""python -m rpml: the command line."""

import sys


def main() -> None:
    """Entry point of the installed program; Ctrl-C is answered while it is still importing."""
    try:
        from rpml.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit("rpml: interrupted")
    run()


if __name__ == "__main__":
    main()
