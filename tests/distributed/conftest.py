"""One cluster of two worker processes for all tests of this folder."""

import os

import numpy as np
import pytest

from tests.problems import blobs

distributed = pytest.importorskip("distributed", reason="needs the extra 'distributed'")
pytest.importorskip("dask.array", reason="needs the extra 'distributed'")


@pytest.fixture(scope="session")
def cluster():
    from rpml.distributed import Cluster

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with Cluster(workers=2, threads=1, memory_limit="1GB") as started:
        yield started


@pytest.fixture(scope="session")
def rows():
    """1,200 rows of 12 blobs, float64."""
    return blobs(3, classes=12, per_class=100, d=16, spread=0.5)[0]


@pytest.fixture
def shards(rows, tmp_path):
    """The same rows in files of different sizes."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for i, part in enumerate(np.split(rows, [100, 450, 460])):
        np.save(folder / f"part-{i}.npy", part)
    return folder


def subspace_distance(A, B):
    """Sine of the largest angle between the row spaces."""
    U, V = np.linalg.qr(A.T)[0], np.linalg.qr(B.T)[0]
    return np.linalg.norm(U - V @ (V.T @ U), 2)
