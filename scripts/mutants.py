"""Change the code in one place at a time and see whether a test fails: make mutants N=100.

cosmic-ray finds the places; a random sample of N is tried in a clone of the last commit. A change
is tried on the tests of its folder first, a survivor of those on all tests of the method.

python scripts/mutants.py N [SEED]
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, WorkerOutcome, WorkResult

MUTATED = ("src/rpml/method", "src/rpml/evaluation/metrics", "src/rpml/search")
ALL_TESTS = ("tests/method", "tests/estimator", "tests/evaluation", "tests/search")
PYTEST = f"{sys.executable} -m pytest -x -q -p no:cacheprovider "
SECONDS = 600  # a change that makes the tests run longer is caught, too
ANNOTATIONS = ("BitOr", "AddNot", "ReplaceUnaryOperator_Delete_Not")  # `int | None`, and doubles


def places(folder: Path) -> list[MutationSpec]:
    """Every change that cosmic-ray knows for the mutated packages."""
    with use_db(folder / "mutants.sqlite", WorkDB.Mode.create) as database:
        init(find_modules([Path(path) for path in MUTATED]), database, {})
        found = [mutation for item in database.work_items for mutation in item.mutations]
    return [m for m in found if not any(word in m.operator_name for word in ANNOTATIONS)]


def own_tests(module: Path) -> str:
    """The tests that mirror the module's folder."""
    folder = Path("tests", *module.parent.parts[2:])
    return str(folder if folder.is_dir() else folder.parent)


def tried(mutation: MutationSpec) -> WorkResult:
    """The verdict of the nearest tests and, if they pass, of all tests of the method."""
    result = mutate_and_test([mutation], PYTEST + own_tests(mutation.module_path), SECONDS)
    if result.worker_outcome == WorkerOutcome.NORMAL and not result.is_killed:
        result = mutate_and_test([mutation], PYTEST + " ".join(ALL_TESTS), SECONDS)
    return result


def main() -> int:
    n, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["git", "clone", "--quiet", ".", str(folder / "clone")], check=True)
        os.chdir(folder / "clone")
        os.environ["PYTHONPATH"] = str(folder / "clone/src")
        if subprocess.run((PYTEST + " ".join(ALL_TESTS)).split()).returncode:
            sys.exit("the tests fail without any change: mend them first.")
        every = places(folder)
        sample = random.Random(seed).sample(every, min(n, len(every)))
        survivors = 0
        for i, mutation in enumerate(sample, 1):
            result = tried(mutation)
            survivors += not result.is_killed
            where = f"{mutation.module_path}:{mutation.start_pos[0]} {mutation.operator_name}"
            print(f"{i}/{n} {'killed' if result.is_killed else 'SURVIVED'} {where}", flush=True)
            if not result.is_killed:
                print(result.diff, flush=True)
    print(f"{len(sample) - survivors} of {len(sample)} killed; {len(every)} places in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
