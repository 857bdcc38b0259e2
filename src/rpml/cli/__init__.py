"""The command line: parse, call, print; no numerics. One file per command."""
