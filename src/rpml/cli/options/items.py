"""Inputs of the report and the explorer: models, vectors, and what their rows show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rpml.cli.options import common as opt
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from rpml.estimator import RPML
    from rpml.pages.items import Items
    from rpml.runtime.rows import Array


def short_names(paths: Sequence[str]) -> list[str]:
    """Return file names, or whole paths if the names are equal."""
    names = [Path(path).name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


@dataclass(frozen=True)
class ItemOptions:
    """Labels, images and ids of the rows."""

    labels: opt.Labels = None
    images: Annotated[str | None, opt.text("DIR", "Images of the rows, matched by id.")] = None
    ids: Annotated[str | None, opt.text("FILE", "One id per line, in row order.")] = None
    texts: Annotated[
        str | None, opt.text("FILE", "Texts: a .txt, a table, or a text column of FEATURES.")
    ] = None

    def load(
        self,
        models: Sequence[str],
        features: str,
        reading: opt.LabeledReadingOptions,
        dim: int | None = None,
    ) -> tuple[list[RPML], Array, Items]:
        """Load one or two models, the vectors and their items, checked against each other."""
        import numpy as np

        from rpml.estimator.features import check_features
        from rpml.pages.items import make_items, read_ids, read_texts

        if len(models) > 2:
            raise InputError(f"at most two models can be compared, {len(models)} were given")
        fitted = [opt.load_model(path, dim) for path in models]
        labels = reading.labels_path(features, self.labels)
        source = reading.open(features, reading.excluded(features, labels))
        checked = zip(fitted, models, strict=True)
        fitted = [check_features(model, source, path) for model, path in checked]
        data = source.load()
        n = len(data.values)
        names = data.ids if self.ids is None else read_ids(self.ids, n)
        named = data if names is None else replace(data, ids=np.asarray(names))
        y = None if labels is None else reading.read_labels(labels, named)
        texts = None if self.texts is None else read_texts(self.texts, n, named.ids, features)
        return fitted, data.values, make_items(n, names, y, self.images, texts)
