"""The paper's protocol on one of its datasets, with results, a table and figures in a folder."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rpml.evaluation import protocol
from rpml.evaluation.metrics.retrieval import KS
from rpml.evaluation.protocol import DEFAULT_METHODS, LEARNED, Descriptors
from rpml.evaluation.registry import chosen_methods
from rpml.io.checkpoint import Checkpoint, fingerprint
from rpml.io.datasets.image_sets import ImageSet
from rpml.io.features import read_features
from rpml.io.manifest import check_folder, folder_outputs
from rpml.pages.figures import FigureOptions, draw_figures, pictures_of
from rpml.runtime.context import Context, Json, data_digest
from rpml.runtime.environment import versions
from rpml.runtime.errors import InputError, counted
from rpml.runtime.files import atomic_outputs, locked
from rpml.runtime.rows import Array
from rpml.runtime.schema import read_document
from rpml.runtime.threads import thread_count

if TYPE_CHECKING:
    from rpml.deep.finetune import DeepProtocol
    from rpml.vision.extract import Job

RESULTS, TABLE, FIGURES = "results.json", "results.md", "figures"


@dataclass(frozen=True)
class Benchmark:
    """Fit on the training classes of a dataset without labels and score the test classes.

    The folder holds results.json, results.md, the descriptors of the images, the figures and the
    finished methods. A second run, also after an interruption, reuses them.

    Parameters
    ----------
    dataset : {"cub", "cars", "sop", "folders"}
        Name of the dataset.
    folder : str or Path
        Created if it does not exist.
    dim : int, default=128
        Dimensions of the embeddings.
    seed : int, default=0
        Seed of the methods.
    whiten : int, default=None
        PCA-whiten the descriptors to this many dimensions first.
    methods : tuple of str, default=DEFAULT_METHODS
        Names of `rpml.evaluation.registry`.
    end_to_end : rpml.deep.finetune.DeepProtocol, default=None
        Also train the network.
    notes : mapping, default={}
        JSON values to store in results.json, such as the command.

    Examples
    --------
    >>> from rpml.evaluation.protocol import from_file
    >>> from rpml.io.features import ReadOptions
    >>> from rpml.pages.benchmark import Benchmark
    >>> data = from_file("cub", "cub.npz", ReadOptions())  # doctest: +SKIP
    >>> fields, lines = Benchmark("cub", "results").run(data)  # doctest: +SKIP
    """

    dataset: str
    folder: str | Path
    dim: int = 128
    seed: int = 0
    whiten: int | None = None
    methods: tuple[str, ...] = DEFAULT_METHODS
    end_to_end: DeepProtocol | None = None
    notes: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if Path(self.folder).exists() and not Path(self.folder).is_dir():
            raise InputError(f"{self.folder} is there and not a folder: choose another name")
        if self.dataset not in protocol.READERS:
            names = ", ".join(protocol.READERS)
            raise InputError(f"there is no dataset {self.dataset!r}: choose from {names}")
        chosen_methods(self.methods)

    def settings(self) -> Json:
        """Return everything that changes the results, as JSON values."""
        plain = {"dim": self.dim, "seed": self.seed, "whiten": self.whiten}
        return plain | ({"deep": self.end_to_end.settings()} if self.end_to_end else {})

    def describe(self, images: ImageSet, job: Job, context: Context | None = None) -> Descriptors:
        """Compute the descriptors of the dataset's images once and keep them in the folder.

        `job` has the network and the recipe; its files are those of the dataset.
        """
        from rpml.vision.extract import files_digest
        from rpml.vision.images import ImageFile
        from rpml.vision.resumable import ResumableExtraction

        files = [ImageFile(path, images.root / path) for path in images.paths]
        path = Path(self.folder, "features.npy")
        path.parent.mkdir(parents=True, exist_ok=True)
        written = ResumableExtraction(str(path), resume=True).extract(
            replace(job, files=files), context=context
        )
        if written.failures:
            warnings.warn(
                f"{counted(len(written.failures), 'image was', 'images were')} skipped, see "
                f"{path.parent}/features.failures.csv: these are not the published counts",
                stacklevel=2,
            )
        features, place = read_features(path), {name: i for i, name in enumerate(images.paths)}
        assert features.ids is not None
        rows = np.array([place[name] for name in features.ids])
        origin = {
            "dataset": images.name,
            "images": len(files),
            "files": files_digest(files),
            "backbone": {"name": job.backbone.path.name, **job.backbone.fingerprint()},
            "recipe": asdict(job.recipe),
            "left_out": len(written.failures),
        }
        return Descriptors(
            np.asarray(features.values),
            images.labels[rows],
            images.train[rows],
            origin,
            protocol.RECALL_AT.get(self.dataset, KS),
            tuple(images.root / images.paths[i] for i in rows),
        )

    def run(
        self,
        data: Descriptors,
        figures: bool = True,
        overwrite: bool = False,
        context: Context | None = None,
    ) -> tuple[Json, list[list[str]]]:
        """Measure the methods; write results.json, results.md and the figures.

        Returns the results as JSON values, and the cells of their table.

        Parameters
        ----------
        data : Descriptors
            From `describe` or `rpml.evaluation.protocol.from_file`.
        figures : bool, default=True
            Draw retrieval examples and the quad-grid, if the images are available.
        overwrite : bool, default=False
            Replace results of other data or settings.
        context : Context, default=None
            Receives progress.
        """
        folder, context = Path(self.folder), context or Context()
        if self.whiten is not None:
            data = data.whitened(self.whiten)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            return self._measure(data, figures and data.images is not None, overwrite, context)

    def _measure(
        self, data: Descriptors, figures: bool, overwrite: bool, context: Context
    ) -> tuple[Json, list[list[str]]]:
        folder = Path(self.folder)
        digest = data_digest(data.X, data.train.astype("u1"))
        key = fingerprint(digest, self.settings())
        replaces = overwrite or self._has_results(key)
        for path in (folder / RESULTS, folder / TABLE):
            if path.exists() and not replaces:
                raise InputError(
                    f"{path} is of other data or settings: choose another folder, or pass --force "
                    "(overwrite=True) to replace it"
                )
        if figures:
            check_folder(folder / FIGURES, True, ["map.png", "quad-grid.png"])
        store = Checkpoint(folder / f"cache-{key[:12]}", digest, self.settings(), resume=True)
        resumable = replace(context, store=store)
        rows, embeddings = protocol.run_methods(data, self.methods, self.dim, self.seed, resumable)
        if self.end_to_end is not None:
            more = self.end_to_end.run(folder / "deep", data.ks, context)
            rows, embeddings = rows + more[0], embeddings | more[1]
        published = protocol.published_rows(self.dataset)
        Z = embeddings[LEARNED if LEARNED in embeddings else rows[-1]["method"]]
        drawn = self._draw(data, Z, context) if figures else []
        fields = self._origin(data, key) | protocol.as_fields(rows, published) | {"figures": drawn}
        with atomic_outputs(folder / TABLE, replaces) as scratch:
            text = protocol.as_markdown(rows, published, data.ks)
            (scratch / TABLE).write_text(text, encoding="utf8")
            text = json.dumps(fields, indent=2, sort_keys=True, default=str) + "\n"
            (scratch / RESULTS).write_text(text, encoding="utf8")
        return fields, protocol.as_lines(rows, published, data.ks)

    def _has_results(self, key: str) -> bool:
        try:
            return bool(read_document(Path(self.folder, RESULTS)).get("fingerprint") == key)
        except (OSError, ValueError, AttributeError):
            return False

    def _draw(self, data: Descriptors, Z: Array, context: Context) -> list[str]:
        assert data.images is not None
        test = np.flatnonzero(~data.train)
        pictures = pictures_of([data.images[i] for i in test])
        options, folder = FigureOptions(random_state=self.seed), Path(self.folder, FIGURES)
        with context.reporting("figures"), folder_outputs(folder, overwrite=True) as scratch:
            drawn = draw_figures({LEARNED: Z}, scratch, data.labels[test], pictures, options)
        return [path.name for path in drawn]

    def _origin(self, data: Descriptors, key: str) -> Json:
        sides = {"train": data.train, "test": ~data.train}
        return {
            "dataset": self.dataset,
            **self.notes,
            "fingerprint": key,
            **self.settings(),
            "origin": data.origin,
            "rows": {name: int(side.sum()) for name, side in sides.items()},
            "classes": {n: len(set(data.labels[side].tolist())) for n, side in sides.items()},
            "threads": thread_count(),
            "versions": versions(),
        }
