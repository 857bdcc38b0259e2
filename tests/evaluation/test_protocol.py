"""The protocol on made-up descriptors: labels stay out of the fits, rows are kept and repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rpml.evaluation.metrics import clustering_scores, recall_at_k
from rpml.evaluation.protocol import (
    DEFAULT_METHODS,
    RECALL_AT,
    Descriptors,
    as_fields,
    as_lines,
    as_markdown,
    from_file,
    published_rows,
    run_methods,
)
from rpml.evaluation.registry import PCA, chosen_methods
from rpml.io.checkpoint import Checkpoint
from rpml.io.features import ReadOptions
from rpml.runtime.context import Context
from rpml.runtime.errors import InputError


def make_data(n: int = 240, d: int = 16, classes: int = 12, seed: int = 0) -> Descriptors:
    rng = np.random.default_rng(seed)
    y = 1 + np.arange(n) % classes
    X = np.abs(rng.normal(size=(classes + 1, d))[y] + 0.5 * rng.normal(size=(n, d)))
    return Descriptors(X.astype(np.float32), y, y <= classes // 2, {"made": "up"})


def test_rows_equal_the_estimators_called_by_hand() -> None:
    data = make_data()
    (row,), embeddings = run_methods(data, ["pca"], 5)
    Z = PCA(5).fit(data.X[data.train]).transform(data.X[~data.train])
    y = data.labels[~data.train]
    assert np.allclose(embeddings["pca"], Z, atol=1e-6)
    recall = {f"recall@{k}": v for k, v in recall_at_k(Z, y).items()}
    assert row["scores"] == {"cosine": {**clustering_scores(Z, y), **recall}}
    assert row["settings"] == {"class": "PCA", "n_components": 5}


def test_labels_of_training_rows_change_nothing() -> None:
    data = make_data()
    shuffled = data.labels.copy()
    rows = np.flatnonzero(data.train)
    shuffled[rows] = np.random.default_rng(1).permutation(shuffled[rows])
    other = Descriptors(data.X, shuffled, data.train, data.origin)
    (a, _), (b, _) = (run_methods(d, ["pca-whitened", "rpml"], 4) for d in (data, other))
    assert [r["scores"] for r in a] == [r["scores"] for r in b]


def test_every_method_runs() -> None:
    rows, embeddings = run_methods(make_data(), list(DEFAULT_METHODS), 4)
    assert [row["method"] for row in rows] == list(DEFAULT_METHODS)
    for row in rows:
        assert row["dim"] == (16 if row["method"] in ("raw", "whitened-512") else 4)
        assert embeddings[row["method"]].shape == (120, row["dim"])
        for scores in row["scores"].values():
            assert 0 <= scores["nmi"] <= 1
            assert {f"recall@{k}" for k in (1, 2, 4, 8)} < set(scores)
    by_name = {row["method"]: row for row in rows}
    assert set(by_name["paper-stochastic"]["scores"]) == {"cosine", "euclidean"}
    assert set(by_name["rpml"]["scores"]) == {"cosine"}
    assert by_name["srpml-random"]["settings"]["init"] == "random"


def test_finished_rows_are_found_again(tmp_path: Path) -> None:
    data = make_data()

    def context() -> Context:
        return Context(store=Checkpoint(tmp_path / "cache", "data", {}, resume=True))

    first, Z = run_methods(data, ["pca", "rpml"], 4, context=context())
    again, Z_again = run_methods(data, ["raw", "rpml", "pca"], 4, context=context())
    assert again[1:] == first[::-1]
    assert np.array_equal(Z["rpml"], Z_again["rpml"])


def test_whitening_is_learned_on_the_training_rows() -> None:
    data = make_data()
    moved = data.X.copy()
    moved[~data.train] *= np.arange(1, 17, dtype=np.float32)
    other = Descriptors(moved, data.labels, data.train, data.origin)
    a, b = data.whitened(6), other.whitened(6)
    assert np.array_equal(a.X[data.train], b.X[data.train])
    assert a.X.shape == (240, 6)
    assert a.origin["whitened"] == 6


def test_splits_must_be_by_class() -> None:
    data = make_data()
    with pytest.raises(InputError, match="on both sides"):
        Descriptors(data.X, data.labels, np.arange(240) < 120, {})
    with pytest.raises(InputError, match="no training rows"):
        Descriptors(data.X, data.labels, np.zeros(240, bool), {})


def test_unknown_methods_are_named() -> None:
    with pytest.raises(InputError, match="'lda2'"):
        chosen_methods(("raw", "lda2"))


def test_files(tmp_path: Path) -> None:
    data = make_data(classes=120, n=480)
    numbered = data.labels  # 1 .. 120: the first hundred are training classes of CUB
    np.savez(tmp_path / "a.npz", rmac=data.X, y=numbered, train=numbered <= 60)
    options = ReadOptions(array="rmac")
    assert np.array_equal(
        from_file("folders", str(tmp_path / "a.npz"), options).train, numbered <= 60
    )
    np.save(tmp_path / "x.npy", data.X)
    np.save(tmp_path / "y.npy", numbered)
    files: Any = (str(tmp_path / "x.npy"), ReadOptions(), str(tmp_path / "y.npy"))
    assert np.array_equal(from_file("cub", *files).train, numbered <= 100)
    assert np.array_equal(from_file("cars", *files).train, numbered <= 98)
    with pytest.raises(InputError, match="does not say which rows are for training"):
        from_file("folders", *files)
    with pytest.raises(InputError, match="no test rows"):
        from_file("sop", *files)
    np.savez(tmp_path / "b.npz", X=data.X, y=numbered, train=np.ones(3))
    with pytest.raises(InputError, match="one value per row"):
        from_file("cub", str(tmp_path / "b.npz"), ReadOptions())


def test_tables_mark_what_is_published() -> None:
    rows, _ = run_methods(make_data(), ["raw", "paper"], 4)
    published = published_rows("cub")
    lines = as_lines(rows, published, (1, 2, 4, 8))
    assert len({len(line) for line in lines}) == 1
    assert [line[-1] for line in lines[1:]] == ["published"] * 14 + ["measured"] * 3
    assert lines[-1][0] == "RPML as printed, Euclidean"
    assert "43.7" in next(line for line in lines if line[0] == "sRPML")
    text = as_markdown(rows, published, (1, 2, 4, 8))
    assert text.count("\n") == len(lines) + 1
    assert "| *sRPML* |" in text
    assert "| RPML as printed |" in text
    fields = as_fields(rows, published)
    assert {row["source"] for row in fields["published"]} == {"published"}
    quoted = [fields["published"][6][f"recall@{k}"] for k in (1, 2, 4, 8)]
    assert quoted == [43.7, 56.5, 68.3, 79.4]


def test_rows_are_complete() -> None:
    assert [len(published_rows(name)) for name in ("cub", "cars", "sop", "folders")] == [
        14,
        7,
        7,
        0,
    ]
    for name, ks in RECALL_AT.items():
        for row in published_rows(name):
            recall = [row[f"recall@{k}"] for k in ks]
            assert recall == sorted(recall)
            assert 0 < row["nmi"] < 100


def test_figures_that_the_literature_repeats() -> None:
    by_name = {(d, r["method"]): r for d in RECALL_AT for r in published_rows(d)}
    assert by_name["cub", "sRPML"]["nmi"] == 53.1
    assert by_name["cub", "sRPML"]["recall@1"] == 43.7
    assert by_name["cars", "sRPML"]["recall@1"] == 44.6
    assert by_name["sop", "sRPML"]["recall@100"] == 78.1
    assert by_name["cub", "Initial (random)"]["recall@1"] == 31.5
    assert by_name["cub", "Lifted"]["uses_labels"]
    assert by_name["cub", "Lifted"]["table"] == 2
    assert not any(r["uses_labels"] for r in published_rows("cars"))
