"""What the report and the explorer read: a model, vectors, and what their rows are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rpml.estimator import RPML
    from rpml.io.features import ReadOptions
    from rpml.pages.report.items import Items

Labels = Annotated[
    str | None,
    typer.Option("--labels", metavar="Y", help="What each row is, to measure and to colour."),
]
Images = Annotated[
    str | None,
    typer.Option("--images", metavar="DIR", help="Pictures of the rows, found by their ids."),
]
Ids = Annotated[
    str | None, typer.Option("--ids", metavar="FILE", help="One id a line, in row order.")
]


class Reading:
    """Model, vectors and what their rows are called, read and checked against each other."""

    def __init__(
        self,
        labels: str | None,
        images: str | None,
        ids: str | None,
        label_column: str | None = None,
        id_column: str | None = None,
    ) -> None:
        self.labels, self.images, self.ids = labels, images, ids
        self.label_column, self.id_column = label_column, id_column

    def excluded(self, features: str) -> tuple[str, ...]:
        """Columns of the features' own file that are labels."""
        return (self.label_column,) if self.label_column and self.labels == features else ()

    def load(self, model: str, features: str, options: ReadOptions) -> tuple[RPML, Any, Items]:
        """(model, vectors, items)."""
        from rpml.cli.models import check_features, load_model
        from rpml.io.features import open_features, read_labels
        from rpml.pages.report.items import make_items, read_ids

        fitted = load_model(model)
        source = open_features(features, options)
        check_features(fitted, source, model)
        data = source.load()
        n = len(data.values)
        names = data.ids if self.ids is None else read_ids(self.ids, n)
        y = None
        if self.labels is not None:
            y = read_labels(self.labels, n, data.ids, self.label_column, self.id_column)
        return fitted, data.values, make_items(n, names, y, self.images)
