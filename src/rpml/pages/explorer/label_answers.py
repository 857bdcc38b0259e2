"""Answers to the page's requests about labels: assign, undo, suggest, train again."""

import json
import re
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from rpml.method.knowledge.suggest import density, spread_out
from rpml.pages.explorer.answers import Answers, Query, RequestError, integer
from rpml.pages.explorer.labeling import LabelStore, Learner
from rpml.runtime.context import Json
from rpml.runtime.rows import Array, sorted_sample, unit_rows

MAX_BODY = 8 * 2**20
MAX_SUGGESTIONS = 50
DENSITY_ROWS = 2000


class LabelAnswers:
    """The page's operations on labels."""

    def __init__(self, answers: Answers, store: LabelStore, learner: Learner) -> None:
        self.answers, self.store, self.learner = answers, store, learner
        self._density: Array | None = None

    def summary(self, query: Query) -> Json:
        """Return the labels so far."""
        counts = self.store.counts()
        return {
            "file": self.store.path.name,
            "is_saved": self.store.is_saved,
            "n_labeled": sum(count for _, count in counts),
            "labels": [{"label": label, "count": count} for label, count in counts],
            "can_undo": self.store.can_undo,
        }

    def rows(self, query: Query) -> bytes:
        """Return the rows with a label, as little-endian 32-bit integers."""
        return self.store.rows_of(query.get("label", "")).astype("<u4").tobytes()

    def assign(self, body: bytes) -> Json:
        """Label rows: {"rows": [...], "label": text or null}."""
        rows, label = self._parse(body)
        return {"changed": self.store.assign(rows, label), **self.summary({})}

    def _parse(self, body: bytes) -> tuple[list[int], str | None]:
        wrong = RequestError(400, "labels are sent as JSON: rows and a label, or null for none")
        try:
            sent = json.loads(body)
        except (ValueError, RecursionError):
            raise wrong from None
        if not isinstance(sent, dict) or not isinstance(sent.get("rows"), list):
            raise wrong
        rows, label = sent["rows"], sent.get("label")
        if not all(type(r) is int and 0 <= r < len(self.answers.catalog) for r in rows):
            raise RequestError(400, "rows must be row numbers of the features")
        if not (label is None or isinstance(label, str)):
            raise wrong
        if label is not None and re.search("[\ud800-\udfff]", label):
            raise RequestError(400, "the label is not valid Unicode text")
        return rows, label

    def undo(self, body: bytes) -> Json:
        """Undo the last change."""
        return {"changed": self.store.undo(), **self.summary({})}

    def suggest(self, query: Query) -> Json:
        """Suggest unlabeled rows whose labels would help most."""
        n = integer(query, "n", 10, 1, MAX_SUGGESTIONS)
        places = self.answers.catalog.indices["rpml"].rows
        labeled = np.array([label is not None for label in self.store.labels])
        rows = spread_out(places, self._weights(places), labeled, n)
        return {"items": [self.answers.item(row) for row in rows.tolist()]}

    def _weights(self, places: NDArray[np.float32]) -> Array:
        """Return how many training rows surround each row; the same for every request."""
        if self._density is None:
            model = self.answers.catalog.model
            if not hasattr(model, "exemplar_vectors_"):  # use the rows of the page instead
                sampled = sorted_sample(len(places), DENSITY_ROWS, np.random.default_rng(0))
                centers, sizes = places[sampled], np.ones(len(sampled), np.intp)
            else:
                centers = unit_rows(model.transform(model.exemplar_vectors_)).astype(places.dtype)
                sizes = model.exemplars_.sizes
            self._density = density(places, centers, sizes)
        return self._density

    def learn(self, body: bytes) -> Json:
        """Start training again."""
        self.learner.start()
        return self.progress({})

    def cancel(self, body: bytes) -> Json:
        """Stop training."""
        self.learner.cancel()
        return self.progress({})

    def progress(self, query: Query) -> Json:
        """Return the progress and the results of training."""
        learner = self.learner
        return {
            "state": learner.state,
            "stage": learner.stage,
            "share": round(learner.share, 3),
            "message": learner.message,
            "recall": {name: asdict(share) for name, share in learner.recall.items()},
            "n_labeled": learner.n_labeled,
        }
