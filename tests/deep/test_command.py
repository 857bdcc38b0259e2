"""rpml finetune and rpml benchmark --deep on tiny images and a tiny network."""

import json
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from torch import nn

from rpml.cli.app import app
from rpml.cli.console import Reporter
from rpml.deep import backbones, finetune
from rpml.deep.backbones import read_weights
from tests.cli.json_schema import check_fields

SMALL = ["--size", "32", "--dim", "4", "--views", "1", "--epochs", "2", "-q", "--threads", "1"]


def tiny(path=None):
    """Stands for GoogLeNet: the command line knows no other file."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        blocks = OrderedDict(
            stem=nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU()),
            middle=nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()),
            top=nn.Sequential(nn.Conv2d(8, 12, 3, padding=1), nn.ReLU()),
        )
        return nn.Sequential(blocks).eval()


@pytest.fixture
def tiny_backbone(monkeypatch, network_file):
    monkeypatch.setattr(backbones, "load_googlenet", tiny)
    return network_file


@pytest.fixture
def network_file(tmp_path):
    """The same network as an ONNX file, for the commands that run it."""
    path = tmp_path / "tiny.onnx"
    axes = {0: "n", 2: "h", 3: "w"}
    torch.onnx.export(
        tiny(), (torch.zeros(1, 3, 32, 32),), str(path), input_names=["image"],
        output_names=["feature_map"], dynamic_axes={"image": axes, "feature_map": axes},
        dynamo=False,
    )  # fmt: skip
    return path


def invoke(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


def test_finetune_then_features(tiny_backbone, photos, tmp_path):
    out = tmp_path / "trained.onnx"
    args = ["finetune", photos / "train", "--backbone", tiny_backbone, "-o", out, *SMALL]
    done = invoke(*args, "--json")
    assert done.exit_code == 0, done.stderr
    fields = json.loads(done.stdout)
    check_fields("finetune", fields)
    assert (fields["images"], fields["epochs"], fields["dim"]) == (24, 2, 4)
    assert not (tmp_path / "trained.onnx.work").exists()
    features = tmp_path / "z.npy"
    done = invoke("features", photos / "test", "--backbone", out, "-o", features, "-q")
    assert done.exit_code == 0, done.stderr
    Z = np.load(features)
    assert Z.shape == (12, 4)
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1, rtol=1e-4)


def test_the_file_embeds_as_the_trained_network_does(tiny_backbone, photos, tmp_path):
    from rpml.deep.embedder import descriptors
    from rpml.deep.finetune import Training, prepare, write_onnx
    from rpml.deep.inputs import ImageSpec, open_inputs
    from rpml.deep.methods import METHODS
    from rpml.deep.trainer import Schedule, Trainer
    from rpml.runtime.context import Context
    from rpml.vision.backbone import Backbone, Convention
    from rpml.vision.images import Views, find_images

    convention = Convention(color="BGR", white=2.0, mean=(0.3, 0.4, 0.5), std=(0.5, 1.0, 2.0))
    takes = backbones.InputConvention(convention)
    network = replace(backbones.open_network(tiny(), "middle"), input=takes)
    schedule = Schedule(epochs=1, batch_size=12, learning_rate=1e-3)
    training = Training(4, image_spec=ImageSpec(32, Views(1)), schedule=schedule)
    files = find_images(photos / "train")
    start, inputs, frozen = prepare(files, network, training, tmp_path / "train", Context())
    trainer = Trainer(start, inputs, METHODS["srpml"], schedule, frozen)
    embedder = trainer.run()
    assert len(trainer.history) == 1
    cache = open_inputs(
        find_images(photos / "test"), network, ImageSpec(32, Views()), tmp_path / "te"
    )
    expected = descriptors(embedder, cache)
    write_onnx(network, embedder, 32, tmp_path / "x.onnx")
    opened = Backbone(tmp_path / "x.onnx")
    assert opened.fixed_size == (32, 32)
    tiles = [ImageSpec(32, Views()).tiles(file)[0] for file in find_images(photos / "test")]
    found = opened(np.stack(tiles)).reshape(len(tiles), -1)
    np.testing.assert_allclose(found, expected, atol=5e-3)


def test_the_whole_network_trains_on_the_budget_of_the_paper(
    tiny_backbone, photos, tmp_path, monkeypatch
):
    from dataclasses import replace

    from rpml.deep.methods import METHODS

    monkeypatch.setitem(METHODS, "srpml", replace(METHODS["srpml"], budget=(3, 12)))
    out = tmp_path / "trained.onnx"
    words = ["--size", "32", "--dim", "4", "--views", "1", "--json", "-q", "--threads", "1"]
    words += ["--train-from", "all", "--schedule", "paper"]
    args = ["finetune", photos / "train", "--backbone", tiny_backbone, "-o", out, *words]
    done = invoke(*args)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["epochs"] == 3
    trained = read_weights(out)
    first = tiny().stem[0].weight.detach().numpy()
    found = [w for w in trained.values() if w.shape == first.shape]
    assert len(found) == 1
    assert (found[0] != first).any()  # six small steps, averaged over a thousand
    refused = invoke(*args, "--epochs", "2", "--force")
    assert refused.exit_code == 2
    assert "epochs is set by the schedule of the papers" in refused.stderr


def test_bf16_is_accepted_and_emulation_warns(tiny_backbone, photos, tmp_path, monkeypatch):
    args = ["finetune", photos / "train", "--backbone", tiny_backbone, *SMALL[:-3], "--bf16"]
    for fast in (True, False):
        monkeypatch.setattr(finetune, "has_bf16", lambda fast=fast: fast)
        done = invoke(*args, "--threads", "1", "-o", tmp_path / f"{fast}.onnx")
        assert done.exit_code == 0, done.stderr
        assert ("faster without --bf16" in done.stderr) is not fast


def test_supervised_methods_need_folders(tiny_backbone, photos, tmp_path):
    args = ["finetune", photos / "train", "--backbone", tiny_backbone, *SMALL]
    done = invoke(*args, "-o", tmp_path / "x.onnx", "--method", "triplet")
    assert done.exit_code == 2
    assert "--folder-labels" in done.stderr
    done = invoke(*args, "-o", tmp_path / "x.onnx", "--method", "triplet", "--folder-labels")
    assert done.exit_code == 0, done.stderr


MISTAKES = {
    "--method absent": "there is no method 'absent'",
    "--train-from absent": "no block 'absent'",
    "--set absent=1": "no setting 'absent'",
    "--epochs 2 --set epochs=3": "--epochs sets the same",
    "--dim 4000": "ask for fewer dimensions",
    "--pool absent": "mac, average, gem",
    "--schedule absent": "common, paper",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_are_explained_in_one_sentence(tiny_backbone, photos, tmp_path, words):
    args = ["finetune", photos / "train", "--backbone", tiny_backbone, "-o", tmp_path / "x.onnx"]
    done = invoke(*args, *SMALL, *words.split())
    assert done.exit_code == 2, done.output
    assert MISTAKES[words] in done.stderr
    assert not (tmp_path / "x.onnx").exists()


def test_the_output_is_an_onnx_file_and_is_not_replaced(tiny_backbone, photos, tmp_path):
    args = ["finetune", photos / "train", "--backbone", tiny_backbone, *SMALL, "-o"]
    assert "something.onnx" in invoke(*args, tmp_path / "x.pt").stderr
    (tmp_path / "x.onnx").write_bytes(b"mine")
    done = invoke(*args, tmp_path / "x.onnx")
    assert done.exit_code == 2
    assert (tmp_path / "x.onnx").read_bytes() == b"mine"


def test_a_resumed_run_gives_the_bytes_of_an_undisturbed_one(
    tiny_backbone, photos, tmp_path, monkeypatch
):
    args = ["finetune", photos / "train", "--backbone", tiny_backbone, *SMALL]
    args += ["--set", "batch_size=12", "-o"]
    assert invoke(*args, tmp_path / "whole.onnx").exit_code == 0

    def interrupt(reporter, event):
        if event.stage == "train":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Reporter, "__call__", interrupt)
        assert invoke(*args, tmp_path / "cut.onnx").exit_code == 130
    assert (tmp_path / "cut.onnx.work").is_dir()
    for message in ("seconds", "is already complete"):
        assert message in invoke(*args, tmp_path / "cut.onnx", "--resume").stdout
    assert (tmp_path / "cut.onnx").read_bytes() == (tmp_path / "whole.onnx").read_bytes()
    assert not (tmp_path / "cut.onnx.work").exists()


def test_benchmark_deep(tiny_backbone, photos, tmp_path):
    done = invoke(
        "benchmark", "folders", "--root", photos, "--backbone", tiny_backbone, "-o",
        tmp_path / "out", "--deep", "srpml,triplet", "--methods", "raw", "--scales", "32",
        "--size", "32", "--dim", "4", "--views", "1", "--epochs", "1", "--no-figures", "-q",
        "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    fields = json.loads(done.stdout)
    check_fields("benchmark", fields)
    rows = fields["measured"]
    found = {row["method"]: row["uses_labels"] for row in rows}
    assert found == {
        "raw": False, "deep-frozen": False, "deep-srpml": False, "deep-triplet": True,
    }  # fmt: skip
    text = (tmp_path / "out" / "results.md").read_text()
    assert "sRPML, end to end" in text
    assert [line.split("|")[-3].strip() for line in text.splitlines() if "end to end" in line] == [
        "no", "yes",
    ]  # fmt: skip


def test_benchmark_deep_needs_images(tmp_path):
    np.savez(
        tmp_path / "f.npz", X=np.zeros((4, 2)), y=[0, 0, 1, 1], train=[True, True, False, False]
    )
    done = invoke("benchmark", "folders", "--features", tmp_path / "f.npz", "--deep", "srpml",
                  "-o", tmp_path / "out")  # fmt: skip
    assert done.exit_code == 2
    assert "--root and --backbone" in done.stderr


def test_no_sidecar_of_another_network_is_left_next_to_the_new_one(
    tiny_backbone, photos, tmp_path, monkeypatch
):
    """It would be read as the input convention of the new one."""
    out, sidecar = tmp_path / "t.onnx", tmp_path / "t.json"
    args = ["finetune", photos / "train", "--backbone", tiny_backbone, "-o", out, *SMALL]
    sidecar.write_text("mine")
    for more in ([], ["--force"]):
        done = invoke(*args, *more)
        assert done.exit_code == 2
        assert "t.json is in the way" in done.stderr
    assert sidecar.read_text() == "mine"
    sidecar.unlink()

    def planting(*inputs):
        sidecar.write_text("mine")
        return prepare(*inputs)

    prepare = finetune.prepare
    monkeypatch.setattr(finetune, "prepare", planting)
    done = invoke(*args)
    assert done.exit_code == 2
    assert sidecar.read_text() == "mine"
    assert not out.exists()
