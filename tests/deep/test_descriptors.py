"""Descriptors and the label-free score."""

import numpy as np

from rpml.deep.descriptors import (
    descriptors,
    frozen_descriptors,
    mean_features,
    view_agreement,
)


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
