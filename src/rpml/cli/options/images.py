"""How images are described by a network, and how that is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rpml.cli import options as opt

if TYPE_CHECKING:
    from rpml.deep.finetune import Training
    from rpml.runtime.context import Json
    from rpml.vision.extract import Job, Recipe

IMAGES = opt.argument("IMAGES", "A folder, a .txt list of paths, or one image.")


@opt.option_group
class DescriptorOptions:
    """How an ONNX network describes an image."""

    sidecar: str | None = opt.text("FILE", "Input convention of the backbone; X.json or X.toml.")
    scales: str = opt.text(
        "PIXELS,...", "Longer side of the image; scales are summed.", default="512,362,256"
    )
    pool: str = opt.text("NAME", "rmac, mac, average or gem.", default="rmac")

    def recipe(self, **more: Any) -> Recipe:
        """Return the recipe of a descriptor; `more` are other fields of `Recipe`."""
        from rpml.vision.extract import Recipe
        from rpml.vision.pooling import Pooling

        scales = tuple(opt.parse_numbers("--scales", self.scales))
        return Recipe(scales, **{"pooling": Pooling(self.pool), **more})

    def job(self, path: str, workers: int | None) -> Job:
        from rpml.vision.backbone import Backbone
        from rpml.vision.extract import Execution, Job

        execution = Execution(workers)
        network = Backbone(path, self.sidecar, execution.threads()[1])
        return Job((), network, self.recipe(), execution)


@opt.option_group
class TrainingOptions:
    """How the upper blocks of a network are trained."""

    train_from: str | None = opt.text(
        "BLOCK", "First block that trains, or all; default: the last two."
    )
    size: int = opt.number("Height and width of the images.", minimum=32, default=224)
    views: int = opt.number("Augmented views per image.", minimum=0, default=8)
    epochs: int | None = opt.number("Passes over the images; default: 6.")
    learning_rate: float | None = opt.text(
        "RATE", "Learning rate of the upper blocks; default: the method's."
    )
    bf16: bool = opt.flag("Run convolutions in bfloat16.", "--bf16")
    schedule: str = opt.text(
        "NAME", "common, or paper: as long as each paper trains (for a GPU).", default="common"
    )

    def training(self, dim: int, pool: str, settings: Json) -> Training:
        """Return the settings of a run; `settings` are other fields of the schedule."""
        from rpml.deep.finetune import Training
        from rpml.deep.inputs import ImageSpec
        from rpml.deep.trainer import Schedule, check_free
        from rpml.vision.images import Views

        changed = {"epochs": self.epochs, "learning_rate": self.learning_rate, **settings}
        changed = {name: value for name, value in changed.items() if value is not None}
        check_free(self.schedule, changed)
        image_spec = ImageSpec(self.size, Views(self.views))
        return Training(dim, pool, self.bf16, image_spec, Schedule(**changed), self.schedule)


def require_torch() -> None:
    from rpml.runtime.errors import require

    require("torch", "deep", "training a network")
    require("pytorch_metric_learning", "deep", "training a network")
