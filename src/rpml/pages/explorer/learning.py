"""Training again with the labels assigned so far, in the background."""

import logging
import threading
import warnings

import numpy as np
from sklearn.base import clone

from rpml.estimator import RPML
from rpml.evaluation.metrics import first_hit_rank
from rpml.pages.explorer.catalog import Catalog
from rpml.pages.explorer.index import ExactIndex
from rpml.pages.explorer.labeling import LabelStore
from rpml.pages.layout import layout, quantized
from rpml.runtime.context import Progress
from rpml.runtime.errors import InputError
from rpml.runtime.intervals import Interval, interval, paired
from rpml.runtime.rows import Array

logger = logging.getLogger(__name__)
MIN_LABELED = 4


class Learner:
    """Fits a copy of the model with the labels; the result becomes the space "learned"."""

    def __init__(self, catalog: Catalog, X: Array, store: LabelStore) -> None:
        self.catalog, self.X, self.store = catalog, X, store
        self.state, self.stage, self.share, self.message = "idle", "", 0.0, ""
        self.recall: dict[str, Interval] = {}
        self.n_labeled = 0
        self._cancelled = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start a fit, unless one is running."""
        if self.state == "working":
            raise InputError("the model is being fitted already")
        labels = np.array(self.store.labels, object)
        labeled = [label for label in labels if label is not None]
        if len(labeled) < MIN_LABELED or len(set(labeled)) < 2:
            raise InputError(f"label at least {MIN_LABELED} items of two classes first")
        self.state, self.stage, self.share, self.message = "working", "starting", 0.0, ""
        self._cancelled = False
        self._thread = threading.Thread(target=self._run, args=(labels,), daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stop at the next step and discard the fit."""
        self._cancelled = True

    def join(self) -> None:
        """Wait until the fit has ended."""
        if self._thread is not None:
            self._thread.join()

    def _report(self, progress: Progress) -> bool:
        self.stage, self.share = progress.stage, progress.done / max(1, progress.total)
        if self._cancelled:
            raise _CancelledError
        return False

    def _run(self, labels: np.ndarray) -> None:
        try:
            model: RPML = clone(self.catalog.model)
            model.set_params(use_labels=True, callback=self._report)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the page shows the result
                model.fit(self.X, labels)
            self.stage, self.share = "map", 0.0
            self._publish(model, labels)
        except _CancelledError:
            self.state = "idle"
        except Exception as error:  # reported by the page; searching still works
            logger.exception("learning again failed")
            self.state, self.message = "failed", f"{type(error).__name__}: {error}"
        else:
            self.state = "ready"

    def _publish(self, model: RPML, labels: np.ndarray) -> None:
        index = ExactIndex(model.transform(self.X))
        rows = np.flatnonzero([label is not None for label in labels])
        y = labels[rows].astype(str)
        indices = {"before": self.catalog.indices["rpml"], "after": index}
        hits = {name: first_hit_rank(s.rows[rows], y) < 1 for name, s in indices.items()}
        rng = np.random.default_rng(0)
        self.recall = {name: interval(of_queries, rng) for name, of_queries in hits.items()}
        self.recall["gain"] = paired(hits["after"], hits["before"], rng)
        self.n_labeled = len(rows)
        maps = self.catalog.maps.value
        if maps is not None:  # start from the current map, so that the two are comparable
            start = np.frombuffer(maps["rpml"], "<u2").reshape(-1, 2) / 65535
            points = layout(index.rows, np.random.default_rng(0), start.astype(np.float32))
            maps["learned"] = quantized(points).tobytes()
        self.catalog.add_model("learned", "RPML with your labels", model, index)


class _CancelledError(Exception):
    pass
