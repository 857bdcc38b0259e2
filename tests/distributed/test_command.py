"""rpml fit --engine dask."""

import numpy as np
import pytest

from rpml import RPML
from tests.cli.conftest import Run

from .conftest import subspace_distance


@pytest.fixture(scope="module")
def rpml():
    return Run()


def test_fit_on_a_scheduler(rpml, cluster, rows, shards, tmp_path):
    out = tmp_path / "m.rpml"
    options = ("--dim", 3, "--neighbors", 10, "--max-iter", 4)
    result = rpml(
        "fit", shards, "-o", out, *options, "--engine", "dask", "--scheduler", cluster.address,
        "--partition-rows", 400,
    )  # fmt: skip
    assert f"dashboard at {cluster.dashboard}" in result.stderr
    assert "1200 rows of 16 features, float64, 3 partitions" in result.stderr
    assert "nearest neighbours: 6/6, done in" in result.stderr
    np.save(tmp_path / "x.npy", rows)
    rpml("fit", tmp_path / "x.npy", "-o", tmp_path / "local.rpml", *options)
    one, two = RPML.load(out), RPML.load(tmp_path / "local.rpml")
    assert subspace_distance(one.components_, two.components_) < 1e-4
    assert not (tmp_path / "m.rpml.ckpt").exists()
    again = rpml("fit", shards, "-o", out, *options, "--engine", "dask", "--resume",
                 "--scheduler", cluster.address)  # fmt: skip
    assert "already complete" in again.stdout


def test_refusals(rpml, shards, tmp_path):
    base = ("fit", shards, "-o", tmp_path / "m.rpml")
    assert "use local or dask" in rpml.refused(*base, "--engine", "spark")
    assert "need --engine dask" in rpml.refused(*base, "--workers", 2)
    text = rpml.refused(*base, "--engine", "dask", "--scheduler", "tcp://x:1", "--workers", 2)
    assert "--workers is for workers started here" in text


def test_a_bad_shard_is_named_without_a_traceback(rpml, cluster, shards, tmp_path):
    data = (shards / "part-2.npy").read_bytes()
    (shards / "part-2.npy").write_bytes(data[:-9])
    base = ("fit", shards, "-o", tmp_path / "m.rpml", "-q", "--engine", "dask")
    text = rpml.refused(*base, "--scheduler", cluster.address)
    assert "part-2.npy is not a complete .npy file" in text
    assert not list(tmp_path.glob("m.rpml*"))


def test_no_scheduler_there(rpml, shards, tmp_path, monkeypatch):
    from rpml.distributed import cluster

    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    base = ("fit", shards, "-o", tmp_path / "m.rpml", "--engine", "dask")
    text = rpml.refused(*base, "--scheduler", "tcp://127.0.0.1:9")
    assert "cannot reach a Dask scheduler at tcp://127.0.0.1:9" in text
