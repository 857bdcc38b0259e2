"""Rows in s3://, read by fsspec and s3fs from a server on this machine."""

import re
import subprocess
import sys
import time

import numpy as np
import pytest

from rpml import RPML
from rpml.io.features import read_features
from rpml.runtime.errors import InputError
from tests.cli.conftest import Run
from tests.distributed.test_source import gather

REASON = "needs s3fs and moto, which `make test-bucket` installs apart from the other packages"
s3fs = pytest.importorskip("s3fs", reason=REASON)
pytest.importorskip("moto", reason=REASON)
pa = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """A server with an empty memory; the function returns the requests that it has answered."""
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("w") as file:
        command = [sys.executable, "-m", "moto.server", "-p", "0"]
        server = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", address_in(log))
            patch.setenv("AWS_ACCESS_KEY_ID", "testing")
            patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
            patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            yield lambda: answered(log.read_text())
    finally:
        server.kill()
        server.wait()


def address_in(log, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := re.search(r"http://[\d.]+:\d+", log.read_text()):
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"no server after {seconds} seconds: {log.read_text()}")


def answered(text):
    """Method, path and status of each request; the server colors its lines."""
    plain = re.sub(r"\x1b\[\d+m", "", text)
    return re.findall(r'"(\w+) /(\S*) HTTP/1.1" (\d+)', plain)


@pytest.fixture(scope="module")
def bucket(rows, requests, tmp_path_factory):
    """The rows as three .npy files with ids, and as three parquet files with a column."""
    here = tmp_path_factory.mktemp("parts")
    system = s3fs.S3FileSystem(skip_instance_cache=True)
    system.mkdir("vectors")
    for i, part in enumerate(np.split(rows, [100, 700])):
        np.save(here / "part.npy", part)
        system.put(str(here / "part.npy"), f"vectors/day/part-{i}.npy")
        names = "\n".join(f"img{i}-{j}" for j in range(len(part)))
        system.pipe(f"vectors/day/part-{i}.ids.csv", f"id\n{names}\n".encode())
        table = pa.table({"v": list(part), "camera": [f"camera {i}"] * len(part)})
        parquet.write_table(table, here / "part.parquet")
        system.put(str(here / "part.parquet"), f"vectors/tables/part-{i}.parquet")
    return system


@pytest.fixture(scope="module")
def workers(bucket):
    """A cluster whose workers know the address of the server."""
    from rpml.distributed import Cluster

    with Cluster(workers=1, threads=1) as started:
        yield started


def test_a_cluster_reads_the_rows_of_a_partition(workers, rows, requests):
    from rpml.distributed import open_rows, read_columns

    source = open_rows("s3://vectors/day", workers, partition_rows=500)
    np.testing.assert_array_equal(gather(workers, source), rows)
    ids = read_columns(source).ids
    assert ids[[0, 100, 1199]].tolist() == ["img0-0", "img1-0", "img2-499"]
    tables = open_rows("s3://vectors/tables", workers)
    np.testing.assert_array_equal(gather(workers, tables), rows)
    assert read_columns(tables, ["camera"]).columns["camera"][700] == "camera 2"
    ranges = {path for method, path, code in requests() if (method, code) == ("GET", "206")}
    for i in range(3):
        assert {f"vectors/day/part-{i}.npy", f"vectors/tables/part-{i}.parquet"} <= ranges


def test_a_fit_on_a_cluster_is_the_local_fit(workers, rows):
    from rpml.distributed import DaskRPML

    settings = {"n_components": 3, "subsample": 700, "random_state": 0}
    model = DaskRPML(**settings).fit("s3://vectors/day", cluster=workers)
    local = RPML(**settings).fit(rows)
    np.testing.assert_allclose(model.transform(rows), local.transform(rows), atol=1e-6)


def test_a_missing_folder_is_named(workers):
    from rpml.distributed import open_rows

    with pytest.raises(InputError, match="s3://vectors/night: there is no such"):
        open_rows("s3://vectors/night", workers)


@pytest.mark.usefixtures("bucket")
def test_a_file_and_a_folder_are_read_without_a_cluster(rows, requests):
    features = read_features("s3://vectors/day/part-1.npy")
    np.testing.assert_array_equal(features.values, rows[100:700])
    assert features.ids[0] == "img1-0"
    np.testing.assert_array_equal(read_features("s3://vectors/day").values, rows)
    assert ("GET", "vectors/day/part-1.npy", "200") in requests()
    with pytest.raises(InputError, match=r"s3://vectors/night\.npy: there is no such file"):
        read_features("s3://vectors/night.npy")


@pytest.mark.usefixtures("bucket")
def test_the_commands_read_from_the_bucket(rows, tmp_path):
    run, model, small = Run(), tmp_path / "model.rpml", tmp_path / "small.npy"
    run("fit", "s3://vectors/day", "-o", model, "--dim", 3, "--seed", 0, "-q")
    run("embed", model, "s3://vectors/day/part-2.npy", "-o", small, "-q")
    np.testing.assert_array_equal(np.load(small), RPML.load(model).transform(rows[700:]))
    text = run.refused("embed", model, "s3://vectors/night.npy", "-o", tmp_path / "x.npy")
    assert "s3://vectors/night.npy: there is no such file" in text
