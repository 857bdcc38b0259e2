"""A Dask cluster as used by the stages: tasks, reductions, progress and error messages."""

import logging
import operator
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeAlias

import dask
from distributed import Client, Future, LocalCluster, Security, as_completed
from distributed.client import FutureCancelledError
from distributed.comm.core import CommClosedError
from distributed.scheduler import KilledWorker
from threadpoolctl import threadpool_limits

from rpml.runtime.context import Context, Progress
from rpml.runtime.errors import InputError, first_line

Task: TypeAlias = "Future[Any]"
"""A task or its result, on the workers."""

_FAN_IN = 8  # partial results added in one task
_PATIENCE = 10  # seconds to wait for a scheduler
_LOOK = 5.0  # seconds between checks that there are workers
_ALONE = 60.0  # seconds without workers before a fit gives up; restarting takes a few
_DEATHS = 12  # workers that may die over one task, by chance, before it is given up
# Evaluated on every worker, whatever it runs: functions of this rpml may not exist there.
_VERSIONS = """{
    "Python": ".".join(__import__("platform").python_version_tuple()[:2]),
    "numpy": __import__("numpy").__version__,
    "rpml": __import__("rpml").__version__,
}"""
# labels are one number per row and go through the scheduler
_QUIET = {"distributed.admin.large-graph-warning-threshold": "16GB"}


class ClusterError(RuntimeError):
    """The cluster failed, not the data; the message says what was lost and how to continue."""


class Cluster:
    """A connection to a Dask cluster, or a local cluster of worker processes.

    Parameters
    ----------
    target : None, str, Client or Dask cluster, default=None
        None starts worker processes on this machine and ends them on `close`; a string is the
        address of a scheduler (``tcp://host:8786``, ``tls://host:8786``).
    workers, threads : int, default=None
        Processes of a local cluster, and threads per process.
    memory_limit : str or int, default="auto"
        Memory per worker of a local cluster, such as ``"3GB"``; beyond it Dask spills to disk.
    security : mapping or distributed.Security, default=None
        TLS: ``tls_ca_file``, ``tls_client_cert``, ``tls_client_key``, as Dask names them.
    """

    def __init__(
        self,
        target: object = None,
        *,
        workers: int | None = None,
        threads: int | None = None,
        memory_limit: str | int = "auto",
        security: Mapping[str, object] | Security | None = None,
    ) -> None:
        if security is not None and not isinstance(security, Security):
            security = Security(require_encryption=True, **security)
        self._local: LocalCluster | None = None
        self._own = not isinstance(target, Client)
        if target is None:
            target = self._local = _start(workers, threads, memory_limit)
        self.client = target if isinstance(target, Client) else _connect(target, security)
        self.address = str(self.client.scheduler.address)  # type: ignore[union-attr]
        self.stage = "start"
        self._same_version: set[str] = set()

    @property
    def dashboard(self) -> str:
        """Address of Dask's dashboard."""
        return str(self.client.dashboard_link)

    def workers(self) -> dict[str, int]:
        """Return the address and threads of every current worker, in a fixed order."""
        with self.failures():
            threads = self.client.nthreads()
        if not threads:
            raise ClusterError(f"the scheduler {self.address} has no workers: start some")
        if self._local is None:
            self._check_versions([w for w in threads if w not in self._same_version])
        return dict(sorted(threads.items()))

    def _check_versions(self, workers: list[str]) -> None:
        """Raise InputError for workers whose results would not be those of this process."""
        here = eval(_VERSIONS)
        with self.failures():
            there = self.client.run(eval, _VERSIONS, workers=workers, on_error="return")
        for worker, versions in there.items():
            if isinstance(versions, Exception):
                raise InputError(f"the worker {worker} cannot run rpml: {first_line(versions)}")
            for name, version in here.items():
                if versions[name] != version:
                    raise InputError(
                        f"the worker {worker} has {name} {versions[name]}, this process has "
                        f"{name} {version}: install the same versions on all machines"
                    )
        self._same_version |= there.keys()

    def submit(self, work: Callable[..., Any], *arguments: object) -> Task:
        """Submit a task; arguments that are tasks are replaced by their results.

        Every task is a pure function of its arguments, so that Dask can recompute what a dead
        worker held. Dask chooses the worker: a task tied to one, even loosely, would wait forever
        once all the workers of that time have died.
        """
        with self.failures(), dask.config.set(_QUIET):
            return self.client.submit(work, *arguments, key=_key(work), pure=False)

    def each(
        self, work: Callable[..., Any], /, *columns: Sequence[object], **shared: Any
    ) -> list[Task]:
        """Submit a task for every row of the columns, in one message to the scheduler."""
        keys = [f"{_key(work)}-{i}" for i in range(len(columns[0]))]
        with self.failures(), dask.config.set(_QUIET):
            return list(self.client.map(work, *map(list, columns), key=keys, pure=False, **shared))

    def values(self, tasks: Sequence[Task]) -> list[Any]:
        """Return the results of several tasks on the client; for small results only."""
        self.wait(tasks, Context(), self.stage)
        with self.failures():
            return list(self.client.gather(list(tasks)))

    def hold(self, value: object) -> Task:
        """Put a value on the workers; unlike scattered data it survives a dead worker."""
        return self.submit(_same, value)

    def item(self, future: Task, place: int) -> Task:
        """Return one element of a task's result, so that only this element is moved."""
        return self.submit(operator.getitem, future, place)

    def total(self, parts: Sequence[Task], add: Callable[..., Any]) -> Task:
        """Combine partial results in a tree of fixed order, so that sums are reproducible."""
        level = list(parts)
        while len(level) > 1:
            groups = [level[i : i + _FAN_IN] for i in range(0, len(level), _FAN_IN)]
            level = [self.submit(add, group) for group in groups]
        return level[0]

    def value(self, future: Task) -> Any:
        """Return the result of a task on the client; for small results only."""
        return self.values([future])[0]

    def wait(self, futures: Sequence[Task], context: Context, stage: str) -> None:
        """Wait for tasks and report how many are finished; raise the first failure."""
        self.stage = stage
        context.report(Progress(stage, 0, len(futures)))
        left = set(futures)

        def watch(timeout: float) -> None:
            for future in as_completed(list(left), loop=self.client.loop, timeout=timeout):
                if future.status != "finished":
                    future.result()
                left.discard(future)
                context.report(Progress(stage, len(futures) - len(left), len(futures)))

        with self.failures():
            self._patiently(watch)

    def _patiently(self, attempt: Callable[[float], object]) -> Any:
        """Retry with a timeout until it succeeds; ClusterError after a minute without workers."""
        seen = time.monotonic()
        while True:
            try:
                return attempt(_LOOK)
            except TimeoutError:
                if self._local is not None:  # a worker killed during its start is not restarted
                    self._local.scale(len(self._local.worker_spec))
                if self.client.nthreads():
                    seen = time.monotonic()
                elif time.monotonic() - seen > _ALONE:
                    raise ClusterError(
                        f"stage {self.stage!r}: the scheduler {self.address} has had no workers "
                        f"for {_ALONE:.0f} seconds; finished stages are in the checkpoint, start "
                        "some and fit again with --resume"
                    ) from None

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Turn failures of the cluster into a ClusterError of one sentence."""
        try:
            yield
        except KilledWorker as error:
            raise ClusterError(
                f"stage {self.stage!r}: {error.allowed_failures + 1} workers died over one "
                "partition, most likely beyond their memory limit: give each worker more memory "
                "(--memory-limit) or make the partitions smaller (--partition-rows)"
            ) from error
        except (FutureCancelledError, CommClosedError, TimeoutError) as error:
            raise ClusterError(
                f"stage {self.stage!r}: the Dask scheduler {self.address} was lost; finished "
                "stages are in the checkpoint, start a scheduler and fit again with --resume"
            ) from error

    def close(self) -> None:
        """Disconnect, and stop the workers that were started here."""
        if self._own:
            self.client.close()
        if self._local is not None:
            self._local.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _start(workers: int | None, threads: int | None, memory_limit: str | int) -> LocalCluster:
    with dask.config.set({"distributed.scheduler.allowed-failures": _DEATHS}):
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=memory_limit,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,  # failures are raised here
            preload=[__name__],  # calls `dask_setup` in every worker
        )


def dask_setup(worker: object) -> None:
    """Prepare a worker of this machine, whose tasks run in as many threads as it may use.

    It ignores Ctrl-C, which the terminal sends to it too: the client ends it.
    """
    threadpool_limits(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _connect(target: object, security: Security | None) -> Client:
    try:
        return Client(target, security=security, timeout=_PATIENCE, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise InputError(f"cannot reach a Dask scheduler at {target}: {error}") from error


def _key(work: Callable[..., Any]) -> str:
    """Return a new key; the dashboard shows the letters before the number."""
    return f"rpml-{work.__name__.replace('_', '')}-{uuid.uuid4().hex}"


def _same(value: object) -> Any:
    return value
