"""Change the code in one place at a time and see whether a test fails: make mutants N=100.

cosmic-ray finds the places; a random sample of N is tried in a clone of the last commit. A change
is tried on the stored figures first, which are quick and notice most; a survivor of those on the
tests of its folder, then on all tests of the method. Tests judge a change only after they have
passed without one, in the same clone and environment.

python scripts/mutants.py N [SEED [FOLDER ...]]
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkResult

MUTATED = ("src/rpml/method", "src/rpml/evaluation/metrics", "src/rpml/search")
FIGURES = "tests/method/test_figures.py"
ALL_TESTS = ("tests/method", "tests/estimator", "tests/evaluation", "tests/search")
PYTEST = f"{sys.executable} -m pytest -x -q -p no:cacheprovider "
TIMES_AS_LONG = 4  # a change that makes the tests run so much longer is caught, too
ANNOTATIONS = ("BitOr", "AddNot", "ReplaceUnaryOperator_Delete_Not")  # `int | None`, and doubles


def places(folder: Path, mutated: list[str]) -> list[MutationSpec]:
    """Every change that cosmic-ray knows for the mutated packages."""
    with use_db(folder / "mutants.sqlite", WorkDB.Mode.create) as database:
        init(find_modules([Path(path) for path in mutated]), database, {})
        found = [mutation for item in database.work_items for mutation in item.mutations]
    return [m for m in found if not any(word in m.operator_name for word in ANNOTATIONS)]


def own_tests(module: Path) -> str:
    """The tests that mirror the module's folder."""
    folder = Path("tests", *module.parent.parts[2:])
    return str(folder if folder.is_dir() else folder.parent)


@functools.cache
def seconds_unchanged(tests: str) -> float:
    """How long the tests take without a change; stops everything if one fails."""
    start = time.monotonic()
    if subprocess.run((PYTEST + tests).split()).returncode:
        sys.exit(f"{tests}: fails without any change, mend it first.")
    return time.monotonic() - start


def judged(mutation: MutationSpec, tests: str) -> WorkResult:
    """The verdict of these tests. Code compiled from a changed file is not left for the next."""
    limit = TIMES_AS_LONG * seconds_unchanged(tests) + 60
    unchanged = Path(os.environ["NUMBA_CACHE_DIR"])
    cache = unchanged.with_name("compiled from a change")
    if "@compiled" in mutation.module_path.read_text(encoding="utf8"):
        cache.mkdir()
    else:
        shutil.copytree(unchanged, cache)
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    try:
        return mutate_and_test([mutation], PYTEST + tests, limit)
    finally:
        os.environ["NUMBA_CACHE_DIR"] = str(unchanged)
        shutil.rmtree(cache)


def tried(mutation: MutationSpec) -> WorkResult:
    """The verdict of the first tests that notice the change, or of all tests of the method."""
    for tests in (FIGURES, own_tests(mutation.module_path), " ".join(ALL_TESTS)):
        result = judged(mutation, tests)
        if result.test_outcome != TestOutcome.SURVIVED:
            break
    return result


def main() -> int:
    n, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "clone", "--quiet", ".", str(folder / "clone")], check=True)
        os.chdir(folder / "clone")
        os.environ["PYTHONPATH"] = str(folder / "clone/src")
        os.environ["NUMBA_CACHE_DIR"] = str(folder / "compiled")
        every = places(folder, sys.argv[3:] or list(MUTATED))
        sample = random.Random(seed).sample(every, min(n, len(every)))
        survivors = 0
        for i, mutation in enumerate(sample, 1):
            result = tried(mutation)
            killed = result.test_outcome == TestOutcome.KILLED  # is_killed: also what could not run
            survivors += not killed
            verdict = "killed" if killed else "SURVIVED"
            late = " (too slow)" if result.output == "timeout" else ""
            where = f"{mutation.module_path}:{mutation.start_pos[0]} {mutation.operator_name}"
            print(f"{i}/{n} {verdict}{late} {where}", flush=True)
            if not killed:
                print(result.diff or result.output, flush=True)
    print(f"{len(sample) - survivors} of {len(sample)} killed; {len(every)} places in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
