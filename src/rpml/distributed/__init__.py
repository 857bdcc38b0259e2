"""Fits on a Dask cluster, for vectors that do not fit on one machine.

>>> from rpml.distributed import DaskRPML  # doctest: +SKIP
>>> DaskRPML(64, random_state=0).fit("vectors/").save("model.rpml")  # doctest: +SKIP
"""

from rpml.runtime.errors import require

require("distributed", "distributed", "rpml.distributed")

from rpml.distributed.apply import embed, embedded, evaluate  # noqa: E402
from rpml.distributed.cluster import Cluster, ClusterError  # noqa: E402
from rpml.distributed.estimator import DaskRPML  # noqa: E402
from rpml.distributed.source import open_rows, read_columns  # noqa: E402

__all__ = [
    "Cluster",
    "ClusterError",
    "DaskRPML",
    "embed",
    "embedded",
    "evaluate",
    "open_rows",
    "read_columns",
]
