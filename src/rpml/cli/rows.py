"""What the report and the explorer read: a model, vectors, and what their rows show."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rpml.cli import options as opt

if TYPE_CHECKING:
    from rpml.estimator import RPML
    from rpml.pages.report.items import Items
    from rpml.runtime.rows import Array


@dataclass(frozen=True)
class ItemOptions:
    """Labels, images and ids of the rows."""

    labels: opt.Labels = None
    images: opt.Images = None
    ids: opt.Ids = None
    texts: opt.Texts = None

    def load(
        self,
        model: str,
        features: str,
        reading: opt.LabeledReadingOptions,
        dim: int | None = None,
    ) -> tuple[RPML, Array, Items]:
        """The model, the vectors and their items, checked against each other."""
        import numpy as np

        from rpml.estimator import check_features
        from rpml.pages.report.items import make_items, read_ids, read_texts

        fitted = opt.load_model(model, dim)
        labels = reading.labels_path(features, self.labels)
        source = reading.open(features, reading.excluded(features, labels))
        check_features(fitted, source, model)
        data = source.load()
        n = len(data.values)
        names = data.ids if self.ids is None else read_ids(self.ids, n)
        named = data if names is None else replace(data, ids=np.asarray(names))
        y = None if labels is None else reading.read_labels(labels, named, partial=True)
        texts = None if self.texts is None else read_texts(self.texts, n, named.ids)
        return fitted, data.values, make_items(n, names, y, self.images, texts)
