"""kill -9, Ctrl-C and a full disk, on real processes."""

import builtins
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from rpml import RPML
from rpml.__main__ import main

PROGRAM = [sys.executable, "-c", "from rpml.cli.app import main; main()"]
LIMITED = [
    sys.executable,
    "-c",
    "import resource, sys; n = int(sys.argv.pop(1)); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (n, n)); from rpml.cli.app import main; main()",
]
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def run(*args, program=PROGRAM, code=0):
    done = subprocess.run([*program, *map(str, args)], capture_output=True, text=True, env=ENV)
    assert done.returncode == code, done.stderr
    return done


class Fit:
    """A fit of a few seconds whose uninterrupted result is known."""

    def __init__(self, folder, solver="cg"):
        rng = np.random.default_rng(0)
        centers = rng.normal(size=(40, 30))
        X = centers[rng.integers(40, size=1500)] + 0.9 * rng.normal(size=(1500, 30))
        np.save(folder / "x.npy", X)
        self.folder = folder
        self.options = ["--dim", "10", "--solver", solver, "--set", "tol=0", "--max-iter", "150"]
        self.options += ["--set", "training=always"]
        started = time.monotonic()
        run(*self.args("whole.rpml"))
        self.seconds = time.monotonic() - started
        self.expected = (folder / "whole.rpml").read_bytes()

    def args(self, name, *more):
        return ["fit", self.folder / "x.npy", "-o", self.folder / name, *self.options, *more]

    def start(self, name, *more):
        line = [*PROGRAM, *map(str, self.args(name, *more))]
        return subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENV,
            # tests started in the background of a shell inherit a SIGINT that is ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    return Fit(tmp_path_factory.mktemp("fit"))


def kill_and_resume(fit, name, rng, kills):
    """Kill at random moments and resume, until `kills` processes have died; then let one end."""
    target = fit.folder / name
    died = 0
    while died < kills:
        process = fit.start(name, "--resume", "-q")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=float(rng.uniform(0.1, 1.0)) * fit.seconds)
        if process.poll() is None:
            process.kill()
            died += 1
        process.communicate()
        if process.returncode == 0:  # it was quicker than the killer: begin anew
            assert target.read_bytes() == fit.expected
            target.unlink()
        else:
            assert process.returncode == -signal.SIGKILL
            # whatever is there is whole: no model, or the final one
            assert not target.exists() or target.read_bytes() == fit.expected
    run(*fit.args(name, "--resume", "-q"))
    assert target.read_bytes() == fit.expected
    left = {p.name for p in fit.folder.iterdir()} - {"x.npy", "whole.rpml", name}
    assert not {n for n in left if n.startswith((name, f".{name}"))}, left


def test_kill_and_resume(fit):
    kill_and_resume(fit, "killed.rpml", np.random.default_rng(), 2)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["cg", "stochastic", "gd"])
def test_kill_and_resume_many_times(tmp_path, solver):
    slow = Fit(tmp_path, solver)
    rng = np.random.default_rng()
    for i in range(5):
        kill_and_resume(slow, f"killed{i}.rpml", rng, 5)


def wait_for(process, text):
    """Read standard error until the text appears."""
    seen = b""
    while text not in seen:
        chunk = os.read(process.stderr.fileno(), 4096)
        if not chunk:
            pytest.fail(f"ended before {text!r}: {seen.decode()}")
        seen += chunk
    return seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_the_best_model_and_resumes(fit, number):
    target = fit.folder / "stopped.rpml"
    target.unlink(missing_ok=True)
    process = fit.start("stopped.rpml")
    wait_for(process, b"optimizing:")
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert b"holds the best model so far" in errors
    assert b"callback" not in errors
    assert b"--resume" in errors
    assert RPML.load(target).n_iter_ < RPML.load(fit.folder / "whole.rpml").n_iter_
    assert fit.folder.joinpath("stopped.rpml.ckpt").is_dir()
    run(*fit.args("stopped.rpml", "--resume", "-q"))
    assert target.read_bytes() == fit.expected
    assert not fit.folder.joinpath("stopped.rpml.ckpt").exists()


def test_ctrl_c_before_there_is_a_model(fit):
    process = fit.start("early.rpml")
    wait_for(process, b"features, float64")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert errors.startswith(b"rpml: interrupted")
    assert b"Traceback" not in errors
    assert not (fit.folder / "early.rpml").exists()


def test_ctrl_c_while_the_program_is_imported(monkeypatch, capsys):
    usual = builtins.__import__

    def interrupted(name, *rest):
        if name == "rpml.cli.app":
            raise KeyboardInterrupt
        return usual(name, *rest)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "rpml: interrupted\n"


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs RLIMIT_FSIZE")
def test_full_disk_while_fitting(fit):
    target = fit.folder / "old.rpml"
    target.write_text("the previous model")
    done = run(30_000, *fit.args("old.rpml", "--force", "-q"), program=LIMITED, code=1)
    assert "cannot write" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert target.read_text() == "the previous model"


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "parquet"])
def test_full_disk_while_embedding(fit, rpml, tmp_path, kind):
    """In this process, with the limit lifted afterwards."""
    out = tmp_path / f"e.{kind}"
    line = ["embed", fit.folder / "whole.rpml", fit.folder / "x.npy", "-o", out, "-q", "--force"]
    out.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
    try:
        said = rpml.refused(*line, code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot write" in said
    assert out.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == [out.name]


@pytest.mark.slow
def test_full_disk_on_a_small_tmpfs(fit, tmp_path):
    """A file system that is really full."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mounted)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("cannot mount a tmpfs here")
    try:
        (mounted / "m.rpml").write_text("the previous model")
        line = fit.args("unused")
        line[3] = mounted / "m.rpml"
        done = run(*line, "--force", "-q", code=1)
        assert "No space left on device" in done.stderr
        assert (mounted / "m.rpml").read_text() == "the previous model"
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
