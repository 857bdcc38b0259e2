"""Labels assigned in the explorer: saved after every change, suggested, trained with."""

import csv
import io
import json
import logging
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from sklearn.base import clone

from rpml.estimator import RPML
from rpml.evaluation.metrics import first_hit_rank
from rpml.io.features.labels import UNLABELED
from rpml.io.features.text_files import without_mark
from rpml.method.knowledge.suggest import density, spread_out
from rpml.pages.explorer.answers import Query, RequestError, integer, write_csv
from rpml.pages.explorer.catalog import Catalog
from rpml.pages.explorer.index import ExactIndex
from rpml.pages.items import Items
from rpml.pages.layout import layout, quantized
from rpml.runtime.context import Json, Progress
from rpml.runtime.errors import InputError, explained, one_line
from rpml.runtime.files import atomic_output, check_output, locked
from rpml.runtime.intervals import interval, paired
from rpml.runtime.rows import Array, Indices, sorted_sample

logger = logging.getLogger(__name__)
HEADER = ["id", "label"]
MAX_LABEL = 200  # characters
MIN_LABELED = 4  # to learn again
MAX_BODY = 8 * 2**20
MAX_SUGGESTIONS = 50
DENSITY_ROWS = 2000


class LabelStore:
    """The labels of the items, changed in place, and the file that holds them.

    The file is a CSV table (id, label) of the labeled rows, as ``rpml fit --labels`` reads it;
    what a spreadsheet would take for a formula is marked (see `spreadsheet_safe`). It is replaced
    atomically, and never if another program has changed it. An existing file must be a table of
    labels of these items, or InputError is raised; its labels are loaded.
    """

    def __init__(self, items: Items, path: str | Path) -> None:
        self.labels: list[str | None] = list(items.labels or [None] * len(items))
        self.items, self.path = replace(items, labels=self.labels), Path(path)
        self._lock = threading.RLock()
        self.changes: list[dict[int, str | None]] = []
        """The labels before each change."""
        self.written = _content(self.path)
        """The bytes of the file, None before the first change in a new file."""
        if self.written is not None:
            self._set(_parse(self.written, self.path, items.ids))

    def counts(self) -> list[tuple[str, int]]:
        """Return labels and their numbers of rows, the most frequent first."""
        counts = Counter(label for label in self.labels if label is not None)
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))

    def rows_of(self, label: str) -> Indices:
        return np.flatnonzero([other == label for other in self.labels])

    def assign(self, rows: Sequence[int], label: str | None) -> int:
        """Label rows, or remove their labels with None; return how many rows changed."""
        text = None if label is None else one_line(label)
        if text is not None and (text in UNLABELED or len(text) > MAX_LABEL):
            raise InputError(f"a label must have 1 to {MAX_LABEL} characters and not be -1")
        with self._lock:
            before = {row: self.labels[row] for row in rows if self.labels[row] != text}
            if before:
                self._save(dict.fromkeys(before, text))
                self.changes.append(before)
            return len(before)

    def undo(self) -> int:
        """Undo the last change; return how many rows changed."""
        with self._lock:
            if not self.changes:
                return 0
            self._save(self.changes[-1])
            return len(self.changes.pop())

    def _set(self, changes: Mapping[int, str | None]) -> None:
        for row, label in changes.items():
            self.labels[row] = label

    def _save(self, changes: Mapping[int, str | None]) -> None:
        """Write the changed labels, then set them; if writing fails, nothing changes."""
        labels = {**dict(enumerate(self.labels)), **changes}
        lines = [{"id": self.items.ids[i], "label": x} for i, x in labels.items() if x is not None]
        content = write_csv(HEADER, lines, "\n").encode()
        with locked(self.path):  # no other explorer may write between the check and the write
            if _content(self.path) != self.written:
                raise InputError(
                    f"{self.path} was changed by another program: nothing was saved; start the "
                    "explorer again to take its labels over"
                )
            with atomic_output(self.path, self.written is not None) as temporary:
                temporary.write_bytes(content)
        self.written = content
        self._set(changes)


def check_labels_file(path: str | Path, inputs: Iterable[str | Path | None]) -> None:
    """Raise InputError, before any work, if the file is not a .csv file or is an input."""
    if Path(path).suffix != ".csv":
        raise InputError(f"--save-labels {path}: the name must end in .csv")
    check_output(path, True, inputs)


def _content(path: Path) -> bytes | None:
    """Return the bytes of the file, None if there is none; InputError if it cannot be read."""
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise InputError(f"{path} is no longer a regular file: labels cannot be saved in it")
    with explained(f"cannot read {path}"), suppress(FileNotFoundError):
        return path.read_bytes()
    return None


def _parse(content: bytes, path: Path, ids: Sequence[str]) -> dict[int, str | None]:
    """Return the labels of rows in a file; InputError if it is not a table of such labels."""
    refusal = f"{path} exists and is not a table of labels of these items: choose another file"
    rows = {name: row for row, name in enumerate(ids)}
    try:
        read = csv.reader(io.StringIO(content.decode(), newline=""))
        header, *lines = ([without_mark(field) for field in line] for line in read)
        labels: dict[int, str | None] = {rows[name]: label for name, label in lines}
    except (ValueError, KeyError, csv.Error) as error:
        raise InputError(refusal) from error
    if header != HEADER:
        raise InputError(refusal)
    if len(labels) < len(lines):
        raise InputError(f"{path} has two labels for one id: correct it, or choose another file")
    return {row: label for row, label in labels.items() if label not in UNLABELED}


class Labeling:
    """The page's operations on labels.

    Learning again fits a copy of the model with the labels; the result becomes the space "learned".
    """

    def __init__(self, catalog: Catalog, X: Array, store: LabelStore) -> None:
        self.catalog, self.X, self.store = catalog, X, store
        self._cancelled = False
        self._progress("idle")

    def _progress(self, state: str, stage: str = "", **result: object) -> None:
        self.fit: Json = {"state": state, "stage": stage, "share": 0.0, "message": "", **result}

    def summary(self, query: Query) -> Json:
        counts = self.store.counts()
        return {
            "file": self.store.path.name,
            "is_saved": self.store.written is not None,
            "n_labeled": sum(count for _, count in counts),
            "labels": [{"label": label, "count": count} for label, count in counts],
            "can_undo": bool(self.store.changes),
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
            rows, label = sent["rows"], sent.get("label")
            (label or "").encode()  # a lone surrogate is no text
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise wrong from None
        known = isinstance(rows, list) and all(
            type(row) is int and 0 <= row < len(self.catalog) for row in rows
        )
        if not known:
            raise RequestError(400, "rows must be row numbers of the features")
        return rows, label

    def undo(self, body: bytes) -> Json:
        return {"changed": self.store.undo(), **self.summary({})}

    def suggest(self, query: Query) -> Json:
        n = integer(query, "n", 10, 1, MAX_SUGGESTIONS)
        places = self.catalog.indices["rpml"].rows
        labeled = np.array([label is not None for label in self.store.labels])
        rows = spread_out(places, self._density, labeled, n)
        return {"items": [self.catalog.item(row) for row in rows.tolist()]}

    @cached_property
    def _density(self) -> Array:
        """How many rows surround each row."""
        places = self.catalog.indices["rpml"].rows
        sampled = sorted_sample(len(places), DENSITY_ROWS, np.random.default_rng(0))
        return density(places, places[sampled], np.ones(len(sampled), np.intp))

    def learn(self, body: bytes) -> Json:
        if self.fit["state"] == "working":
            raise InputError("the model is being fitted already")
        labels = np.array(self.store.labels, object)
        labeled = [label for label in labels if label is not None]
        if len(labeled) < MIN_LABELED or len(set(labeled)) < 2:
            raise InputError(f"label at least {MIN_LABELED} items of two classes first")
        self._progress("working", "starting")
        self._cancelled = False
        self.thread = threading.Thread(target=self._run, args=(labels,), daemon=True)
        self.thread.start()
        return self.fit

    def cancel(self, body: bytes) -> Json:
        """Stop the fit at its next step and discard it."""
        self._cancelled = True
        return self.fit

    def progress(self, query: Query) -> Json:
        return self.fit

    def _report(self, progress: Progress) -> bool:
        share = round(progress.done / max(1, progress.total), 3)
        self._progress("working", progress.stage, share=share)
        if self._cancelled:
            raise CancelledError
        return False

    def _run(self, labels: np.ndarray) -> None:
        try:
            model: RPML = clone(self.catalog.model)
            model.set_params(use_labels=True, callback=self._report)
            with warnings.catch_warnings(action="ignore"):  # the page shows the result
                model.fit(self.X, labels)
            self._progress("working", "map")
            recall = self._publish(model, labels)
        except CancelledError:
            self._progress("idle")
        except Exception as error:  # reported by the page; searching still works
            logger.exception("learning again failed")
            self._progress("failed", message=f"{type(error).__name__}: {error}")
        else:
            n_labeled = sum(label is not None for label in labels)
            self._progress("ready", recall=recall, n_labeled=n_labeled)

    def _publish(self, model: RPML, labels: np.ndarray) -> Json:
        """Show the new space next to the others; return Recall@1 before and after, and the gain."""
        index = ExactIndex(model.transform(self.X))
        rows = np.flatnonzero([label is not None for label in labels])
        y = labels[rows].astype(str)
        before, after = (
            first_hit_rank(space.rows[rows], y) < 1
            for space in (self.catalog.indices["rpml"], index)
        )
        rng = np.random.default_rng(0)
        recall = {"before": interval(before, rng), "after": interval(after, rng)}
        recall["gain"] = paired(after, before, rng)
        maps = self.catalog.maps.value
        if maps is not None:  # start from the current map, so that the two are comparable
            start = np.frombuffer(maps["rpml"], "<u2").reshape(-1, 2) / 65535
            points = layout(index.rows, np.random.default_rng(0), start.astype(np.float32))
            maps["learned"] = quantized(points).tobytes()
        self.catalog.add_model("learned", "RPML with your labels", model, index)
        return {name: asdict(share) for name, share in recall.items()}
