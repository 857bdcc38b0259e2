"""Codes at equal bytes: dimensions times bits, exact codes lose nothing, bad ones do."""

import numpy as np
import pytest

from rpml import RPML, recommend
from rpml.evaluation import codes
from rpml.evaluation.codes import coded, compare_bytes, configurations
from rpml.evaluation.metrics import recall_at_k
from rpml.method.graph.heaps import nearest_rows
from rpml.runtime.rows import unit_rows
from tests.problems import blobs


@pytest.fixture(scope="module")
def result():
    X, y = blobs(d=24, spread=0.6)
    return compare_bytes(X.astype(np.float32), y, (2, 4), methods=("pca",))


def test_configurations_have_the_bytes_asked_for():
    assert configurations(8, 1000) == [
        (8, "int8", 8),
        (16, "int4", 8),
        (32, "int2", 8),
        (64, "binary", 8),
        (128, "pq", 8),
    ]
    assert [c[0] for c in configurations(32, 200, ("int2", "binary", "pq"))] == [128, 128]
    assert configurations(64, 1000, ["pq"]) == [(128, "pq", 64)]
    principal = [configurations(n, 1000, ["pq"], learned=False)[0][0] for n in (8, 16, 32, 64)]
    assert principal == [192, 192, 192, 256]
    assert configurations(256, 1000, ["pq"]) == [(256, "pq", 256)]
    assert configurations(8, 50)[-1] == (50, "pq", 8)
    assert configurations(64, 50) == []


def test_principal_axes_are_coded_with_more_dimensions_than_learned_ones(monkeypatch):
    X = np.random.default_rng(0).standard_normal((400, 200)).astype(np.float32)
    rows = compare_bytes(X, None, (8,), methods=("pca", "rpml"), outputs=("pq",))
    assert {row["dim"] for row in rows[1:]} == {192}
    monkeypatch.setattr(RPML, "outcome_", "learned axes")
    rows = compare_bytes(X, None, (8,), methods=("pca", "rpml"), outputs=("pq",))
    assert {row["method"]: row["dim"] for row in rows[1:]} == {"pca": 192, "rpml": 128}
    assert recommend(X, bytes=8).n_components == 128


def test_rows_of_the_table(result):
    assert [(r["bytes"], r["method"], r["code"], r["dim"]) for r in result] == [
        (96, "raw", "float32", 24),
        (4, "pca", "int8", 4),
        (4, "pca", "int2", 16),
        (4, "pca", "pq", 24),
        (2, "pca", "int8", 2),
        (2, "pca", "int2", 8),
        (2, "pca", "pq", 24),
    ]
    assert result[0]["neighbors_kept"] == 1


def test_float_rows_score_as_the_metric_does(result):
    X, y = blobs(d=24, spread=0.6)
    test = y >= np.unique(y)[len(np.unique(y)) // 2]
    expected = recall_at_k(X[test], y[test], 1)[1]
    assert result[0]["recall@1"] == pytest.approx(expected, abs=1e-9)


def test_more_bits_keep_more_neighbors():
    rows = unit_rows(np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32))
    own = np.arange(300)
    near = nearest_rows(rows, rows, 10, own=own)[1]
    kept = [
        np.mean([len(set(a) & set(b)) / 10 for a, b in zip(near, found, strict=True)])
        for found in (
            nearest_rows(rows, coded(rows, output), 10, own=own)[1]
            for output in ("binary", "int2", "int4", "int8")
        )
    ]
    assert kept == sorted(kept)
    assert kept[0] > 0.3
    assert kept[-1] > 0.95


def test_many_rows_are_sampled(monkeypatch):
    monkeypatch.setattr(codes, "MAX_ROWS", 30)
    result = compare_bytes(blobs(spread=0.6)[0], None, (2,), methods=("pca",))
    assert "recall@1" not in result[0]
    assert codes.code_lines(result)[0] == ["bytes", "method", "code", "dim", "raw neighbors kept"]


def test_too_many_bytes_are_refused():
    with pytest.raises(ValueError, match=r"No code of \[999\] bytes"):
        compare_bytes(*blobs(), (999,))


def test_columns_that_never_vary_are_no_dimensions():
    X, y = blobs(d=12, spread=0.6)
    result = compare_bytes(np.pad(X, ((0, 0), (0, 4))), y, (2,), outputs=("pq",), methods=("pca",))
    assert [row["dim"] for row in result] == [16, 12]
