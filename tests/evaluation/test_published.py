"""The published tables: whole, and as in the text that repeats some of their figures."""

from __future__ import annotations

from rpml.evaluation.published import RECALL_AT, published_rows


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
