"""Does an update cost what the new rows cost?

python benchmarks/updates.py [--sizes 5000,20000,50000] [--new 1000]

Seconds of an update with new rows, with and without old rows at hand, against those of a fit of
the old rows. Rows of a mixture of 2000 Gaussians in 128 dimensions.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from copy import copy
from typing import Any

from common import publish
from generators import mixture

from rpml import RPML

DIM = 32
SETTINGS = {"training": "always", "random_state": 0}  # without training there is little to update


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return round(time.perf_counter() - start, 2)


def measure(n: int, new: int) -> dict[str, Any]:
    """A fit of the old rows, then an update of that model, twice."""
    X = mixture(n + new, centers=2000)
    models: list[RPML] = []
    fit = seconds(lambda: models.append(RPML(DIM, **SETTINGS).fit(X[:n])))
    twin = copy(models[0])
    return {
        "fit_of_old_rows": fit,
        "exemplars": len(twin.exemplars_.rows),
        "update_with_old_rows": seconds(lambda: models[0].update(X[n:], X[:n])),
        "update_without": seconds(lambda: twin.update(X[n:])),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sizes", default="5000,20000,50000")
    arguments.add_argument("--new", type=int, default=1000)
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    RPML(DIM, **SETTINGS).fit(mixture(2000)).update(mixture(500, seed=1), mixture(2000))
    results = {int(n): measure(int(n), given.new) for n in given.sizes.split(",")}
    publish("updates", {"new_rows": given.new, "by_old_rows": results})


if __name__ == "__main__":
    main()
