"""The command line: parse, call and print."""
