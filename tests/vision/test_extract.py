"""Descriptors of images: threads, batches, parts and recipes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rpml.io.checkpoint import Checkpoint
from rpml.runtime.context import Context, Progress
from rpml.runtime.errors import InputError
from rpml.vision.backbone import Backbone
from rpml.vision.extract import (
    Job,
    Part,
    Recipe,
    describe_images,
    extract,
    files_digest,
    iter_parts,
    row_id,
    run_ahead,
)
from rpml.vision.images import ImageError, ImageFile, Views, find_images
from rpml.vision.pooling import (
    learn_whitening,
    load_whitening,
    save_whitening,
    whiten,
)
from tests.vision.test_pooling import literal_rmac

FILES = [ImageFile(str(i), Path(str(i))) for i in range(40)]


def tiles_of(file: ImageFile) -> list[np.ndarray]:
    """Two tiles per file, in one of three shapes; every tenth file is bad."""
    number = int(file.id)
    if number % 10 == 9:
        raise ImageError("it ends in nine")
    return [np.full((1 + number % 3, 2, 3), number + 100 * k, np.uint8) for k in range(2)]


def first_values(batch: np.ndarray) -> np.ndarray:
    return batch[:, 0, 0].astype(np.float32)


@pytest.mark.parametrize("workers", [1, 3])
def test_results_are_complete_and_in_order(workers: int) -> None:
    done: list[int] = []
    found, failures = describe_images(FILES, tiles_of, first_values, workers, done=done.append)
    good = [i for i in range(40) if i % 10 != 9]
    assert list(found) == good
    for i in good:
        assert [t[0] for t in found[i]] == [i, i + 100]
    assert [name for name, _ in failures] == ["9", "19", "29", "39"]
    assert {reason for _, reason in failures} == {"it ends in nine"}
    assert sum(done) == 40


def test_tiles_of_equal_shape_share_a_call() -> None:
    sizes: list[int] = []
    lock = threading.Lock()

    def describe(batch: np.ndarray) -> np.ndarray:
        with lock:
            sizes.append(len(batch))
        return first_values(batch)

    describe_images(FILES, tiles_of, describe, 2)
    assert sizes == [2] * 36


def test_a_network_that_fails_on_one_image_spares_the_others() -> None:
    def describe(batch: np.ndarray) -> np.ndarray:
        if (batch == 3).any():
            raise RuntimeError("no threes\nplease")
        result = first_values(batch)
        result[result == 4] = np.nan
        return result

    done: list[int] = []
    found, failures = describe_images(FILES, tiles_of, describe, 2, done=done.append)
    reasons = dict(failures)
    assert reasons["3"] == "the backbone failed on it at 2 x 1 pixels: no threes please"
    assert "NaN" in reasons["4"]
    assert len(found) == 34
    assert sum(done) == 40


def test_strict_stops_at_the_first_failure() -> None:
    with pytest.raises(InputError, match="9: it ends in nine"):
        describe_images(FILES, tiles_of, first_values, 2, strict=True)


def test_running_out_of_memory_on_one_image_is_a_failure_of_that_image() -> None:
    def heavy(file: ImageFile) -> list[np.ndarray]:
        if file.id == "5":
            raise MemoryError
        return [np.zeros((1, 1, 3), np.uint8)]

    found, failures = describe_images(FILES, heavy, first_values, 2)
    assert len(found) == 39
    assert failures == [("5", "not enough memory for it")]


def test_programming_errors_are_not_swallowed() -> None:
    def broken(file: ImageFile) -> list[np.ndarray]:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        describe_images(FILES, broken, first_values, 2)


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_running_ahead_keeps_the_order_and_passes_errors_on(limit: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        futures = run_ahead(pool, lambda x: 10 * x, range(4), limit)
        assert [future.result() for future in futures] == [0, 10, 20, 30]
        assert list(run_ahead(pool, str, [], limit)) == []
        with pytest.raises(ZeroDivisionError):
            [future.result() for future in run_ahead(pool, lambda x: 1 / x, [1, 0], limit)]


SMALL = Recipe(scales=(96, 64))


def plain_loop(files: list[ImageFile], backbone: Backbone, scales: tuple[int, ...]) -> np.ndarray:
    """One image at a time, one scale at a time, the literal pooling."""
    rows = []
    for file in files:
        image = Image.open(file.path).convert("RGB")
        total = np.zeros(6)
        for scale in scales:
            factor = scale / max(image.size)
            size = [max(32, round(s * factor)) for s in image.size]
            pixels = np.asarray(image.resize(size, Image.Resampling.BICUBIC))
            total += literal_rmac(backbone(pixels[None])[0].transpose(2, 0, 1).astype(float))
        rows.append(total / np.linalg.norm(total))
    return np.array(rows)


def test_extraction_equals_a_plain_loop(photos: Path, network: Path) -> None:
    files, backbone = find_images(photos), Backbone(network)
    found = extract(files, backbone, SMALL, 2)
    assert found.image.tolist() == list(range(15))
    assert not found.view.any()
    assert found.values.dtype == np.float32
    assert np.allclose(found.values, plain_loop(files, backbone, SMALL.scales), atol=1e-5)


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_do_not_matter(photos: Path, network: Path, workers: int) -> None:
    files, backbone = find_images(photos), Backbone(network)
    expected = extract(files, backbone, SMALL, 2).values
    assert np.allclose(extract(files, backbone, SMALL, workers).values, expected, atol=1e-6)


def test_views_follow_their_image(photos: Path, network: Path) -> None:
    files, backbone = find_images(photos), Backbone(network)
    found = extract(files, backbone, Recipe((64,), views=Views(2)), 2)
    rows = zip(found.image[:4], found.view[:4], strict=True)
    assert [row_id(files[i], view) for i, view in rows] == [
        files[0].id,
        f"{files[0].id}#view1",
        f"{files[0].id}#view2",
        files[1].id,
    ]
    assert found.image.tolist() == [i for i in range(15) for _ in range(3)]
    assert np.allclose(found.values[::3], extract(files, backbone, Recipe((64,))).values, atol=1e-6)
    assert not np.allclose(found.values[1::3], found.values[::3], atol=1e-2)


def test_averaged_views_are_one_row_per_image(photos: Path, network: Path) -> None:
    files, backbone = find_images(photos), Backbone(network)
    each = extract(files, backbone, Recipe((64,), views=Views(2)), 2).values
    found = extract(files, backbone, Recipe((64,), views=Views(2), average_views=True), 2)
    mean = each.reshape(15, 3, -1).mean(axis=1)
    assert np.allclose(found.values, mean / np.linalg.norm(mean, axis=1)[:, None], atol=1e-6)
    assert found.image.tolist() == list(range(15))
    assert not found.view.any()


def test_an_interruption_at_151_of_200_keeps_150(
    photos: Path, network: Path, tmp_path: Path
) -> None:
    path = find_images(photos)[0].path
    job = Job([ImageFile(str(i), path) for i in range(200)], Backbone(network), Recipe((64,)))

    def interrupt(progress: Progress) -> None:
        if progress.done > 150:
            raise KeyboardInterrupt

    def parts(report: Callable[[Progress], object]) -> list[Part]:
        store = Checkpoint(tmp_path / "parts", "files", {}, resume=True)
        return list(iter_parts(job, Context(report=report, store=store)))

    with pytest.raises(KeyboardInterrupt):
        parts(interrupt)
    seen: list[Progress] = []
    assert sum(len(part.values) for part in parts(seen.append)) == 200
    assert min(progress.done for progress in seen) > 150


def test_bad_images_are_left_out(photos: Path, network: Path) -> None:
    (photos / "test" / "c" / "2.png").write_text("not a picture")
    found = extract(find_images(photos), Backbone(network), SMALL, 2)
    assert len(found.values) == len(found.image) == 14
    assert [name for name, _ in found.failures] == ["test/c/2.png"]
    for path in photos.rglob("*.png"):
        path.write_text("nothing")
    with pytest.raises(InputError, match="none of 15 images"):
        extract(find_images(photos), Backbone(network), SMALL, 2)


def test_parts_are_kept_and_found_again(photos: Path, network: Path, tmp_path: Path) -> None:
    files, backbone = find_images(photos), Backbone(network)
    (photos / "train" / "a" / "1.png").write_text("bad")
    settings = asdict(SMALL)
    job = Job(files, backbone, SMALL, workers=2, part=4)

    def context(resume: bool, heard: list[Progress]) -> Context:
        store = Checkpoint(tmp_path / "parts", files_digest(files), settings, resume)
        return Context(report=heard.append, store=store)

    whole = list(iter_parts(job, Context()))
    unfinished = iter_parts(job, context(False, []))
    next(unfinished), next(unfinished)
    unfinished.close()
    assert len(list((tmp_path / "parts").glob("part-*"))) == 2
    heard: list[Progress] = []
    resumed = list(iter_parts(job, context(True, heard)))
    for a, b in zip(whole, resumed, strict=True):
        assert (a.values == b.values).all()
        assert (a.image == b.image).all()
        assert a.failures == b.failures
    assert heard[0].done == 9  # what was found again does not count as speed
    assert heard[-1].done == heard[-1].total == 15


def test_changed_files_are_noticed(photos: Path) -> None:
    files = find_images(photos)
    before = files_digest(files)
    assert before == files_digest(files)
    (photos / "test" / "c" / "0.png").write_text("changed")
    assert files_digest(files) != before


def test_whitening_round_trip(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    whitening = learn_whitening(X, 5)
    save_whitening(whitening, tmp_path / "w.npz")
    again = load_whitening(tmp_path / "w.npz")
    assert np.array_equal(whiten(X, again), whiten(X, whitening))
    assert whiten(X, again).shape == (50, 5)
    with pytest.raises(InputError, match="8 dimensions, these have 3"):
        whiten(X[:, :3], again)
    with pytest.raises(InputError, match="cannot whiten to 9"):
        learn_whitening(X, 9)
    np.savez(tmp_path / "bad.npz", mean=np.zeros(3), matrix=np.zeros((4, 2)))
    with pytest.raises(InputError, match="not a whitening"):
        load_whitening(tmp_path / "bad.npz")


def test_fixed_input_sizes_stretch_the_image(photos: Path, tmp_path: Path) -> None:
    from tests.vision.conftest import tiny_network

    backbone = Backbone(tiny_network(tmp_path / "fixed.onnx", size=(48, 64)))
    found = extract(find_images(photos), backbone, SMALL, 2)
    assert found.values.shape == (15, 6)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(InputError, match="scales"):
        Recipe(scales=())
    with pytest.raises(InputError, match="'max'"):
        Recipe(pooling="max")
