"""The way of a row from `rpml fit` to the file: how many files of the package take part.

docs/contributing.md has the picture. A test that fails here says that a fit became harder to
follow: take a layer out, or raise the number there and here with a reason.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rpml

ROOT = Path(__file__).parents[2]
MOST_FILES = {"pca": 36, "trained": 45}
MOST_HOPS = 25
PROFILED = """
import json, sys, threading
from pathlib import Path
import rpml
from rpml.cli.app import main

package, files, importing = str(Path(rpml.__file__).parent) + "/", set(), threading.local()

def profile(frame, event, argument):
    code = frame.f_code
    if code.co_name == "<module>" and event in ("call", "return"):
        importing.depth = getattr(importing, "depth", 0) + (1 if event == "call" else -1)
    elif event == "call" and not getattr(importing, "depth", 0) and code.co_flags & 1:
        if code.co_filename.startswith(package):  # a function, not the body of a class or module
            files.add(code.co_filename.removeprefix(package))

for watch in (None, profile):  # the first run compiles, which is slow when it is watched
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        main()
    except SystemExit as end:
        assert not end.code
    sys.setprofile(None)
Path(sys.argv[-1] + ".files").write_text(json.dumps(sorted(files)))
"""


def vectors(kind):
    rng = np.random.default_rng(0)
    if kind == "pca":
        return rng.normal(size=(600, 16)).astype(np.float32)
    centers = rng.normal(size=(20, 24))[rng.integers(20, size=600)]
    spread = np.r_[np.full(8, 1.2), np.full(16, 0.2)]
    return (centers + spread * rng.normal(size=centers.shape)).astype(np.float32)


@pytest.fixture(scope="module", params=["pca", "trained"])
def fit(request, tmp_path_factory):
    """The outcome of a fit, and the files whose functions ran."""
    folder = tmp_path_factory.mktemp(request.param)
    np.save(folder / "x.npy", vectors(request.param))
    more = ["--set", "training=always"] if request.param == "trained" else []
    line = ["fit", folder / "x.npy", "--quiet", "--force", *more, "-o", folder / "model.rpml"]
    subprocess.run([sys.executable, "-c", PROFILED, *line], check=True, capture_output=True)
    files = json.loads((folder / "model.rpml.files").read_text())
    return request.param, rpml.RPML.load(folder / "model.rpml").outcome_, files


def test_a_fit_runs_the_code_of_few_files(fit):
    kind, outcome, files = fit
    assert ("trained" in outcome) == (kind == "trained")
    assert len(files) <= MOST_FILES[kind], files


def test_the_picture_shows_files_that_run(fit):
    kind, _, files = fit
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf8")
    picture = page.split("## From `rpml fit` to the file")[1].split("```")[1]
    shown = re.findall(r"^ *([\w/]+\.py)", picture, re.MULTILINE)
    assert 10 <= len(shown) <= MOST_HOPS
    if kind == "trained":
        missing = [name for name in shown if not any(file.endswith(name) for file in files)]
        assert not missing, files
