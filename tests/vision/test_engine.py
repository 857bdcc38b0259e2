"""The engine: batches by shape, failures, order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rpml.runtime.errors import InputError
from rpml.vision.decode import ImageError
from rpml.vision.engine import Execution, describe_images, run_ahead
from rpml.vision.files import ImageFile

FILES = [ImageFile(str(i), Path(str(i))) for i in range(40)]
TWO = Execution(workers=2, batch=4)


def tiles_of(file: ImageFile) -> list[np.ndarray]:
    """Two tiles per file, in one of three shapes; every tenth file is bad."""
    number = int(file.id)
    if number % 10 == 9:
        raise ImageError("it ends in nine")
    return [np.full((1 + number % 3, 2, 3), number + 100 * k, np.uint8) for k in range(2)]


def first_values(batch: np.ndarray) -> np.ndarray:
    return batch[:, 0, 0].astype(np.float32)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("batch", [1, 4])
def test_results_are_complete_and_in_order(workers: int, batch: int) -> None:
    done: list[int] = []
    execution = Execution(workers, batch)
    found, failures = describe_images(FILES, tiles_of, first_values, execution, done.append)
    good = [i for i in range(40) if i % 10 != 9]
    assert list(found) == good
    for i in good:
        assert [t[0] for t in found[i]] == [i, i + 100]
    assert [name for name, _ in failures] == ["9", "19", "29", "39"]
    assert {reason for _, reason in failures} == {"it ends in nine"}
    assert sum(done) == 40


def test_equal_shapes_share_batches() -> None:
    sizes: list[int] = []
    lock = threading.Lock()

    def describe(batch: np.ndarray) -> np.ndarray:
        with lock:
            sizes.append(len(batch))
        return first_values(batch)

    describe_images(FILES, tiles_of, describe, TWO)
    assert max(sizes) == 4
    assert sum(sizes) == 2 * 36
    assert len(sizes) <= 2 * 36 // 4 + 3


def test_a_network_that_fails_on_one_tile_spares_the_others_of_its_batch() -> None:
    def describe(batch: np.ndarray) -> np.ndarray:
        if (batch == 3).any():
            raise RuntimeError("no threes\nplease")
        result = first_values(batch)
        result[result == 4] = np.nan
        return result

    done: list[int] = []
    found, failures = describe_images(FILES, tiles_of, describe, TWO, done.append)
    reasons = dict(failures)
    assert reasons["3"] == "the backbone failed on it at 2 x 1 pixels: no threes please"
    assert "NaN" in reasons["4"]
    assert len(found) == 34
    assert sum(done) == 40


def test_strict_stops_at_the_first_failure() -> None:
    with pytest.raises(InputError, match="9: it ends in nine"):
        describe_images(FILES, tiles_of, first_values, Execution(2, 4, strict=True))


def test_running_out_of_memory_on_one_image_is_a_failure_of_that_image() -> None:
    def heavy(file: ImageFile) -> list[np.ndarray]:
        if file.id == "5":
            raise MemoryError
        return [np.zeros((1, 1, 3), np.uint8)]

    found, failures = describe_images(FILES, heavy, first_values, TWO)
    assert len(found) == 39
    assert failures == [("5", "not enough memory for it")]


def test_programming_errors_are_not_swallowed() -> None:
    def broken(file: ImageFile) -> list[np.ndarray]:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        describe_images(FILES, broken, first_values, TWO)


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_running_ahead_keeps_the_order_and_passes_errors_on(limit: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        futures = run_ahead(pool, lambda x: 10 * x, range(4), limit)
        assert [future.result() for future in futures] == [0, 10, 20, 30]
        assert list(run_ahead(pool, str, [], limit)) == []
        with pytest.raises(ZeroDivisionError):
            [future.result() for future in run_ahead(pool, lambda x: 1 / x, [1, 0], limit)]
