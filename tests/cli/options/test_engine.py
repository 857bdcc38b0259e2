import logging

import pytest

from rpml.cli.command import Console
from rpml.cli.options.reading import EngineOptions

distributed = pytest.importorskip("distributed")


class FakeCluster:
    """A cluster whose scheduler is lost when it closes."""

    dashboard = "nowhere"

    def __init__(self, *args, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        logging.getLogger("distributed.client").error("lost")
        logging.getLogger("asyncio").error("lost")

    def workers(self):
        return {"a": 1}


def test_a_lost_scheduler_logs_no_traceback(monkeypatch, caplog):
    monkeypatch.setattr("rpml.distributed.Cluster", FakeCluster)
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "asyncio")]
    before = [logger.level for logger in loggers]
    with EngineOptions("dask").cluster(Console(quiet=True)):
        assert not any(logger.isEnabledFor(logging.ERROR) for logger in loggers)
    assert caplog.records == []
    assert [logger.level for logger in loggers] == before
