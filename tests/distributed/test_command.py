"""rpml fit --engine dask."""

import os
import signal
import subprocess
import sys

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
    options = ("--dim", 3, "--neighbors", 10, "--max-iter", 4, "--subsample", 700)
    result = rpml(
        "fit", shards, "-o", out, *options, "--engine", "dask", "--scheduler", cluster.address,
        "--partition-rows", 400,
    )  # fmt: skip
    assert f"dashboard at {cluster.dashboard}" in result.stderr
    assert "1,200 rows of 16 features, float64, 3 partitions" in result.stderr
    assert "reading: 3/3, done in" in result.stderr
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
    assert "--engine spark: choose from local, dask" in rpml.refused(*base, "--engine", "spark")
    assert "need --engine dask" in rpml.refused(*base, "--workers", 2)
    text = rpml.refused(*base, "--engine", "dask", "--scheduler", "tcp://x:1", "--workers", 2)
    assert "--workers is for workers started here" in text


def test_fit_with_a_nuisance_and_queries(rpml, cluster, rows, shards, tmp_path):
    np.save(tmp_path / "camera.npy", np.arange(len(rows)) % 3)
    np.save(tmp_path / "queries.npy", rows[:50])
    known = ("--nuisance", tmp_path / "camera.npy", "--queries", tmp_path / "queries.npy")
    options = ("--dim", 4, "--subsample", 700, *known, "-q")
    rpml("fit", shards, "-o", tmp_path / "two.rpml", *options, "--engine", "dask",
         "--scheduler", cluster.address)  # fmt: skip
    rpml("fit", shards, "-o", tmp_path / "one.rpml", *options)
    one, two = (RPML.load(tmp_path / f"{name}.rpml") for name in ("one", "two"))
    assert (
        two.whitening_.nuisance.source == one.whitening_.nuisance.source == "nuisance and queries"
    )
    assert subspace_distance(one.components_, two.components_) < 1e-4


@pytest.fixture
def tables(rows, tmp_path):
    """The rows with ids, classes and a camera in three parquet files, and both in other files."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    camera = np.array(["north", "south", "east"])[rng.integers(0, 3, len(rows))]
    ids = [f"img{i}" for i in rng.permutation(len(rows))]
    y = np.arange(len(rows)) // 100
    (tmp_path / "tables").mkdir()
    for i, part in enumerate(np.split(np.arange(len(rows)), [300, 310])):
        columns = {"image": [ids[j] for j in part], "camera": camera[part], "species": y[part]}
        table = pa.table({**columns, "v": list(rows[part])})
        parquet.write_table(table, tmp_path / "tables" / f"{i}.parquet", row_group_size=100)
    for name, values in {"camera": camera, "species": y}.items():
        lines = [f"{ids[i]},{values[i]}" for i in rng.permutation(len(rows))]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"image,{name}", *lines]) + "\n")
    return tmp_path / "tables"


def test_a_nuisance_in_a_column_of_the_shards_or_matched_by_id(rpml, cluster, tables, tmp_path):
    dask = ("--engine", "dask", "--scheduler", cluster.address)
    options = ("--dim", 4, "--subsample", 700, "--id-column", "image", "-q")

    def fitted(nuisance, *more):
        out = ("-o", tmp_path / "m.rpml", "--force", "--nuisance", nuisance)
        rpml("fit", tables, *options, *out, *more)
        return RPML.load(tmp_path / "m.rpml")

    local, column = fitted("camera"), fitted("camera", *dask)
    by_id = fitted(tmp_path / "camera.csv", *dask)
    assert column.whitening_.nuisance.source == "nuisance"
    assert column.whitening_.nuisance.shared == by_id.whitening_.nuisance.shared
    assert subspace_distance(column.components_, local.components_) < 1e-4
    assert subspace_distance(column.components_, by_id.components_) < 1e-12
    base = ("fit", tables, *options, "-o", tmp_path / "other.rpml", *dask)
    text = rpml.refused(*base, "--nuisance", "kamera")
    assert "has no column 'kamera': did you mean 'camera'?" in text


def test_labels_in_a_column_of_the_shards_or_matched_by_id(rpml, cluster, tables, tmp_path):
    dask = ("--engine", "dask", "--scheduler", cluster.address)
    base = ("evaluate", tables, "--k", 1, "--id-column", "image", "--no-clustering")
    column = rpml.json(*base, "--label-column", "species", "--columns", "v", *dask)
    by_id = rpml.json(*base, "--labels", tmp_path / "species.csv", *dask)
    assert column == by_id == rpml.json(*base, "--labels", tmp_path / "species.csv")
    assert column == rpml.json(*base, "--label-column", "species")
    assert column["classes"] == 12


def test_recommend(rpml, cluster, tables, tmp_path):
    """The sample has all of these few rows, so that the advice is the local one."""
    dask = ("--engine", "dask", "--scheduler", cluster.address)
    base = ("recommend", tables, "--id-column", "image", "--nuisance", "camera")
    for more in (("--bytes", 4), ("--dim", 4, "--labels", tmp_path / "species.csv")):
        one, two = rpml.json(*base, *more), rpml.json(*base, *more, *dask)
        assert f"--engine dask --scheduler {cluster.address}" in two.pop("next")
        assert "dask" not in one.pop("next")
        assert one == two


def test_report(rpml, cluster, tables, tmp_path):
    """The sample has all of these few rows, so that the page is the local one."""
    pytest.importorskip("jinja2")
    dask = ("--engine", "dask", "--scheduler", cluster.address)
    base = ("--id-column", "image", "-q")
    model = tmp_path / "m.rpml"
    rpml("fit", tables, "-o", model, "--dim", 4, "--subsample", 700, *base, *dask)
    known = ("--nuisance", "camera", "--labels", tmp_path / "species.csv")
    pages = []
    for engine in ((), dask):
        out = tmp_path / f"{len(pages)}.html"
        rpml("report", model, tables, "-o", out, *base, *known, *engine)
        pages.append(out.read_text().replace(out.name, "").replace(" ".join(engine), ""))
    assert "on which the model was trained" in pages[0]
    assert pages[0] == pages[1]


def test_fit_for_a_number_of_bytes(rpml, cluster, rows, shards, tmp_path):
    """The sample has all of these few rows, so that advice and codebooks are the local ones."""
    options = ("--bytes", 4, "--subsample", 700)
    dask = ("--engine", "dask", "--scheduler", cluster.address)
    two = rpml.json("fit", shards, "-o", tmp_path / "two.rpml", *options, *dask)
    one = rpml.json("fit", shards, "-o", tmp_path / "one.rpml", *options)
    assert (two["codes"], two["dim"]) == (one["codes"], one["dim"]) == ("pq", one["dim"])
    codes = [
        RPML.load(tmp_path / f"{name}.rpml").transform(rows, output="pq") for name in ("one", "two")
    ]
    assert (codes[0] == codes[1]).mean() > 0.99  # the maps agree to rounding


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


def test_embed_and_evaluate_on_a_scheduler(rpml, cluster, rows, shards, tmp_path):
    np.save(tmp_path / "x.npy", rows)
    np.save(tmp_path / "y.npy", np.arange(len(rows)) // 100)
    model, out = tmp_path / "m.rpml", tmp_path / "out"
    rpml("fit", tmp_path / "x.npy", "-o", model, "--dim", 3, "--neighbors", 10, "--max-iter", 2)
    dask = ("--engine", "dask", "--scheduler", cluster.address)
    command = ("embed", model, shards, "-o", f"{out}/", "--partition-rows", 500, *dask)
    result = rpml(*command)
    assert "1,200 rows, 3 dimensions, 3 files" in result.stdout
    assert "embedding: 3/3" in result.stderr
    first = sorted(out.iterdir())
    written = first[0].stat().st_mtime_ns
    first[1].unlink()
    assert rpml.json(*command)["files"] == 3
    assert sorted(out.iterdir()) == first
    assert first[0].stat().st_mtime_ns == written
    rpml("embed", model, tmp_path / "x.npy", "-o", tmp_path / "local.npy")
    whole = np.concatenate([np.load(part) for part in first])
    np.testing.assert_allclose(whole, np.load(tmp_path / "local.npy"), atol=1e-6)
    scoring = ("--labels", tmp_path / "y.npy", "--k", "1,4")
    local = rpml.json("evaluate", tmp_path / "local.npy", *scoring, "--no-clustering")
    assert rpml.json("evaluate", f"{out}/", *scoring, *dask) == local
    again = rpml.json("evaluate", shards, *scoring, *dask, "--model", model)
    assert again["recall@1"] == local["recall@1"]
    assert again["dim"] == 3
    text = rpml.refused("embed", model, shards, "-o", "s3://bucket/out/", "-q", *dask)
    assert "s3://bucket/out/ is a URL" in text
    assert "writes a folder" in rpml.refused("embed", model, shards, "-o", "x.npy", *dask)
    text = rpml.refused("embed", model, shards, "-o", f"{out}/", "--dim", 2, "-q", *dask)
    assert "not of this model" in text


def test_ctrl_c_ends_in_one_sentence(shards, tmp_path):
    """A terminal sends it to the workers too, which must not show where they were."""
    args = ["fit", shards, "-o", tmp_path / "m.rpml", "--engine", "dask", "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rpml", *map(str, args), "--partition-rows", "2", "--dim", "4"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while "partitions" not in process.stderr.readline():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    text = process.communicate()[1]
    assert process.returncode == 130
    assert "rpml: interrupted" in text
    assert "Traceback" not in text
    assert not (tmp_path / "m.rpml").exists()


SCHEDULER = """
import time
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


def test_a_killed_scheduler_ends_in_one_sentence(rows, tmp_path):
    (tmp_path / "scheduler.py").write_text(SCHEDULER)
    np.save(tmp_path / "x.npy", np.tile(rows, (5, 1)))
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = [sys.executable, tmp_path / "scheduler.py"]
    scheduler = subprocess.Popen(program, start_new_session=True, **pipe)
    try:
        dask = ["--engine", "dask", "--scheduler", scheduler.stdout.readline().strip()]
        args = ["fit", tmp_path / "x.npy", "-o", tmp_path / "m.rpml", *dask]
        line = [sys.executable, "-m", "rpml", *args, "--partition-rows", "20", "--dim", "4"]
        process = subprocess.Popen(line, **pipe)
        while "reading" not in process.stderr.readline():
            assert process.poll() is None
    finally:
        os.killpg(scheduler.pid, signal.SIGKILL)
        scheduler.communicate()
    text = process.communicate()[1]
    assert process.returncode == 1
    assert "was lost" in text
    assert "Traceback" not in text
    assert text.count("rpml: ") == 1


def test_a_failure_of_the_cluster_is_a_sentence_without_the_name_of_the_exception():
    from rpml.cli.command import exit_code, sentence
    from rpml.distributed import ClusterError

    error = ClusterError("stage 'read': the Dask scheduler tcp://host:8786 was lost")
    assert (exit_code(error), sentence(error)) == (1, str(error))
