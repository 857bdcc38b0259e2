"""Progress: lines, or silence."""

from rpml.cli import console as module
from rpml.cli.command import Console
from rpml.cli.console import Reporter
from rpml.runtime.context import Progress


def test_lines_have_rate_and_remaining_time(capsys, monkeypatch):
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    report = Reporter()
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
    report = Reporter()
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
    report = Reporter()
    for step in range(1, 10_000):
        report(Progress("optimize", step, 10_000))
    assert len(capsys.readouterr().err.splitlines()) < 5


def test_a_stage_without_steps_is_named_when_it_is_done(capsys):
    report = Reporter()
    report(Progress("neighbors", 0, 1))
    report(Progress("neighbors", 1, 1))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("nearest neighbors: done in")


def test_quiet_reports_nothing(capsys):
    Console(quiet=True).reporter()(Progress("optimize", 1, 2))
    assert capsys.readouterr().err == ""


def test_a_long_stage_has_fewer_lines(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    report = Reporter()
    for step in range(1, 1001):
        report(Progress("optimize", step, 1001))
        now += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert 30 < len(lines) < 80  # 500 every two seconds


def test_rates_are_plain_numbers(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    report = Reporter()
    report(Progress("train", 0, 200_000))
    now += 10
    report(Progress("train", 123_000, 200_000))
    assert "12,300/s" in capsys.readouterr().err


def test_a_system_without_sighup(monkeypatch):
    monkeypatch.delattr(module.signal, "SIGHUP")
    before = module.signal.getsignal(module.signal.SIGTERM)
    with module.answering(lambda number, frame: None):
        assert module.signal.getsignal(module.signal.SIGTERM) is not before
    assert module.signal.getsignal(module.signal.SIGTERM) is before
