"""Compiled loops where nothing can be kept on disk."""

import os
import subprocess
import sys

import numpy as np

from rpml import RPML
from rpml.runtime.compiled import VECTORIZED, compiled

NO_FOLDER = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []  # as in a read-only container without a home
import logging
logging.basicConfig(format="%(message)s")
import numpy as np
from rpml.method.graph.neighbors import nearest_neighbors
found = nearest_neighbors(np.eye(4)[[0, 0, 1, 1]] + 0.01, 1)
print(found.indices.ravel().tolist())
"""

NO_COMPILER = """
import sys
import numpy as np
from numba.core.dispatcher import Dispatcher
def refuse(self, signature):
    sys.exit("transform compiles")
Dispatcher.compile = refuse
from rpml import RPML
print(RPML.load(sys.argv[1]).transform(np.load(sys.argv[2])).shape)
"""


def run(script, *args):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_results_are_those_of_python():
    @compiled(VECTORIZED)
    def total(x):
        found = 0.0
        for i in range(len(x)):
            found += x[i]
        return found

    assert total(np.arange(5.0)) == total.py_func(np.arange(5.0)) == 10.0


def test_without_a_folder_for_the_cache_one_line_says_so_and_everything_works():
    result = run(NO_FOLDER)
    assert result.stdout.strip() == "[1, 0, 3, 2]", result.stderr
    assert result.stderr.count("NUMBA_CACHE_DIR") == 1


def test_a_loaded_model_embeds_without_compiling(tmp_path):
    X = np.random.default_rng(0).normal(size=(120, 12))
    RPML(4, training="always", random_state=0, max_iter=2).fit(X).save(tmp_path / "m.rpml")
    np.save(tmp_path / "x.npy", X)
    result = run(NO_COMPILER, tmp_path / "m.rpml", tmp_path / "x.npy")
    assert result.stdout.strip() == "(120, 4)", result.stderr
