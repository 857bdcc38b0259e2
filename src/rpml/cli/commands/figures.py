"""rpml figures: the map, retrieval rows and the quad-grid, for papers."""

import re
from pathlib import Path

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import LabeledReadingOptions, load_model
from rpml.runtime.errors import InputError, require

EXAMPLES = """
  rpml figures features.npy --model model.rpml --labels labels.csv -o figures
  rpml figures features.npy --images photos/ --model model.rpml --labels labels.csv -o figures
  rpml figures features.npy --model model.rpml --format pdf,png --width 8.4cm --dpi 300 -o figures
\b
map: a point per row, the raw features and the model side by side, colored by --labels. With
--images also quad-grid: up to 2,500 images on a square grid, similar ones together. With both
also retrieval-successes and retrieval-failures: one query per line with its four nearest images
by the raw features and by the model, framed green if they are of the query's class and red
otherwise. A success has three or four right by the model, a failure at most one; there is one
query per class, spread evenly over the classes.
"""


@command
def run(
    *,
    features: str = opt.FEATURES,
    output: str = opt.output("FOLDER", "Folder for the figures."),
    images: str | None = opt.text("DIR", "Images of the rows, matched by id."),
    model: str | None = opt.text("MODEL", "Draw its embedding next to the raw features."),
    labels: str | None = opt.LABELS,
    formats: str = opt.text("NAMES", "pdf, svg, png, or several.", "--format", default="png"),
    width: str = opt.text("LENGTH", "Width: 3.3in, 8.4cm; a number is inches.", default="7in"),
    dpi: int = opt.number("Dots per inch of PNG, and of images in PDF and SVG.", default=200),
    queries: int = opt.number("Queries per retrieval figure.", default=8),
    most: int = opt.number("Maximum number of images on the grid.", default=2500),
    seed: int = opt.SEED,
    force: bool = opt.FORCE,
    reading: LabeledReadingOptions,
    console: Console,
) -> None:
    """Draw figures for papers.

    A map, retrieval examples and a grid of images.
    """
    from rpml.estimator.features import check_features
    from rpml.pages.figures import NAMES, FigureOptions, draw_figures, pictures_of
    from rpml.pages.items import match_images
    from rpml.runtime.files import check_apart, check_output

    require("matplotlib", "report", "rpml figures")
    kinds = tuple(opt.parse_names(formats) or ())
    options = FigureOptions(kinds, parse_length(width), dpi, queries, most, seed)
    labels = reading.labels_path(features, labels)
    folder = Path(output)
    targets = [folder / f"{name}.{kind}" for name in NAMES for kind in kinds]
    check_apart(targets, [features, model, labels, images])
    for target in targets if folder.exists() else ():
        check_output(target, force)
    source = reading.open(features, reading.excluded(features, labels))
    fitted = load_model(model) if model else None
    if fitted is not None:
        fitted = check_features(fitted, source, str(model))
    data = source.load()
    y = None if labels is None else reading.read_labels(labels, data)
    pictures = None
    if images is not None:
        ids = None if data.ids is None else list(map(str, data.ids))
        pictures = pictures_of(match_images(Path(images), ids, len(data.values)))
    spaces = {"raw features": data.values}
    if fitted is not None:
        spaces["RPML"] = fitted.transform(data.values)
    paths = draw_figures(spaces, folder, y, pictures, options, force)
    drawn = [str(path) for path in paths]
    console.result({"figures": drawn}, "\n".join(drawn))


def parse_length(text: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(in|cm|)\s*", text.lower())
    if match is None:
        raise InputError(f"--width must be a length such as 3.3in or 8.4cm, got {text!r}")
    return float(match[1]) / (2.54 if match[2] == "cm" else 1)
