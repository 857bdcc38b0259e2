"""The comparison of codes: bytes as stated, exact codes lose nothing, bad ones do."""

import json

import numpy as np
import pytest

from rpml.evaluation import codes
from rpml.evaluation.codes import compare_codes, nearest_by_scores, score_codes
from rpml.evaluation.metrics import recall_at_k
from rpml.runtime.rows import unit_rows
from tests.problems import blobs


@pytest.fixture(scope="module")
def result():
    X, y = blobs(spread=0.6)
    return compare_codes(X.astype(np.float32), y, 8, methods=("raw", "pca"))


def by_code(result, method):
    return {row["code"]: row for row in result.rows if row["method"] == method}


def test_bytes_of_every_code(result):
    pca = by_code(result, "pca")
    expected = {"float32": 32, "int8": 8, "binary": 1, "binary + int8": 9}
    assert {code: pca[code]["bytes"] for code in expected} == expected
    assert by_code(result, "raw")["float32"]["neighbors_kept"] == 1


def test_float_rows_score_as_the_metric_does(result):
    X, y = blobs(spread=0.6)
    test = y >= np.unique(y)[len(np.unique(y)) // 2]
    expected = recall_at_k(X[test], y[test], 1)[1]
    assert by_code(result, "raw")["float32"]["recall@1"] == pytest.approx(expected, abs=1e-9)


def test_int8_keeps_nearly_all_and_rescoring_helps_bits():
    rows = unit_rows(np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32))
    near = nearest_by_scores(lambda part: rows[part] @ rows.T, 300, 10)
    found = {row["code"]: row["neighbors_kept"] for row in score_codes(rows, rows, near)}
    assert found["float32"] == 1
    assert found["int8"] > 0.95
    assert found["binary"] < found["binary + int8"] <= found["int8"]
    assert found["binary"] > 0.2


def test_product_quantizers_learn_from_the_training_side():
    pytest.importorskip("faiss")
    rng = np.random.default_rng(0)
    rows = unit_rows((rng.normal(size=(400, 4)) @ rng.normal(size=(4, 12))).astype(np.float32))
    near = nearest_by_scores(lambda part: rows[part] @ rows.T, 400, 10)
    found = {row["code"]: row for row in score_codes(rows, rows, near)}
    assert found["PQ"]["bytes"] == found["OPQ"]["bytes"] == found["binary"]["bytes"] == 2
    assert found["PQ"]["neighbors_kept"] > 0.2
    assert "PQ" not in {row["code"] for row in score_codes(rows, rows, near, learned=False)}
    assert "PQ" not in {row["code"] for row in score_codes(rows[:200], rows, near)}


def test_many_rows_are_sampled(monkeypatch):
    monkeypatch.setattr(codes, "MAX_ROWS", 30)
    result = compare_codes(blobs(spread=0.6)[0], None, 4, methods=("pca",))
    assert "recall@1" not in result.rows[0]
    assert result.lines()[0] == ["method", "code", "dim", "bytes", "neighbors_kept"]
    assert json.loads(result.text(".json")) == result.rows
