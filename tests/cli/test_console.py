"""Results as text."""

from rpml.cli.console import fields_text, say
from rpml.runtime.errors import text_table


def test_tables_line_up():
    text = text_table([["rows", "R@1"], ["240", "97.50"]])
    assert text.splitlines() == ["rows    R@1", "240   97.50"]
    assert fields_text({"a": 1, "long": 2}) == "a:     1\nlong:  2"


def test_text_from_files_cannot_command_the_terminal(capsys):
    say("a\x1b]0;title\x07b\x9b2Jc\u202edname\ttab\n\udc80")
    said = capsys.readouterr().out
    assert said == "a\\x1b]0;title\\x07b\\x9b2Jc\\u202edname\ttab\n\\udc80\n"
