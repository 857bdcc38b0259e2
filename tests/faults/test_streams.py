"""Standard streams that are full, closed or interrupted."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.cli.conftest import rpml, shared, vectors  # noqa: F401

PROGRAM = [sys.executable, "-m", "rpml"]


def run(line, **options):
    return subprocess.run([*PROGRAM, *map(str, line)], stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_full_standard_output_is_one_sentence(shared, option):  # noqa: F811
    with open("/dev/full", "w") as full:
        done = run(["inspect", shared / "model.rpml", *option], stdout=full)
    assert done.returncode == 2
    assert done.stderr.startswith("rpml: cannot write to standard output")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_config_that_is_a_pipe_or_too_deep_is_refused(tmp_path, rpml):  # noqa: F811
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "deep.toml").write_text("x = " + "[" * 5000 + "]" * 5000)
    for name, reason in (("pipe", "not a regular file"), ("deep", "nested too deeply")):
        result = rpml("fit", "--config", tmp_path / f"{name}.toml", code=2)
        assert reason in " ".join(result.stderr.split())
        assert "Traceback" not in result.stderr


def hear():
    """Tests started in the background or by nohup inherit signals that are ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def spooling(shared, folder):  # noqa: F811
    """A process that has begun to read standard input, which does not end."""
    env = {**os.environ, "TMPDIR": str(folder)}
    line = [*PROGRAM, "embed", shared / "model.rpml", "-", "-o", folder / "out.csv"]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(list(map(str, line)), env=env, preexec_fn=hear, **pipes)
    process.stdin.write(b"1,2\n")
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while not list(folder.glob("rpml-*/stdin")) and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_what_was_spooled(shared, tmp_path, number):  # noqa: F811
    process = spooling(shared, tmp_path)
    process.send_signal(number)
    said = process.communicate()[1]
    assert process.returncode == 130, said
    assert said == b"rpml: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_an_early_ctrl_c_is_one_sentence(tmp_path):
    """While the program is still importing."""
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    line = [*PROGRAM, "fit", str(tmp_path / "x.npy"), "-o", str(tmp_path / "m.rpml")]
    for delay in (0.05, 0.2):
        process = subprocess.Popen(line, stderr=subprocess.PIPE)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1].decode()
        # before rpml.__main__ runs, while the package itself is imported, Python answers alone
        assert "rpml/__main__" not in said, said
        assert "rpml/cli" not in said, said


def test_closed_streams(shared, tmp_path):  # noqa: F811
    """A file that is opened next must not take the place of a closed stream."""
    line = [*PROGRAM, "embed", shared / "model.rpml", shared / "x.npy", "-o"]
    quoted = " ".join(map(str, line))
    closed = subprocess.run(f"{quoted} - >&-", shell=True, capture_output=True, text=True)
    assert closed.returncode == 2
    assert closed.stderr == "rpml: standard output is closed: there is nowhere to write to\n"
    subprocess.run(f"{quoted} {tmp_path}/all.csv <&- >&- 2>&-", shell=True, check=True)
    assert (tmp_path / "all.csv").read_text().startswith("id,")
