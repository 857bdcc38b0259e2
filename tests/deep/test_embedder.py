"""Pooling and precision of the embedder."""

import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from rpml.deep.descriptors import descriptors
from rpml.deep.embedder import Embedder, Pool
from rpml.runtime.errors import InputError


def test_pooling():
    maps = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Pool("mac")(maps), maps.amax((2, 3)))
    torch.testing.assert_close(Pool("average")(maps), maps.mean((2, 3)))
    torch.testing.assert_close(Pool("gem")(maps), maps.pow(3).mean((2, 3)).pow(1 / 3))
    with pytest.raises(InputError, match="mac, average, gem"):
        Pool("rmac")


def test_half_precision_is_close(start, inputs):
    embedder, _ = start
    half = Embedder(embedder.upper, "mac", _whitening(embedder), embedder.projection.detach(), True)
    one, other = (descriptors(e, inputs, 0) for e in (embedder, half))
    assert (one * other).sum(1).min() > 0.98


def _whitening(embedder):
    from rpml.method.whitening.linear_map import Preprocessing

    return Preprocessing(True, embedder.mean.numpy(), embedder.matrix.numpy(), True)
