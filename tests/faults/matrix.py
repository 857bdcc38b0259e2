"""Every writing command x {kill, EIO, ENOSPC} at every call that changes the disk.

``python -m tests.faults.matrix FOLDER COMMAND [STEP]`` prints a JSON object per fault: how many
moments were tried; at how many each file was the old or the new one, complete, nothing else was
touched, and a reader got the old or the new content or refused it; and after how many the same
command, run again, gave the result of an undisturbed run.
The commands run in forks of this process, on one thread, since threads do not survive a fork.
"""

import contextlib
import io
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.faults.shim import FAULTS, NOT_REACHED, run_forked

UNFINISHED = (".ckpt", ".parts", ".work")
DATED = ("rpml.json", ".manifest.json", ".html", "out.json", "table.json")
"""Files that hold times: only their presence is compared."""


@dataclass(frozen=True)
class Case:
    """A command that replaces the output of an earlier one."""

    line: str
    earlier: str
    again: str = "--force"


FIGURES = "figures x.npy --model model.rpml --format png,svg -o out"
BENCHMARK = (
    "benchmark folders --root photos --backbone net.onnx --scales 32 --methods raw,pca -o out"
)
FINETUNE = (
    "finetune photos --backbone net.onnx -o out.onnx --size 32 --dim 3 --views 1 --set batch_size=4"
)
EMBED = "embed model.rpml x.npy --force -o"
CASES = {
    "fit": Case(
        "fit x.npy -o out.rpml --dim 3 --neighbors 8 --max-iter 12 --set tol=0 --force",
        "update model.rpml x.npy -o out.rpml --max-iter 1",
        "--resume --force",
    ),
    "update": Case("update model.rpml x.npy -o out.rpml --force", "export model.rpml"),
    "embed-npy": Case(f"{EMBED} out.npy", f"{EMBED} out.npy --dim 2"),
    "embed-npz": Case(f"{EMBED} out.npz", f"{EMBED} out.npz --dim 2"),
    "embed-csv": Case(f"{EMBED} out.csv", f"{EMBED} out.csv --dim 2"),
    "embed-parquet": Case(f"{EMBED} out.parquet", f"{EMBED} out.parquet --dim 2"),
    "embed-feather": Case(f"{EMBED} out.feather", f"{EMBED} out.feather --dim 2"),
    "embed-jsonl": Case(f"{EMBED} out.jsonl", f"{EMBED} out.jsonl --dim 2"),
    "embed-codes": Case(f"{EMBED} out.npy --codes binary", f"{EMBED} out.npy"),
    "embed-columns": Case(
        "embed model.rpml x.csv --keep-columns note --force -o out.csv", f"{EMBED} out.csv"
    ),
    "embed-shards": Case(f"{EMBED} out/", f"{EMBED} out/ --dim 2"),
    "cluster": Case("cluster x.npy -o out.csv --force", f"{EMBED} out.csv"),
    "suggest": Case("suggest model.rpml -o out.csv --force", f"{EMBED} out.csv"),
    "compare": Case(
        "compare x.npy -o out.json --methods raw,pca --seeds 1 --force", f"{EMBED} out.csv"
    ),
    "export-onnx": Case(
        "export model.rpml --to onnx -o out.onnx --force",
        "export model.rpml --to onnx -o out.onnx --dim 2",
    ),
    "export-numpy": Case(
        "export model.rpml --to numpy -o out.npz --force",
        "export model.rpml --to numpy -o out.npz --dim 2",
    ),
    "export-sentence-transformers": Case(
        "export model.rpml --to sentence-transformers -o out --force",
        "export model.rpml --to sentence-transformers -o out --dim 2",
    ),
    "report": Case("report model.rpml x.npy -o out.html --force", f"{EMBED} out.csv"),
    "features": Case(
        "features photos --backbone net.onnx --scales 64 -o out.npy --views 1 --force",
        "features photos --backbone net.onnx --scales 64 -o out.npy --folder-labels",
        "--resume --force",
    ),
    "export-faiss": Case(
        "export model.rpml --to faiss -o out.faiss --force",
        "export model.rpml --to faiss -o out.faiss --dim 2",
    ),
    "index": Case(
        "index model.rpml x.npy -o out.index --force",
        "index model.rpml x.npy -o out.index --dim 2",
    ),
    "export-sql": Case(
        "export model.rpml --to sql -o out.sql --force",
        "export model.rpml --to sql -o out.sql --dim 2",
    ),
    "export-js": Case(
        "export model.rpml --to js -o out.mjs --force",
        "export model.rpml --to js -o out.mjs --dim 2",
    ),
    "export-atlas": Case(
        "export model.rpml x.npy --to atlas -o out.parquet --force", f"{EMBED} out.parquet"
    ),
    "search": Case("search x.index x.npy -o out.csv --force", f"{EMBED} out.csv"),
    "bridge": Case("bridge x.npy x.npy -o out.rpml --force", "export model.rpml"),
    "figures": Case(f"{FIGURES} --width 2in --force", FIGURES),
    "benchmark": Case(f"{BENCHMARK} --dim 3 --force", f"{BENCHMARK} --dim 2"),
    "demo": Case("demo -o out --seed 1", "demo -o out", ""),
    "finetune": Case(f"{FINETUNE} --epochs 2 --force", f"{FINETUNE} --epochs 1", "--resume"),
}


def small_demo(folder, seed, note):
    """Stands for a demonstration on thousands of rows."""
    from rpml import RPML

    RPML(3, n_neighbors=8, random_state=seed).fit(np.load("x.npy")).save(folder / "model.rpml")
    (folder / "picture.svg").write_text("<svg/>")
    return {"measured": [], "verdict": "nothing", "picture": "picture.svg"}


def command(line):
    """Run a command line in this process, quietly; the exit code."""
    from rpml.cli.app import app

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            app([*line.split(), "--quiet"])
        except SystemExit as end:
            code = end.code or 0
    if "Traceback" in said.getvalue():
        return 99
    return code


def snapshot(folder):
    """Visible files and their content; unfinished work apart."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        parts = name.split("/")
        if path.is_dir() or any(p[0] == "." or is_unfinished(p) for p in parts):
            continue
        content = re.sub(rb'"seconds": [\d.e-]+', b"", path.read_bytes())
        found[name] = "present" if name.endswith(DATED) else content
    return found


def is_unfinished(name):
    return name.endswith(UNFINISHED) or name.startswith("cache-")  # which a benchmark keeps


def leftovers(folder):
    """Hidden files and unfinished work."""
    return [p.name for p in folder.rglob("*") if p.name[0] == "." or p.name.endswith(UNFINISHED)]


def in_fork(line):
    """Run without a fault; the exit code."""
    return run_forked(lambda: command(line), os.getcwd(), None, "kill")


def is_old_or_new(after, old, new):
    """Whether each file is as before or as after the run."""
    names = {*after, *old, *new}
    return all(after.get(name) in (old.get(name), new.get(name)) for name in names)


def readings(folder):
    """What the readers of outputs of several files find: vectors with ids, and tables of them."""
    from rpml.io.features import read_features
    from rpml.runtime.errors import InputError
    from tests.labels import read_labels

    found, n, ids = {}, 0, None
    for name in ("out.npy", "out", "out.groups.csv", "out.labels.csv"):
        path = folder / name
        if not path.exists() or (name == "out" and not list(path.glob("part-*"))):
            continue
        try:
            if name.endswith(".csv"):
                found[name] = read_labels(path, n, ids, partial=True).tolist()
            else:
                data = read_features(path)
                n, ids = len(data.values), data.ids
                found[name] = data.values.tolist(), None if ids is None else ids.tolist()
        except InputError:
            found[name] = None
    return found


def is_of_one_side(found, old, new):
    """Whether readers take only old or only new content, and refuse the rest."""
    accepted = {name: value for name, value in found.items() if value is not None}
    return any(
        all(name in side and side[name] == value for name, value in accepted.items())
        for side in (old, new)
    )


class Table:
    """One command under one kind of fault."""

    def __init__(self, template, case, step):
        self.template, self.case, self.step = template, case, step
        self.place = template.with_name(template.name + ".place")
        self.old = snapshot(template)
        self.start()
        assert in_fork(case.line) in (0, 3)
        self.new = snapshot(self.place)
        assert self.new != self.old
        self.was_read, self.is_read = readings(template), readings(self.place)

    def start(self):
        os.chdir("/")
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.template, self.place)
        os.chdir(self.place)

    def run(self, fault):
        result = {"fault": fault, "tried": 0, "whole": 0, "completed": 0, "wrong": []}
        moment = 0
        while True:
            self.start()
            status = run_forked(lambda: command(self.case.line), self.place, moment, fault)
            if status == NOT_REACHED:
                return result
            self.judge(result, moment, status)
            moment += self.step

    def judge(self, result, moment, status):
        after = snapshot(self.place)
        whole = is_old_or_new(after, self.old, self.new) and status in (0, 1, 2, 3, -9)
        whole = whole and is_of_one_side(readings(self.place), self.was_read, self.is_read)
        whole = whole and snapshot(self.place) == after  # a reader changes nothing
        completed = in_fork(f"{self.case.line} {self.case.again}") in (0, 3)
        completed = completed and snapshot(self.place) == self.new and not leftovers(self.place)
        result["tried"] += 1
        result["whole"] += whole
        result["completed"] += completed
        if not (whole and completed):
            result["wrong"].append([moment, status, whole, completed, leftovers(self.place)])


def make_quick(name):
    """Small networks and demonstrations instead of large ones."""
    if name == "demo":
        from rpml.pages import demo

        demo.demonstrate_drawings = small_demo
    if name == "finetune":
        from rpml.deep import backbones
        from tests.deep.test_command import tiny

        backbones.load_googlenet = tiny


def main(folder, name, step="1"):
    case = CASES[name]
    make_quick(name)
    os.chdir(shutil.copytree(folder, f"{folder}.warm"))
    assert command(case.line) in (0, 3)  # so that the forks need not import and compile
    os.chdir(folder)
    template = Path(folder).resolve()
    if "out" in case.earlier:
        assert in_fork(case.earlier) in (0, 3), case.earlier
    else:
        (template / "out.rpml").write_text("an earlier model")
    table = Table(template, case, int(step))
    for fault in FAULTS:
        print(json.dumps({"command": name, **table.run(fault)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
