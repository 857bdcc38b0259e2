"""Codes of embeddings: what a byte and a bit stand for, and what other programs read in them."""

import numpy as np
import pytest

from rpml.method.codes import AxisRanges, Int8Codec, SignCodec, make_codec, rotation
from rpml.runtime.rows import unit_rows


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return unit_rows(rng.normal(size=(500, 20)) * np.linspace(3, 0.5, 20) + 0.2)


@pytest.fixture(scope="module")
def ranges(rows):
    return AxisRanges.of(rows, unit=True)


def test_int8_covers_the_range_and_is_at_most_half_a_step_away(rows, ranges):
    codec = Int8Codec(ranges)
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
    codec = Int8Codec(AxisRanges.of(Y, unit=False))
    np.testing.assert_allclose(codec.decode(codec.encode(Y)), Y, atol=1e-6)


@pytest.mark.parametrize("size", [1, 5, 12, 20])
def test_ranges_of_a_prefix_cover_its_unit_rows(rows, ranges, size):
    prefix = unit_rows(rows[:, :size])
    codec = Int8Codec(ranges.first(size))
    error = np.abs(codec.decode(codec.encode(prefix)) - prefix).max(axis=1)
    assert np.mean(error < 0.01) >= 0.98


def test_ranges_of_plain_rows_do_not_grow(rows):
    plain = AxisRanges.of(rows, unit=False)
    np.testing.assert_array_equal(plain.first(7).high, plain.high[:7])


def test_asymmetric_scores_need_no_decoding(rows, ranges):
    codec, queries = Int8Codec(ranges), rows[:5].astype(np.float32)
    codes = codec.encode(rows)
    scores = queries @ codec.decode(codes).T
    np.testing.assert_allclose(scores, queries @ rows.T, atol=0.01)
    constant = queries @ (codec.low + 128 * codec.step)
    spelled = (queries * codec.step) @ codes.T.astype(np.float32) + constant[:, None]
    np.testing.assert_allclose(spelled, scores, atol=1e-5)


def test_bits_are_in_the_order_of_packbits(rows):
    bits = SignCodec(20).encode(rows)
    assert bits.shape == (500, 3)
    np.testing.assert_array_equal(bits, np.packbits(rows > 0, axis=1, bitorder="big"))
    first = (bits[:, 0] >> 7) & 1  # the first axis is the most significant bit
    np.testing.assert_array_equal(first, rows[:, 0] > 0)
    assert (bits[:, 2] & 0b1111 == 0).all()  # 20 axes fill two and a half bytes


@pytest.mark.parametrize("rotate", [False, True])
def test_a_float_query_can_be_scored_against_bits(rows, rotate):
    codec = SignCodec(20, rotate)
    decoded = codec.decode(codec.encode(rows))
    np.testing.assert_allclose(np.linalg.norm(decoded, axis=1), 1, atol=1e-6)
    turned = rows @ rotation(20) if rotate else rows
    expected = np.where(turned > 0, 1, -1).astype(float) / np.sqrt(20)
    scores = rows @ decoded.T
    np.testing.assert_allclose(scores, turned @ expected.T, atol=1e-5)
    assert np.corrcoef(scores.ravel(), (rows @ rows.T).ravel())[0, 1] > 0.7


def test_the_rotation_is_fixed():
    Q = rotation(6)
    np.testing.assert_allclose(Q @ Q.T, np.eye(6), atol=1e-12)
    expected = [0.56157423, 0.59281761, -0.09115812, 0.421864, -0.05398729, -0.37948386]
    np.testing.assert_allclose(Q[0], expected, atol=1e-7)


def test_faiss_finds_the_same_with_bits_of_either_order(rows):
    faiss = pytest.importorskip("faiss")
    Y = rows[:, :16]
    big = SignCodec(16).encode(Y)
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
    np.testing.assert_allclose(index.reconstruct_n(0, 500), codec.decode(codes), atol=1e-6)


def test_refusals(rows, ranges):
    with pytest.raises(ValueError, match="choose from float, int8"):
        make_codec("int4", 20, ranges)
    with pytest.raises(ValueError, match="no int8 ranges"):
        make_codec("int8", 20, None)
    codec = make_codec("int8", 12, ranges)
    for wrong in (codec.encode(rows[:, :12])[:, :5], np.zeros((2, 12), np.uint8), np.zeros(12)):
        with pytest.raises(ValueError, match="another model, size or output"):
            codec.decode(wrong)
