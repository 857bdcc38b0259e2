"""rpml figures: the paper's figures of an image set."""

from pathlib import Path
from typing import Annotated

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console
from rpml.runtime.errors import InputError

EXAMPLES = """\b
Examples:
  rpml figures features.npy --images photos/ -o figures
  rpml figures features.npy --images photos/ --model model.rpml --labels labels.csv -o figures
\b
quad-grid.png: up to 2,500 images on a square grid, similar ones together. With --labels also
retrieval-successes.png and retrieval-failures.png: one query per row with its four nearest
images, framed green if they are of the query's class and red otherwise. A success has three or
four right, a failure at most one; there is one query per class, spread evenly over the classes.
"""


@command
def run(
    features: opt.FeaturesPath,
    images: Annotated[str, opt.text("DIR", "Folder that the ids are relative to.")],
    output: Annotated[str, opt.output("FOLDER", "Folder for the figures.")],
    model: Annotated[
        str | None, opt.text("MODEL", "Embed the features with this model first.")
    ] = None,
    labels: opt.Labels = None,
    queries: Annotated[int, opt.number("Queries per retrieval figure.")] = 8,
    most: Annotated[int, opt.number("Maximum number of images on the grid.")] = 2500,
    seed: opt.Seed = 0,
    force: opt.Force = False,
    *,
    reading: opt.LabeledReadingOptions,
    console: Console,
) -> None:
    """Draw retrieval examples and the quad-grid of images."""
    import numpy as np

    from rpml.estimator import check_features
    from rpml.pages.report.image_figures import draw_quad_grid, draw_retrievals, pictures_of
    from rpml.runtime.outputs import check_apart, check_output

    folder = Path(output)
    names = ("quad-grid", *(("retrieval-successes", "retrieval-failures") if labels else ()))
    targets = [folder / f"{name}.png" for name in names]
    check_apart(targets, [features, model, labels, images])
    for target in targets if folder.exists() else ():
        check_output(target, force)
    source = reading.open(features, reading.excluded(features, labels))
    fitted = opt.load_model(model) if model else None
    if fitted is not None:
        check_features(fitted, source, str(model))
    data = source.load()
    if data.ids is None:
        raise InputError(f"{features} has no ids, which name the images: use rpml features")
    paths = [image_path(images, str(name)) for name in data.ids]
    Z = np.asarray(data.values if fitted is None else fitted.transform(data.values))
    folder.mkdir(parents=True, exist_ok=True)
    written = targets[:1]
    if labels is not None:
        y = reading.read_labels(labels, data)
        written += draw_retrievals(Z, y, pictures_of(paths), folder, queries)
    draw_quad_grid(Z, pictures_of(paths), written[0], np.random.default_rng(seed), most)
    drawn = [str(path) for path in written]
    console.result({"figures": drawn}, "\n".join(drawn))


def image_path(folder: str, name: str) -> Path:
    """The image of an id, which must lie in the folder; ids come from a file of anybody's."""
    path = Path(folder, name.partition("#view")[0])
    if not path.resolve().is_relative_to(Path(folder).resolve()):
        raise InputError(f"the id {name!r} leads out of {folder}, the folder of --images")
    if not path.is_file():
        raise InputError(f"{path} does not exist: --images is the folder the ids start from")
    return path
