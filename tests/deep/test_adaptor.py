"""The Matryoshka-Adaptor against its equations."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from rpml.deep.adaptor import MatryoshkaAdaptor, prefix_sizes, similarity_losses
from rpml.evaluation.registry import METHODS


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_losses_equal_the_literal_sums():
    rng = np.random.default_rng(0)
    rows, adapted = rng.normal(size=(2, 7, 6))
    local, everywhere = [], []
    for size in (6, 3):
        for i in range(7):
            others = [j for j in range(7) if j != i]
            change = {
                j: abs(cosine(rows[i], rows[j]) - cosine(adapted[i, :size], adapted[j, :size]))
                for j in others
            }
            nearest = sorted(others, key=lambda j: -cosine(rows[i], rows[j]))[:2]
            local.append(sum(change[j] for j in nearest) / (2 * 7))
            everywhere.append(sum(change.values()) / (6 * 7))
    found = similarity_losses(torch.from_numpy(rows), torch.from_numpy(adapted), [6, 3], 2)
    assert [float(loss) for loss in found] == pytest.approx([sum(local), sum(everywhere)])


def test_prefixes_are_halves_down_to_eight():
    assert prefix_sizes(64) == [64, 32, 16, 8]
    assert prefix_sizes(5) == [5]


@pytest.fixture(scope="module")
def rows():
    """Similar in their last columns, which a truncation loses."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 20)
    noise = 0.3 * rng.normal(size=(200, 12))
    noise[:, 6:] += rng.normal(size=(10, 6))[y]
    return noise.astype(np.float32)


def test_it_starts_as_truncation(rows):
    Z = MatryoshkaAdaptor(4, n_epochs=0, random_state=0).fit(rows).transform(rows)
    np.testing.assert_allclose(Z, rows[:, :4] / np.linalg.norm(rows[:, :4], axis=1)[:, None], 1e-4)


@pytest.mark.parametrize("name", ["adaptor", "adaptor-linear"])
def test_training_keeps_more_of_the_similarities(rows, name):
    original = rows / np.linalg.norm(rows, axis=1)[:, None]

    def change(Z):
        return np.abs(Z @ Z.T - original @ original.T).mean()

    method = METHODS[name].build(4, 0).set_params(n_epochs=300, learning_rate=0.01)
    trained = method.fit(rows).transform(rows)
    start = method.set_params(n_epochs=0).fit(rows).transform(rows)
    assert change(trained) < 0.8 * change(start)
    again = method.set_params(n_epochs=300).fit(rows).transform(rows)
    np.testing.assert_allclose(again, trained, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(trained, axis=1), 1, rtol=1e-5)
