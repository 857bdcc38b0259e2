"""Pooling and precision of the embedder."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from rpml.deep.descriptors import descriptors
from rpml.deep.embedder import Embedder, Pool, linear_start
from rpml.estimator import RPML
from rpml.evaluation.metrics import recall_at_k
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


def test_linear_start_learns_from_how_views_differ():
    rng = np.random.default_rng(0)
    n_images, n_views = 200, 4
    images = rng.normal(size=(n_images, 1, 24))
    nuisance = rng.normal(size=(n_images, n_views, 8)) * 3  # differs between views of an image
    shown = images + 0.3 * rng.normal(size=(n_images, n_views, 24))
    frozen = np.concatenate([nuisance, shown], axis=2).astype(np.float32)
    by_views = linear_start(frozen, 8, seed=0)
    alone = linear_start(frozen[:, :1], 8, seed=0)
    assert by_views.whitening_.source == "groups"
    np.testing.assert_array_equal(
        alone.components_, RPML(8, random_state=0).fit(frozen[:, 0]).components_
    )
    y = np.tile(np.arange(n_images), 2)
    finds_its_image = [
        recall_at_k(fitted.transform(np.concatenate([frozen[:, 2], frozen[:, 3]])), y, ks=(1,))[1]
        for fitted in (by_views, alone)
    ]
    assert finds_its_image[0] > finds_its_image[1] + 0.2


def _whitening(embedder):
    from rpml.method.whitening.linear_map import Preprocessing

    return Preprocessing(True, embedder.mean.numpy(), embedder.matrix.numpy(), True)
