"""python -m rpml: the command line."""

from rpml.cli.app import main

main()
