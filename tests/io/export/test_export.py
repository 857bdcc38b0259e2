"""Each export, read back by the real library, gives what `transform` gives."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from rpml import RPML
from rpml.io.export import TARGETS, Affine, embedding_steps, export_model
from rpml.io.export.to_onnx import OPSET
from rpml.runtime.errors import InputError


def data(d=10):
    rng = np.random.default_rng(0)
    y = np.arange(150) % 6
    return (rng.normal(size=(6, d))[y] + 0.4 * rng.normal(size=(150, d)) + 1).astype(np.float32)


VARIANTS = {
    "default": {},
    "plain projection": {"normalize": False},
    "unscaled input": {"normalize_input": False},
    "as in the paper": {"whiten": None, "init": "random", "normalize": False},
    "no whitening": {"whiten": None},
}


@pytest.fixture(scope="module", params=VARIANTS)
def model(request):
    return RPML(4, n_neighbors=10, random_state=0, **VARIANTS[request.param]).fit(data())


@pytest.fixture
def rows():
    """New rows, with a zero row and huge and tiny ones among them."""
    X = np.random.default_rng(1).normal(size=(40, 10)).astype(np.float32)
    X[3] = 0
    return X


def apply_steps(steps, X):
    """The steps in numpy, one after the other."""
    for step in steps:
        if isinstance(step, Affine):
            X = (X if step.mean is None else X - step.mean) @ step.matrix
        else:
            norms = np.linalg.norm(X, axis=1, keepdims=True)
            X = X / np.where(norms > 0, norms, 1)  # a zero row stays zero
    return X


def test_steps_are_transform(model, rows):
    np.testing.assert_allclose(
        apply_steps(embedding_steps(model), rows.astype(np.float64)),
        model.transform(rows.astype(np.float64)),
        atol=1e-12,
    )


@pytest.mark.parametrize("size", [None, 1, 3])
def test_onnx(model, rows, tmp_path, size):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    path = export_model(model, "onnx", tmp_path / "m.onnx", n_components=size)
    assert onnx.load(path).opset_import[0].version == OPSET
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(["embedding"], {"features": rows})[0]
    np.testing.assert_allclose(found, prefix(model, rows, size), atol=1e-5)
    one = session.run(None, {"features": rows[:1]})[0]
    np.testing.assert_allclose(one, found[:1], atol=1e-6)


def test_onnx_does_not_overflow(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    fitted = RPML(4, n_neighbors=10, random_state=0).fit(data())
    path = export_model(fitted, "onnx", tmp_path / "m.onnx")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rows = np.float32([1e30, 1e-30])[:, None] * data()[:2]
    found = session.run(None, {"features": rows})[0]
    np.testing.assert_allclose(found, fitted.transform(rows), atol=1e-5)


def prefix(model, rows, size):
    found = model.transform(rows)[:, :size]
    if model.normalize:
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        found = found / np.where(norms > 0, norms, 1)
    return found


@pytest.mark.parametrize("size", [None, 2])
def test_faiss(model, rows, tmp_path, size):
    faiss = pytest.importorskip("faiss")
    path = export_model(model, "faiss", tmp_path / "m.index", n_components=size)
    index = faiss.read_index(str(path))
    index.add(rows)
    stored = faiss.downcast_index(index.index).reconstruct_n(0, len(rows))
    np.testing.assert_allclose(stored, prefix(model, rows, size), atol=1e-5)
    nearest = index.search(rows[10:20], 2)[1]
    assert nearest[:, 0].tolist() == list(range(10, 20))


@pytest.mark.parametrize("size", [None, 2])
def test_numpy_by_the_printed_loader(model, rows, tmp_path, size):
    path = export_model(model, "numpy", tmp_path / "m.npz", n_components=size)
    np.testing.assert_allclose(embed(path, rows), prefix(model, rows, size), atol=1e-5)


def embed(path, X):
    """The loader of docs/export.md."""
    with np.load(path) as steps:
        for name in sorted(steps.files):
            if name.endswith("unit"):
                X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)
            elif name.endswith("subtract"):
                X = X - steps[name]
            else:
                X = X @ steps[name]
    return X


def long_form(rows):
    return [(i, axis, float(v)) for i, row in enumerate(rows) for axis, v in enumerate(row)]


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("engine", ["sqlite3", "duckdb"])
def test_sql(model, rows, tmp_path, engine, size):
    path, rows = export_model(model, "sql", tmp_path / "m.sql", n_components=size), rows[:9]
    db = pytest.importorskip(engine).connect(":memory:")
    db.execute("CREATE TABLE rpml_input (id INTEGER, axis INTEGER, value DOUBLE PRECISION)")
    db.executemany("INSERT INTO rpml_input VALUES (?, ?, ?)", long_form(rows))
    (db.executescript if engine == "sqlite3" else db.execute)(path.read_text())
    found = db.execute("SELECT value FROM rpml_embedding ORDER BY id, axis").fetchall()
    expected = prefix(model, rows, size)
    np.testing.assert_allclose(np.reshape(found, expected.shape), expected, atol=1e-5)


WITH_NODE = """
import { embed } from "./m.mjs";
import { readFileSync } from "node:fs";
const rows = JSON.parse(readFileSync(0, "utf8"));
let refused = "";
try { embed([1, 2]); } catch (error) { refused = error.message; }
console.log(JSON.stringify({ found: rows.map((row) => [...embed(row)]), refused }));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
@pytest.mark.parametrize("size", [None, 2])
def test_js(model, rows, tmp_path, size):
    export_model(model, "js", tmp_path / "m.mjs", n_components=size)
    line = ["node", "--input-type=module", "-e", WITH_NODE]
    sent = json.dumps(rows.tolist())
    done = subprocess.run(line, cwd=tmp_path, input=sent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    np.testing.assert_allclose(answer["found"], prefix(model, rows, size), atol=1e-5)
    assert answer["refused"] == "10 features expected"


WITH_SENTENCE_TRANSFORMERS = """
import sys, numpy as np, torch
from sentence_transformers import SentenceTransformer
folder, rows, out = sys.argv[1:]
features = {"sentence_embedding": torch.from_numpy(np.load(rows))}
for module in SentenceTransformer(folder, device="cpu"):
    features = module(features)
np.save(out, features["sentence_embedding"].detach().numpy())
"""


def interpreter_with_sentence_transformers():
    """This Python, or the one of RPML_ST_PYTHON (torch is kept out of the test environment)."""
    for python in filter(None, [sys.executable, os.environ.get("RPML_ST_PYTHON")]):
        code = "import importlib.util as u, sys; sys.exit(not u.find_spec('sentence_transformers'))"
        if subprocess.run([python, "-c", code]).returncode == 0:
            return python
    pytest.skip("sentence-transformers is not installed (RPML_ST_PYTHON may name a Python with it)")
    return None


def test_sentence_transformers(model, rows, tmp_path):
    python = interpreter_with_sentence_transformers()
    path = export_model(model, "sentence-transformers", tmp_path / "modules")
    np.save(tmp_path / "rows.npy", rows)
    line = [python, "-c", WITH_SENTENCE_TRANSFORMERS, path, tmp_path / "rows.npy"]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([*map(str, line), str(tmp_path / "out.npy")], check=True, env=env)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), model.transform(rows), atol=1e-5)


def test_sentence_transformers_layout_without_the_library(model, rows, tmp_path):
    """The files themselves, read as the library reads them."""
    from safetensors.numpy import load_file

    path = export_model(model, "sentence-transformers", tmp_path / "modules")
    X = rows
    for module in json.loads((path / "modules.json").read_text()):
        folder = path / module["path"]
        if module["type"].endswith("Normalize"):
            X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
            continue
        config = json.loads((folder / "config.json").read_text())
        weights = load_file(folder / "model.safetensors")
        assert weights["linear.weight"].shape == (config["out_features"], config["in_features"])
        X = X @ weights["linear.weight"].T + weights.get("linear.bias", 0)
    np.testing.assert_allclose(X, model.transform(rows), atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_an_earlier_output_is_replaced_unless_asked_otherwise(model, tmp_path, target):
    export_model(model, target, tmp_path / "out")
    with pytest.raises(InputError, match="--force"):
        export_model(model, target, tmp_path / "out", overwrite=False)
    export_model(model, target, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_files_of_others_in_the_folder_stay(model, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    export_model(model, "sentence-transformers", tmp_path)
    export_model(model, "sentence-transformers", tmp_path)
    (tmp_path / "modules.json").write_text("mine")
    with pytest.raises(InputError, match=r"modules\.json exists"):
        export_model(model, "sentence-transformers", tmp_path)
    for name in ("thesis.tex", "modules.json"):
        assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    ("target", "name"),
    [("onnx", "x.faiss"), ("faiss", "x.onnx"), ("numpy", "x.rpml"), ("js", "x.csv")],
)
def test_names_of_other_kinds_are_refused(model, tmp_path, target, name):
    with pytest.raises(InputError, match=f"not the name of an export to {target}: it ends in"):
        export_model(model, target, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_wrong_target_and_size(model, tmp_path):
    with pytest.raises(InputError, match="must be one of"):
        export_model(model, "pickle", tmp_path / "out")
    with pytest.raises(InputError, match="the model has 1 to 4"):
        export_model(model, "numpy", tmp_path / "out", n_components=5)
    with pytest.raises(InputError, match="n_components='many'"):
        export_model(model, "numpy", tmp_path / "out", n_components="many")
    with pytest.raises(InputError, match="not fitted"):
        export_model(RPML(4), "numpy", tmp_path / "out")


@pytest.mark.parametrize("target", ["onnx", "faiss"])
def test_missing_library_names_the_extra(model, tmp_path, target, monkeypatch):
    monkeypatch.setitem(sys.modules, target, None)
    with pytest.raises(InputError, match=r"pip install 'rpml\[export\]'"):
        export_model(model, target, tmp_path / "out")
