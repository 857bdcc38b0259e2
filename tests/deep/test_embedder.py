"""Pooling and precision of the embedder, its start, descriptors and the label-free score."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from rpml.deep.embedder import (
    Embedder,
    descriptors,
    frozen_descriptors,
    linear_start,
    mean_features,
    pool_maps,
    view_agreement,
)
from rpml.estimator import RPML
from rpml.evaluation.metrics import recall_at_k
from rpml.method.whitening.linear_map import Preprocessing, identity
from rpml.runtime.errors import InputError


def test_pooling():
    maps = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pool_maps(maps, "mac"), maps.amax((2, 3)))
    torch.testing.assert_close(pool_maps(maps, "average"), maps.mean((2, 3)))
    torch.testing.assert_close(pool_maps(maps, "gem"), maps.pow(3).mean((2, 3)).pow(1 / 3))
    with pytest.raises(InputError, match="mac, average, gem"):
        Embedder(torch.nn.Identity(), "rmac", identity(3, True), np.eye(3))


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
    return Preprocessing(True, embedder.mean.numpy(), embedder.matrix.numpy(), True)


def test_frozen_descriptors_of_every_view(start, inputs):
    embedder, _ = start
    frozen = frozen_descriptors(embedder, inputs)
    assert frozen.shape == (len(inputs), inputs.n_views, 16)
    for view in range(inputs.n_views):
        expected = descriptors(embedder, inputs, view, embedder.pooled)
        np.testing.assert_array_equal(frozen[:, view], expected)


def test_mean_features_are_unit_rows(start):
    norms = np.linalg.norm(mean_features(*start), axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)


def test_view_agreement_of_equal_views_is_one(start, inputs):
    embedder, _ = start

    class Same:
        n_views = 2

        def __len__(self):
            return len(inputs)

        def load(self, rows, views):
            return inputs.load(rows, np.zeros_like(views))

    assert view_agreement(embedder, Same()) == 1.0
