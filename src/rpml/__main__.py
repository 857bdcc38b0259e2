"""python -m rpml: the command line."""

import atexit
import gc
import sys


def main() -> None:
    """Entry point of the installed program; Ctrl-C is answered while it is still importing."""
    atexit.register(gc.freeze)  # searching all modules for garbage at the end takes 0.4 seconds
    try:
        from rpml.cli.app import main as run
    except KeyboardInterrupt:
        print("rpml: interrupted", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
