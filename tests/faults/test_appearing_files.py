"""Files of the user's that appear while a command is at work: not overwritten without --force."""

import importlib

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import rpml, shared, vectors  # noqa: F401
from tests.vision.conftest import tiny_network

IMAGES = "--backbone net.onnx --scales 32"
COMMANDS = [
    ("fit x.npy -o out.rpml --max-iter 2", "out.rpml", "rpml.estimator.rpml.RPML.fit"),
    ("fit x.npy -o out.rpml --max-iter 2 --resume", "out.rpml", "rpml.estimator.rpml.RPML.fit"),
    ("update model.rpml x.npy -o out.rpml", "out.rpml", "rpml.estimator.rpml.RPML.update"),
    ("bridge x.npy x.npy -o out.rpml", "out.rpml", "rpml.search.learn_bridge"),
    ("index model.rpml x.npy -o out.index", "out.index", "rpml.search.Index.add"),
    ("search x.index x.npy -o out.csv", "out.csv", "rpml.search.Index.search"),
    ("embed model.rpml x.npy -o out.npy", "out.npy", "rpml.io.features.writing.append_rows"),
    ("embed model.rpml x.npy -o out.npy", "out.ids.csv", "rpml.io.features.writing.append_rows"),
    ("embed model.rpml x.npy -o out/", "out/part-00000.npy",
     "rpml.io.features.writing.append_rows"),
    ("export model.rpml --to onnx -o out.onnx", "out.onnx", "rpml.io.export.embedding_steps"),
    ("export model.rpml --to sentence-transformers -o out", "out/modules.json",
     "rpml.io.export.embedding_steps"),
    ("cluster x.npy -o out.csv", "out.csv", "rpml.io.features.writing.write_lines"),
    ("compare x.npy -o out.json --methods pca", "out.json", "rpml.evaluation.comparison.compare"),
    ("report model.rpml x.npy -o out.html", "out.html", "rpml.pages.report.page.build_report"),
    ("figures x.npy -o out", "out/map.png", "rpml.pages.figures.linked_maps"),
    (f"features photos {IMAGES} -o out.npy", "out.npy", "rpml.vision.resumable.iter_parts"),
    (f"features photos {IMAGES} -o out.npy --folder-labels", "out.labels.csv",
     "rpml.vision.resumable.iter_parts"),
    (f"benchmark folders --root photos {IMAGES} --methods raw,pca --dim 2 -o out", "out/results.md",
     "rpml.evaluation.protocol.run_methods"),
]  # fmt: skip


@pytest.fixture
def place(shared, rpml, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    for name in ("model.rpml", "x.npy"):
        (tmp_path / name).write_bytes((shared / name).read_bytes())
    rpml("index", "model.rpml", "x.npy", "-o", "x.index")
    rng = np.random.default_rng(0)
    for i in range(12):
        path = tmp_path / "photos" / "abcd"[i % 4] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (32, 40, 3), np.uint8)).save(path)
    tiny_network(tmp_path / "net.onnx")
    return tmp_path


@pytest.mark.parametrize(("line", "name", "work"), COMMANDS)
@pytest.mark.filterwarnings("ignore")
def test_it_is_left_as_it_is(place, rpml, monkeypatch, line, name, work):  # noqa: F811
    owner, function = resolve(work)
    original = getattr(owner, function)

    def planting(*args, **options):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("mine")
        return original(*args, **options)

    monkeypatch.setattr(owner, function, planting)
    result = rpml(*line.split(), "-q", code=2)
    assert name in result.stderr or f"{place / 'out'} exists" in result.stderr
    assert (place / name).read_text() == "mine"


def resolve(dotted):
    """The module or class, and the name in it."""
    parts = dotted.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:-1]:
            owner = getattr(owner, part)
        return owner, parts[-1]
    raise AssertionError(dotted)
