"""What a stranger does first: install into an empty environment, run what the README shows."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

from tests.test_docs import INSTALLS, ROOT, SHELL, blocks, same_output

SECONDS = 600


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """An environment with a plain install, a folder of one's own and no other settings."""
    home = tmp_path_factory.mktemp("stranger")
    venv.create(home / ".venv", with_pip=True)
    binaries = home / ".venv" / ("Scripts" if os.name == "nt" else "bin")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    environment = {**inherited, "HOME": str(home), "PATH": f"{binaries}:{os.environ['PATH']}"}
    install(binaries, str(ROOT))
    return home, environment


def install(binaries, *packages):
    command = [str(binaries / "pip"), "install", "--quiet", *packages]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode and "ConnectionError" in done.stderr + done.stdout:
        pytest.skip("packages cannot be installed without a network")
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="runs the README's lines in bash")
def test_the_readme_works_after_a_plain_install(clean):
    home, environment = clean
    printed = ran = ""
    for block in blocks(ROOT / "README.md"):
        if block.is_output:
            assert same_output(printed, block.code), f"printed:\n{printed}"
        elif block.language == "python" or block.language in SHELL:
            lines = [line for line in block.code.splitlines() if not INSTALLS.match(line)]
            code = "\n".join(lines)
            command = (
                ["python", "-c", code] if block.language == "python" else ["bash", "-euc", code]
            )
            done = subprocess.run(
                command, cwd=home, env=environment, capture_output=True, text=True, timeout=SECONDS
            )
            assert done.returncode == 0, done.stderr
            printed, ran = done.stdout, ran + code
    assert "rpml fit" in ran
    assert (home / "small.npy").exists()


@pytest.mark.thorough
def test_what_would_be_uploaded_passes_the_check_of_the_index(tmp_path):
    """Metadata and README of the source distribution and of the wheel, by twine."""
    venv.create(tmp_path / ".venv", with_pip=True)
    binaries = tmp_path / ".venv" / ("Scripts" if os.name == "nt" else "bin")
    install(binaries, "build", "twine")
    source = tmp_path / "source"  # building leaves files next to the sources
    shutil.copytree(
        ROOT, source, ignore=shutil.ignore_patterns(".*", "__pycache__", "results", "build", "dist")
    )
    made = tmp_path / "made"
    for command in (
        [binaries / "python", "-m", "build", "--outdir", made, source],
        [binaries / "twine", "check", "--strict", made / "*.whl", made / "*.tar.gz"],
    ):
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
    assert {path.suffix for path in made.iterdir()} == {".whl", ".gz"}
    with zipfile.ZipFile(next(made.glob("*.whl"))) as wheel:
        packed = set(wheel.namelist())
    files = [path for path in (source / "src").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".npz", ".css", ".js", ".html", ".typed"}
    assert {path.relative_to(source / "src").as_posix() for path in files} <= packed
