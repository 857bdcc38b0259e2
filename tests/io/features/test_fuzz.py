"""Damaged feature files: an InputError or numbers, never anything else."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpml.io.features import read_features
from rpml.runtime.errors import InputError

KINDS = ["npy", "npz", "csv", "parquet"]


def make(path, kind):
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    if kind == "npy":
        np.save(path, X)
    elif kind == "npz":
        np.savez_compressed(path, X=X, ids=np.arange(20))
    elif kind == "csv":
        rows = "\n".join(f"item {i}," + ",".join(map(str, r)) for i, r in enumerate(X.tolist()))
        path.write_text(f"id,a,b,c\n{rows}\n")
    else:
        pq.write_table(pa.table({"id": np.arange(20), "v": pa.array(X.tolist())}), path)
    return path.read_bytes()


def fuzz(tmp_path, kind, count, seed):
    path = tmp_path / f"x.{kind}"
    whole, rng = make(path, kind), np.random.default_rng(seed)
    for _ in range(count):
        data = bytearray(whole)
        at, size = int(rng.integers(len(data))), int(rng.integers(1, 12))
        if rng.random() < 0.2:
            del data[at : at + size]
        else:
            data[at : at + size] = rng.bytes(len(data[at : at + size]))
        path.write_bytes(data)
        try:
            values = read_features(path).values
        except InputError as error:
            message = str(error)
        else:
            message = ""
            assert values.ndim == 2
        assert "\n" not in message


@pytest.mark.parametrize("kind", KINDS)
def test_fuzz(tmp_path, kind):
    fuzz(tmp_path, kind, 150, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_fuzz_long(tmp_path, kind):
    fuzz(tmp_path, kind, 5000, 1)
