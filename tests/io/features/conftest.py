import numpy as np
import pytest


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(23, 4)).astype(np.float32)


@pytest.fixture
def ids():
    return [f"item {i}, «é»" for i in range(23)]
