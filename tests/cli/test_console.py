"""Progress and results: bars, lines, silence, JSON."""

import os
import pty
import subprocess
import sys

import pytest

from rpml.cli import console as module
from rpml.cli.console import BarReporter, Console, LineReporter, fields_text, say, table
from rpml.cli.options.common import parse_settings
from rpml.runtime.context import Progress
from rpml.runtime.errors import InputError


def test_lines_have_rate_and_remaining_time(capsys, monkeypatch):
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    report = LineReporter()
    for step in range(1, 5):
        report(Progress("optimize", step, 4, {"loss": 0.5 / step}))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("optimizing: 1/4, loss 0.5")
    assert "/s, " in lines[1]
    assert "s left" in lines[1]
    assert "done in" in lines[-1]


def test_a_stage_with_stages_inside_has_its_own_time(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    report = LineReporter()
    report(Progress("train", 0, 2))
    for epoch in (1, 2):
        for batch in (1, 2, 3):
            now += 10
            report(Progress("batches", batch, 3))
        report(Progress("train", epoch, 2))
    lines = capsys.readouterr().err.splitlines()
    ends = [line for line in lines if "done in" in line]
    assert ends == [
        "batches: 3/3, done in 20.0 s",
        "batches: 3/3, done in 20.0 s",
        "epochs: 2/2, done in 60.0 s",
    ]
    assert "epochs: 1/2, 0.0333/s, 30 s left" in lines


def test_lines_do_not_flood(capsys):
    report = LineReporter()
    for step in range(1, 10_000):
        report(Progress("optimize", step, 10_000))
    assert len(capsys.readouterr().err.splitlines()) < 5


def test_a_stage_without_steps_is_named_when_it_is_done(capsys):
    report = LineReporter()
    report(Progress("neighbors", 0, 1))
    report(Progress("neighbors", 1, 1))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("nearest neighbors: done in")


def test_quiet_reports_nothing(capsys):
    with Console(quiet=True).reporter() as report:
        report(Progress("optimize", 1, 2))
    assert capsys.readouterr().err == ""


def test_rich_bars_on_a_terminal(shared, tmp_path):
    leader, follower = pty.openpty()
    code = "from rpml.cli.app import main; main()"
    line = ["embed", shared / "model.rpml", shared / "x.npy", "-o", tmp_path / "e.npy"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, line)],
        stderr=follower, stdout=subprocess.PIPE, env=env, check=True,
    )  # fmt: skip
    shown = os.read(leader, 100_000).decode()
    os.close(follower)
    os.close(leader)
    assert "embedding" in shown
    assert "━" in shown
    assert "240/240" in shown
    assert b"240 rows, 4 dimensions" in done.stdout


def test_a_bar_ends_with_the_steps_it_had(capsys):
    with BarReporter() as report:
        for done, total in ((0, 1), (3, 7), (1, 1)):
            report(Progress("whiten", done, total))
    shown = capsys.readouterr().err
    assert "whitening" in shown
    assert "7/7" in shown


def test_tables_line_up():
    text = table([["rows", "R@1"], ["240", "97.50"]])
    assert text.splitlines() == ["rows    R@1", "240   97.50"]
    assert fields_text({"a": 1, "long": 2}) == "a:     1\nlong:  2"


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.5", 0.5), ("true", True), ("none", None), ("hard", "hard"), ("'x'", "x")],
)
def test_settings_have_the_type_they_look_like(text, value):
    assert parse_settings([f"name={text}"], ["name"]) == {"name": value}


def test_unknown_setting():
    with pytest.raises(InputError, match="did you mean 'alpha'"):
        parse_settings(["alpa=3"], ["alpha"])


def test_text_from_files_cannot_command_the_terminal(capsys):
    say("a\x1b]0;title\x07b\x9b2Jc\u202edname\ttab\n\udc80")
    said = capsys.readouterr().out
    assert said == "a\\x1b]0;title\\x07b\\x9b2Jc\\u202edname\ttab\n\\udc80\n"
