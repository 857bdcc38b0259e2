"""Workers die, run out of memory, the scheduler goes: the work completes or says what to do."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

import rpml
from rpml import RPML
from rpml.distributed import cluster as cluster_module
from rpml.io.checkpoint import Checkpoint
from rpml.runtime.context import Context

from .conftest import subspace_distance

SETTINGS = {
    "n_components": 4,
    "n_neighbors": 10,
    "training": "always",
    "max_iter": 4,
    "tol": 0.0,
    "random_state": 0,
    "subsample": 700,
}


class Killer:
    """Kills workers while a stage runs: one at its start and one after every finished task."""

    def __init__(self, cluster, stage, kills, longest=0.3):
        self.cluster, self.stage, self.left, self.longest = cluster, stage, kills, longest
        self.rng, self.threads, self.killed = np.random.default_rng(kills), [], []

    def __call__(self, progress):
        if progress.stage == self.stage and self.left:
            self.left -= 1
            thread = threading.Thread(target=self._kill, args=(self.longest * self.rng.random(),))
            thread.start()
            self.threads.append(thread)

    def _kill(self, delay):
        time.sleep(delay)
        nannies = [n for n in self.cluster._local.workers.values() if n.pid]
        if nannies:
            os.kill(int(self.rng.choice([n.pid for n in nannies])), signal.SIGKILL)
            self.killed.append(delay)

    def join(self):
        for thread in self.threads:
            thread.join()
        return len(self.killed)


def slowly(rows, seconds=0.2, chunks=100):
    """A Dask array whose blocks take some time to compute."""
    import dask.array as da

    def wait(block):
        time.sleep(seconds)
        return block

    X = da.from_array(rows, chunks=(chunks, -1))
    return X.map_blocks(wait, dtype=rows.dtype, meta=rows[:0])


def fit(source, cluster, callback=None, **more):
    from rpml.distributed import DaskRPML

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DaskRPML(**SETTINGS, callback=callback).fit(source, cluster=cluster, **more)


@pytest.fixture(scope="module")
def whole(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RPML(**SETTINGS).fit(rows)


@pytest.fixture(scope="module")
def fragile():
    """A cluster of its own, so that no other test meets a dead worker."""
    from rpml.distributed import Cluster

    with Cluster(workers=2, threads=1, memory_limit="1GB") as started:
        yield started


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.slow)])
def test_killed_workers_change_nothing(fragile, rows, whole, tmp_path, kills, monkeypatch):
    from rpml.distributed import embed, open_rows

    monkeypatch.setattr(cluster_module, "_ALONE", 300)  # a busy machine starts workers slowly
    X = open_rows(slowly(rows), fragile, partition_rows=100)
    killer = Killer(fragile, "read", kills)
    model = fit(X, fragile, killer)
    assert killer.join() == kills
    np.testing.assert_array_equal(model.labels_, whole.labels_)
    assert subspace_distance(model.components_, whole.components_) < 1e-7
    killer = Killer(fragile, "embed", kills)
    files = embed(whole, X, tmp_path / "out", fragile, kind="npy", context=Context(report=killer))
    assert killer.join() == kills
    expected = embed(whole, X, tmp_path / "quiet", fragile, kind="npy")
    assert [Path(f).read_bytes() for f in files] == [Path(f).read_bytes() for f in expected]
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(tmp_path / "quiet"))


def fill_the_disk(full=True):
    """Let every write of this process fail, or no longer."""
    from rpml.distributed import embed
    from rpml.io.features.writing import write_batches
    from rpml.runtime.errors import WriteError

    def fail(path, *rest, **more):
        raise WriteError(errno.ENOSPC, f"cannot write {path}: No space left on device")

    sys.modules[embed.__module__].write_batches = fail if full else write_batches


def test_a_full_disk_on_one_worker_and_on_all(cluster, rows, whole, tmp_path):
    from rpml.distributed import embed, open_rows

    X = open_rows(slowly(rows, 0.02), cluster, partition_rows=100)
    workers = list(cluster.workers())
    try:
        cluster.client.run(fill_the_disk, workers=workers[:1])
        files = embed(whole, X, tmp_path / "out", cluster, kind="npy")
        found = np.concatenate([np.load(file) for file in files])
        np.testing.assert_allclose(found, whole.transform(rows), atol=1e-12)
        cluster.client.run(fill_the_disk)
        with pytest.raises(OSError, match=r"cannot write .*part-00000.*No space left"):
            embed(whole, X, tmp_path / "full", cluster, kind="npy")
        assert not os.listdir(tmp_path / "full")
    finally:
        cluster.client.run(fill_the_disk, False)


def test_a_task_beyond_the_memory_limit_says_what_to_change(monkeypatch):
    from rpml.distributed import Cluster, ClusterError, cluster

    monkeypatch.setattr(cluster, "_DEATHS", 0)
    with Cluster(workers=1, threads=1, memory_limit="300MB") as small:
        small.stage = "read"
        with pytest.raises(ClusterError, match=r"'read'.*memory limit.*--partition-rows"):
            small.value(small.submit(swallow, 2000))


def swallow(megabytes):
    kept = []
    for _ in range(megabytes // 20):
        kept.append(np.ones(20 * 2**17))
        time.sleep(0.02)
    return len(kept)


SCHEDULER = """
import sys, time
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0",
                           silence_logs=50)
    print(cluster.scheduler_address, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def remote(tmp_path):
    """Start a scheduler with a worker as another user would; returns (process, address)."""
    script, started = tmp_path / "scheduler.py", []
    script.write_text(SCHEDULER)

    def start(**environment):
        process = subprocess.Popen(
            [sys.executable, script],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.slow  # the client waits half a minute for a scheduler to come back
def test_a_lost_scheduler_is_said_and_the_work_resumes(
    cluster, rows, whole, shards, remote, tmp_path
):
    from rpml.distributed import Cluster, ClusterError, embed, open_rows

    def lose(progress):
        if progress.stage == stage and progress.done == done:
            os.killpg(process.pid, signal.SIGKILL)

    store = Checkpoint(tmp_path / "c", open_rows(shards, cluster).digest(), SETTINGS)
    process, address = remote()
    stage, done = "read", 0
    lost = r"'{}'.*scheduler tcp://.* was lost.*again"
    with Cluster(address) as far, pytest.raises(ClusterError, match=lost.format("read")):
        fit(shards, far, lose, store=store)
    model = fit(shards, cluster, store=store)
    np.testing.assert_array_equal(model.labels_, whole.labels_)
    process, address = remote()
    stage, done = "embed", 2
    with Cluster(address) as far:
        X = open_rows(shards, far, partition_rows=100)
        with pytest.raises(ClusterError, match=lost.format("embed")):
            embed(whole, X, tmp_path / "out", far, kind="npy", context=Context(report=lose))
    assert 2 <= len(os.listdir(tmp_path / "out")) <= 12
    X = open_rows(shards, cluster, partition_rows=100)
    files = embed(whole, X, tmp_path / "out", cluster, kind="npy")
    np.testing.assert_allclose(
        np.concatenate([np.load(file) for file in files]), whole.transform(rows), atol=1e-12
    )
    assert len(os.listdir(tmp_path / "out")) == len(files) == 12


def test_workers_of_another_version_are_refused(remote, shards, tmp_path):
    from rpml.distributed import Cluster, open_rows
    from rpml.runtime.errors import InputError

    other = tmp_path / "other" / "rpml"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text('__version__ = "0.0.9"\n')
    _, address = remote(PYTHONPATH=str(other.parent))
    version = rf"worker tcp\S+ has rpml 0\.0\.9, this process has rpml {rpml.__version__}: install"
    with Cluster(address) as far, pytest.raises(InputError, match=version):
        open_rows(shards, far)
    for name, code in {
        "numpy": "import numpy\nnumpy.__version__ = '1.0'\n",
        "Python": "import platform\nplatform.python_version_tuple = lambda: ('1', '0', '7')\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(code)
        path = os.pathsep.join([str(tmp_path / name), *sys.path])
        _, address = remote(PYTHONPATH=path)
        version = rf"worker tcp\S+ has {name} 1\.0, this process has {name} \d"
        with Cluster(address) as far, pytest.raises(InputError, match=version):
            open_rows(shards, far)
    (other / "__init__.py").write_text("raise ImportError('no such library')\n")
    _, address = remote(PYTHONPATH=str(other.parent))
    with Cluster(address) as far, pytest.raises(InputError, match="cannot run rpml: no such"):
        open_rows(shards, far)


def test_no_workers_and_no_scheduler(monkeypatch):
    from rpml.distributed import Cluster, ClusterError, cluster
    from rpml.runtime.errors import InputError

    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    with pytest.raises(InputError, match="cannot reach a Dask scheduler"):
        Cluster("tcp://127.0.0.1:9")
    with (
        LocalCluster(n_workers=0, dashboard_address=None) as empty,
        Client(empty, set_as_default=False) as client,
        pytest.raises(ClusterError, match="has no workers"),
    ):
        Cluster(client).workers()


def test_tls_options_reach_dask(monkeypatch):
    from rpml.distributed import Cluster, cluster

    seen = {}

    class Refuse(Exception):
        pass

    def client(target, security, **rest):
        seen.update(target=target, security=security)
        raise Refuse

    monkeypatch.setattr(cluster, "_connect", client)
    with pytest.raises(Refuse):
        Cluster("tls://host:8786", security={"tls_ca_file": "ca.pem", "tls_client_cert": "c.pem"})
    assert seen["security"].require_encryption
    assert seen["security"].tls_ca_file == "ca.pem"


def test_no_workers_left(monkeypatch):
    monkeypatch.setattr(cluster_module, "_LOOK", 0.1)
    monkeypatch.setattr(cluster_module, "_ALONE", 0.3)
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as empty,
        Client(empty, set_as_default=False) as client,
    ):
        cluster = cluster_module.Cluster(client)
        task = cluster.submit(abs, -1)
        with pytest.raises(cluster_module.ClusterError, match=r"no workers for .* --resume"):
            cluster.value(task)
        with pytest.raises(cluster_module.ClusterError, match=r"no workers for .* --resume"):
            cluster.wait([task], Context(), "read")
