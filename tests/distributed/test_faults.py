"""Workers die, run out of memory, the scheduler goes: the fit completes or says what to do."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from distributed import Client, LocalCluster

from rpml import RPML
from rpml.distributed import cluster as cluster_module
from rpml.io.checkpoint import Checkpoint
from rpml.runtime.context import Context

from .conftest import subspace_distance

SETTINGS = {
    "n_components": 4,
    "n_neighbors": 10,
    "training": "always",
    "max_iter": 12,
    "tol": 0.0,
    "random_state": 0,
}


class Killer:
    """SIGKILL to a worker, some time after a stage has begun; once a stage and fit."""

    def __init__(self, cluster, rng, stages, longest=0.2):
        self.cluster, self.rng, self.longest = cluster, rng, longest
        self.waiting, self.threads, self.killed = set(stages), [], []

    def __call__(self, progress):
        if progress.stage in self.waiting:
            self.waiting.discard(progress.stage)
            delay = self.longest * self.rng.random()
            thread = threading.Thread(target=self._kill, args=(delay, progress.stage))
            thread.start()
            self.threads.append(thread)

    def _kill(self, delay, stage):
        time.sleep(delay)
        pids = [w["pid"] for w in processes(self.cluster).values()]
        if pids:
            with_luck = int(self.rng.choice(pids))
            os.kill(with_luck, signal.SIGKILL)
            self.killed.append(stage)

    def join(self):
        for thread in self.threads:
            thread.join()


def processes(cluster):
    """Workers as the scheduler of this process knows them."""
    workers = cluster._local.scheduler.workers.values()
    return {w.address: {"pid": w.extra.get("pid") or pid_of(cluster, w)} for w in list(workers)}


def pid_of(cluster, worker):
    nanny = next(n for n in cluster._local.workers.values() if n.worker_address == worker.address)
    return nanny.pid


def fit(source, cluster, callback=None, **more):
    from rpml.distributed import DaskRPML

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DaskRPML(**SETTINGS, callback=callback)
        return model.fit(source, cluster=cluster, **more)


def local_fit(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RPML(**SETTINGS).fit(rows)


@pytest.fixture(scope="module")
def fragile():
    """A cluster of its own, so that no other test meets a dead worker."""
    from rpml.distributed import Cluster

    with Cluster(workers=2, threads=1, memory_limit="1GB") as started:
        yield started


def test_a_worker_killed_in_the_search_and_in_the_optimizer(fragile, rows, shards):
    from rpml.distributed import open_rows

    whole = local_fit(rows)
    killer = Killer(fragile, np.random.default_rng(0), {"neighbors", "optimize"})
    model = fit(open_rows(shards, fragile, partition_rows=300), fragile, killer)
    killer.join()
    assert sorted(killer.killed) == ["neighbors", "optimize"]
    np.testing.assert_array_equal(model.labels_, whole.labels_)
    assert subspace_distance(model.components_, whole.components_) < 1e-4


@pytest.mark.slow
def test_twenty_kills_at_random_moments(fragile, rows, shards):
    from rpml.distributed import open_rows

    stages = ("read", "whiten", "neighbors", "graph", "labels", "optimize")
    rng = np.random.default_rng(1)
    whole = local_fit(rows)
    killed = []
    while len(killed) < 24:
        killer = Killer(fragile, rng, rng.choice(stages, 3, replace=False), longest=1.0)
        model = fit(open_rows(shards, fragile, partition_rows=300), fragile, killer)
        killer.join()
        killed += killer.killed
        np.testing.assert_array_equal(model.labels_, whole.labels_)
        assert subspace_distance(model.components_, whole.components_) < 1e-4
    assert set(killed) == set(stages)


def test_a_task_beyond_the_memory_limit_says_what_to_change(monkeypatch):
    from rpml.distributed import Cluster, ClusterError, cluster

    monkeypatch.setattr(cluster, "_DEATHS", 0)
    with Cluster(workers=1, threads=1, memory_limit="300MB") as small:
        small.stage = "neighbors"
        with pytest.raises(ClusterError, match=r"'neighbors'.*memory limit.*--partition-rows"):
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


@pytest.mark.slow  # the client waits half a minute for a scheduler to come back
@pytest.mark.parametrize(("stage", "done"), [("graph", 0), ("optimize", 10)])
def test_a_lost_scheduler_is_said_and_the_fit_resumes(cluster, rows, shards, tmp_path, stage, done):
    from rpml.distributed import Cluster, ClusterError, open_rows

    script = tmp_path / "scheduler.py"
    script.write_text(SCHEDULER)
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )

    def lose(progress):
        if (progress.stage, progress.done) == (stage, done):
            os.killpg(process.pid, signal.SIGKILL)

    digest = open_rows(shards, cluster).digest(cluster)
    store = Checkpoint(tmp_path / "c", digest, SETTINGS)
    with (
        Cluster(process.stdout.readline().strip()) as remote,
        pytest.raises(ClusterError, match=rf"'{stage}'.*scheduler tcp://.* was lost.*--resume"),
    ):
        fit(shards, remote, lose, store=store)
    process.wait()
    store = Checkpoint(tmp_path / "c", digest, SETTINGS, resume=True)
    seen = []
    again = open_rows(shards, cluster, partition_rows=350)  # another cut than before
    model = fit(again, cluster, lambda p: seen.append((p.stage, p.done)), store=store)
    assert ("optimize", 11) in seen
    assert (("optimize", 10) not in seen) == (stage == "optimize")
    assert not any(name in ("neighbors", "keep") for name, _ in seen)
    assert any(name == "graph" for name, _ in seen) == (stage == "graph")
    np.testing.assert_array_equal(model.labels_, local_fit(rows).labels_)
    assert subspace_distance(model.components_, local_fit(rows).components_) < 1e-4


def test_no_workers_and_no_scheduler(monkeypatch):
    from distributed import Client, LocalCluster

    from rpml.distributed import Cluster, ClusterError, cluster

    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    with pytest.raises(ClusterError, match="cannot reach a Dask scheduler"):
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
            cluster.wait([task], Context(), "neighbors")


def test_a_damaged_part_of_the_graph_is_computed_again(shards, rows, cluster, tmp_path):
    from rpml.distributed import open_rows

    class Stop(Exception):
        pass

    def stop(progress):
        seen.append(progress.stage)
        if progress.stage == "labels":
            raise Stop

    digest = open_rows(shards, cluster).digest(cluster)
    for searches in (True, False):
        seen = []
        store = Checkpoint(tmp_path / "c", digest, SETTINGS, resume=True)
        with pytest.raises(Stop):
            fit(shards, cluster, stop, store=store)
        assert ("neighbors" in seen) == searches
    part = sorted((tmp_path / "c").glob("graph-*.safetensors"))[0]
    part.write_bytes(part.read_bytes()[:-5])
    store = Checkpoint(tmp_path / "c", digest, SETTINGS, resume=True)
    model = fit(shards, cluster, lambda progress: seen.append(progress.stage), store=store)
    assert "neighbors" in seen
    np.testing.assert_array_equal(model.labels_, local_fit(rows).labels_)
