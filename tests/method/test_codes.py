"""Codes of embeddings: what a byte and a bit stand for, and what other programs read in them."""

import numpy as np
import pytest

from rpml.method.codes import (
    CODES,
    LEVELS,
    AxisRanges,
    GridCodec,
    Int8Codec,
    fixed_rotation,
    interleaved,
    learn_codebooks,
    make_codec,
)
from rpml.runtime.rows import unit_rows


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return unit_rows(rng.normal(size=(500, 20)) * np.linspace(3, 0.5, 20) + 0.2)


@pytest.fixture(scope="module")
def ranges(rows):
    return AxisRanges.from_rows(rows, unit=True)


def test_int8_covers_the_range_and_is_at_most_half_a_step_away(rows, ranges):
    codec = Int8Codec(ranges, unit=False)
    codes = codec.encode(rows)
    assert codes.dtype == np.int8
    assert codes.shape == rows.shape
    assert (codes.min(axis=0) == -128).all()
    assert (codes.max(axis=0) == 127).all()
    error = np.abs(codec.decode(codes) - rows)
    assert (error <= 0.501 * codec.step).all()


def test_values_outside_the_range_are_clipped(rows, ranges):
    codec = Int8Codec(ranges)
    assert (codec.encode(10 * np.ones((1, 20))) == 127).all()
    assert (codec.encode(-10 * np.ones((1, 20))) == -128).all()


def test_a_constant_axis_has_codes_too():
    Y = np.array([[0.5, 1.0], [0.5, 2.0]])
    codec = Int8Codec(AxisRanges.from_rows(Y, unit=False), unit=False)
    np.testing.assert_allclose(codec.decode(codec.encode(Y)), Y, atol=1e-6)


@pytest.mark.parametrize("size", [1, 5, 12, 20])
def test_ranges_of_a_prefix_cover_its_unit_rows(rows, ranges, size):
    prefix = unit_rows(rows[:, :size])
    codec = Int8Codec(ranges.first(size))
    error = np.abs(codec.decode(codec.encode(prefix)) - prefix).max(axis=1)
    assert np.mean(error < 0.01) >= 0.98


def test_ranges_of_plain_rows_do_not_grow(rows):
    plain = AxisRanges.from_rows(rows, unit=False)
    np.testing.assert_array_equal(plain.first(7).high, plain.high[:7])


def test_asymmetric_scores_need_no_decoding(rows, ranges):
    codec, queries = Int8Codec(ranges), rows[:5].astype(np.float32)
    codes = codec.encode(rows)
    codec.unit = False
    assert (codec.scales(codes) == 1).all()
    scores = queries @ codec.decode(codes).T
    np.testing.assert_allclose(scores, queries @ rows.T, atol=0.01)
    constant = queries @ (codec.low + 128 * codec.step)
    spelled = (queries * codec.step) @ codes.T.astype(np.float32) + constant[:, None]
    np.testing.assert_allclose(spelled, scores, atol=1e-5)


def codec_of(output, rows):
    books = learn_codebooks(rows, 5, np.random.default_rng(0))
    return make_codec(output, rows.shape[1], AxisRanges.from_rows(rows, True), books, True)


@pytest.mark.parametrize("output", CODES)
def test_decoded_rows_are_unit_rows_and_tables_give_their_scores(rows, output):
    codec = codec_of(output, rows)
    codes = codec.encode(rows)
    decoded = codec.decode(codes)
    np.testing.assert_allclose(np.linalg.norm(decoded, axis=1), 1, atol=1e-6)
    queries = rows[:7].astype(np.float32)
    tables, selected = codec.tables(queries), codec.indices(codes)
    sums = sum(tables[:, m, selected[:, m]] for m in range(codec.width))
    np.testing.assert_allclose(sums * codec.scales(codes), queries @ decoded.T, atol=1e-5)


def test_bits_are_in_the_order_of_packbits(rows):
    turned = rows @ fixed_rotation(20)
    bits = GridCodec(20, 1).encode(rows)
    np.testing.assert_array_equal(bits, np.packbits(turned > 0, axis=1, bitorder="big"))
    first = (bits[:, 0] >> 7) & 1  # the first axis is the most significant bit
    np.testing.assert_array_equal(first, turned[:, 0] > 0)
    assert (bits[:, 2] & 0b1111 == 0).all()  # 20 axes fill two and a half bytes


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_axes_are_packed_from_the_most_significant_bits(rows, bits):
    codec = GridCodec(20, bits)
    turned = rows @ fixed_rotation(20)
    nearest = np.abs(turned[:, :, None] - codec.levels).argmin(axis=2)
    codes, axes = codec.encode(rows), 8 // bits
    for axis in range(20):
        shift = 8 - bits * (axis % axes + 1)
        number = (codes[:, axis // axes] >> shift) & (2**bits - 1)
        np.testing.assert_array_equal(number, nearest[:, axis])


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_levels_are_the_means_of_their_cells(bits):
    """Lloyd-Max: each level of the normal distribution is the mean of what is rounded to it."""
    draws = np.random.default_rng(0).standard_normal(400_000)
    levels = np.concatenate([-np.array(LEVELS[bits])[::-1], LEVELS[bits]])
    nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, draws)
    means = np.bincount(nearest, weights=draws) / np.bincount(nearest)
    np.testing.assert_allclose(means, levels, atol=0.02)


def test_more_bits_are_closer_and_learned_centroids_use_them_best(rows):
    def closeness(output):
        codec = codec_of(output, rows)
        return float(np.vecdot(codec.decode(codec.encode(rows)), rows).mean())

    found = [closeness(output) for output in ("binary", "int2", "int4", "int8")]
    assert found == sorted(found)
    assert found[0] > 0.75
    assert closeness("pq") > found[1]  # both have 5 bytes


@pytest.mark.parametrize("n_bytes", [20, 10, 4, 1])
def test_a_row_gets_its_nearest_centroids(rows, n_bytes):
    codec = learn_codebooks(rows, n_bytes, np.random.default_rng(0))
    codes = codec.encode(rows[:50])
    groups = np.split(rows[:50] @ codec.rotation, n_bytes, axis=1)
    for m, group in enumerate(groups):
        distances = ((group[:, None] - codec.centroids[m].astype(float)) ** 2).sum(axis=2)
        chosen = distances[np.arange(50), codes[:, m]]
        np.testing.assert_allclose(chosen, distances.min(axis=1), rtol=0, atol=2e-5)


def test_faiss_reads_the_codebooks(rows):
    faiss = pytest.importorskip("faiss")
    codec = learn_codebooks(rows, 4, np.random.default_rng(0))
    quantizer = faiss.ProductQuantizer(20, 4, 8)
    faiss.copy_array_to_vector(codec.centroids.ravel(), quantizer.centroids)
    turned = (rows @ codec.rotation).astype(np.float32)
    codes = codec.encode(rows)
    assert np.mean(quantizer.compute_codes(turned) == codes) > 0.999
    back = unit_rows(quantizer.decode(codes)) @ codec.rotation.T
    np.testing.assert_allclose(back, codec.decode(codes), atol=1e-6)


def test_each_byte_gets_strong_and_weak_axes():
    dealt = interleaved(8, 3)  # and one axis of padding
    assert [np.flatnonzero(part).tolist() for part in dealt.T] == [
        *([0], [5], [6]),
        *([1], [4], [7]),
        *([2], [3], []),
    ]
    np.testing.assert_array_equal(dealt @ dealt.T, np.eye(8))


def test_a_learned_rotation_codes_correlated_axes_more_closely(monkeypatch):
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((3000, 16)) @ np.linalg.qr(rng.standard_normal((32, 16)))[0].T
    rows = unit_rows((mixed + 0.1 * rng.standard_normal((3000, 32))).astype(np.float32))

    def error():
        codec = learn_codebooks(rows, 8, np.random.default_rng(1))
        np.testing.assert_allclose(codec.rotation @ codec.rotation.T, np.eye(32), atol=1e-5)
        return np.square(rows - codec.decode(codec.encode(rows))).sum(axis=1).mean()

    turned = error()
    dealt = interleaved(32, 8), None, np.eye(32)
    monkeypatch.setattr("rpml.method.codes.np.linalg.svd", lambda *_, **__: dealt)
    assert turned < 0.9 * error()


def test_centroids_of_few_rows_start_again_where_the_error_is_large(monkeypatch):
    rng = np.random.default_rng(0)
    far = rng.standard_normal((200, 4)).repeat(3, axis=0)  # hardly any of the random start
    near = [1, 0, 0, 0] + 0.1 * rng.standard_normal((6000, 4))
    rows = unit_rows(np.vstack([far, near]).astype(np.float32))

    def error():
        codec = learn_codebooks(rows, 1, np.random.default_rng(1))
        return np.square(rows - codec.decode(codec.encode(rows))).sum(axis=1).mean()

    restarted = error()
    monkeypatch.setattr("rpml.method.codes.FEW_ROWS", 0)
    assert restarted < 0.9 * error()


def test_the_rotation_is_fixed():
    Q = fixed_rotation(6)
    np.testing.assert_allclose(Q @ Q.T, np.eye(6), atol=1e-12)
    expected = [0.56157423, 0.59281761, -0.09115812, 0.421864, -0.05398729, -0.37948386]
    np.testing.assert_allclose(Q[0], expected, atol=1e-7)


def test_faiss_finds_the_same_with_bits_of_either_order(rows):
    faiss = pytest.importorskip("faiss")
    Y = rows[:, :16]
    big = GridCodec(16, 1).encode(Y)
    Y = unit_rows(Y) @ fixed_rotation(16)
    little = np.packbits(np.unpackbits(big, axis=1), axis=1, bitorder="little")
    index = faiss.IndexBinaryFlat(16)
    index.add(np.ascontiguousarray(big))
    distances, _ = index.search(np.ascontiguousarray(big[:20]), 7)
    signs = np.where(Y > 0, 1, -1)
    hamming = np.sort((16 - signs[:20] @ signs.T) // 2, axis=1)[:, :7]
    np.testing.assert_array_equal(distances, hamming)
    packed = np.zeros_like(little)  # faiss' own packing is little-endian
    x = np.ascontiguousarray(Y, np.float32)
    faiss.fvecs2bitvecs(faiss.swig_ptr(x), faiss.swig_ptr(packed), 16, len(x))
    np.testing.assert_array_equal(packed, little)


def test_faiss_scalar_quantizer_reads_the_int8_codes(rows, ranges):
    faiss = pytest.importorskip("faiss")
    codec = Int8Codec(ranges)
    codes = codec.encode(rows)
    index = faiss.IndexScalarQuantizer(
        20, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    low = codec.low - codec.step / 2  # faiss decodes to the middle of a step
    faiss.copy_array_to_vector(
        np.concatenate([low, 255 * codec.step]).astype(np.float32), index.sq.trained
    )
    index.is_trained = True
    index.add_sa_codes((codes.astype(np.int16) + 128).astype(np.uint8))
    np.testing.assert_allclose(
        unit_rows(index.reconstruct_n(0, 500)), codec.decode(codes), atol=1e-6
    )


def test_refusals(rows, ranges):
    with pytest.raises(ValueError, match="the codes are int8, int4"):
        make_codec("int3", 20, ranges, None, True)
    for n_bytes in (0, 21, 2.5):
        with pytest.raises(ValueError, match=f"n_bytes={n_bytes} must be an integer from 1 to the"):
            learn_codebooks(rows, n_bytes, np.random.default_rng(0))
    with pytest.raises(ValueError, match="no int8 ranges"):
        make_codec("int8", 20, None, None, True)
    codec = make_codec("int8", 12, ranges, None, True)
    for wrong in (
        codec.encode(rows[:, :12])[:, :5],
        np.zeros((2, 13), np.int8),
        np.zeros((2, 12), np.uint8),
        np.zeros(12),
        [[1]],
    ):
        with pytest.raises(ValueError, match="another model, size or output"):
            codec.decode(wrong)
