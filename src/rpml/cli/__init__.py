"""The command line: parse, call and print, with one file per command."""
