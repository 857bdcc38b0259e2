"""Cars-196 in both of its published layouts."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rpml.io.datasets.image_sets import PUBLISHED, ImageSet, make_set
from rpml.runtime.context import Json
from rpml.runtime.errors import InputError

_WHOLE = "cars_annos.mat"
_DEVKIT = (("cars_train", "cars_train_annos.mat"), ("cars_test", "cars_test_annos_withlabels.mat"))


def read_cars(root: str | Path) -> ImageSet:
    """Read Cars-196: classes 1-98 for training, 99-196 for testing, whatever the original split.

    Layouts: cars_annos.mat with car_ims/; or cars_train/ and cars_test/ with
    cars_train_annos.mat and cars_test_annos_withlabels.mat, next to them or in devkit/.
    """
    for folder in (Path(root), Path(root) / "cars196", Path(root) / "stanford_cars"):
        if (folder / _WHOLE).is_file():
            records = _annotations(folder / _WHOLE, ("relative_im_path", "class"))
            rows = [(str(r["relative_im_path"]), int(r["class"])) for r in records]
        elif (folder / _DEVKIT[0][0]).is_dir():
            rows = list(_devkit(folder))
        else:
            continue
        return make_set("Cars-196", folder, rows, PUBLISHED["cars"])
    raise InputError(
        f"{root} does not hold Cars-196: it needs {_WHOLE} with car_ims/, or cars_train/ and "
        "cars_test/ with their annotations"
    )


def _devkit(folder: Path) -> Iterator[tuple[str, int]]:
    for images, name in _DEVKIT:
        places = [place / name for place in (folder, folder / "devkit")]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise InputError(
                f"{folder} has {images}/ but {name} is neither there nor in devkit/: it holds the "
                "classes, and the test file without labels cannot stand for it"
            )
        for record in _annotations(path, ("fname", "class")):
            yield f"{images}/{record['fname']}", int(record["class"])


def _annotations(path: Path, fields: tuple[str, ...]) -> Iterator[Json]:
    """Yield the records of a MATLAB annotation file."""
    from scipy.io import loadmat

    try:
        records = loadmat(path, squeeze_me=True)["annotations"]
    except Exception as error:  # scipy raises anything on damaged files
        raise InputError(f"cannot read {path} as MATLAB annotations: {error}") from error
    missing = [name for name in fields if name not in (records.dtype.names or ())]
    if missing:
        raise InputError(f"{path}: the annotations have no field {missing[0]!r}")
    for record in np.atleast_1d(records):
        yield {name: record[name] for name in fields}
