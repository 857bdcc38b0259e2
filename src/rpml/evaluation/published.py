"""Tables 1 and 2 of the paper: published figures in percent.

U. K. Dutta, M. Harandi, C. C. Sekhar, "A Probabilistic approach for Learning Embeddings without
Supervision" (preprint, 2019).
"""

from rpml.evaluation.metrics.retrieval import KS
from rpml.runtime.context import Json

RECALL_AT = {"cub": KS, "cars": KS, "sop": (1, 10, 100)}
"""The K of Recall@K on each dataset."""

# Per dataset NMI, then Recall@K in the order of RECALL_AT.
_TABLE_1 = """
Initial (random) | 34.6 31.5 42.4 55.0 67.0 | 23.4 22.7 31.7 42.7 54.8 | 79.8 25.4 35.6 48.5
Exemplar         | 45.0 38.2 50.3 62.8 75.0 | 35.4 36.5 48.1 59.2 71.0 | 85.0 45.0 60.3 75.2
NCE              | 45.1 39.2 51.4 63.7 75.8 | 35.6 37.5 48.7 59.8 71.5 | 85.8 46.6 62.3 76.8
DeepCluster      | 53.0 42.9 54.1 65.6 76.2 | 38.5 32.6 43.8 57.0 69.5 | 82.8 34.6 52.6 66.8
MOM              | 55.0 45.3 57.8 68.6 78.4 | 38.6 35.5 48.2 60.6 72.4 | 84.4 43.3 57.2 73.2
Invariant        | 55.4 46.2 59.0 70.1 80.2 | 35.8 41.3 52.3 63.6 74.9 | 86.0 48.9 64.0 78.0
sRPML            | 53.1 43.7 56.5 68.3 79.4 | 40.0 44.6 56.9 68.6 79.5 | 82.5 47.5 63.5 78.1
"""
# On CUB, with class labels; the paper repeats its own row there.
_TABLE_2 = """
Contrastive      | 47.2 27.2 36.3 49.8 62.1
DDML             | 47.3 31.2 41.6 54.7 67.1
Triplet          | 49.8 35.9 47.7 59.1 70.0
Triplet + hard   | 53.4 40.6 52.3 64.2 75.0
Triplet + DAML   | 51.3 37.6 49.3 61.3 74.4
Triplet + HDML   | 55.1 43.6 55.8 67.7 78.3
Lifted           | 56.4 46.9 59.8 71.2 81.5
"""


def published_rows(dataset: str) -> list[Json]:
    """Return all published rows of a dataset ("cub", "cars", "sop"), if any.

    `table` is the number of the table in the paper.
    """
    if dataset not in RECALL_AT:
        return []
    rows = _column(_TABLE_1, dataset, uses_labels=False, table=1)
    return rows + (_column(_TABLE_2, dataset, True, 2) if dataset == "cub" else [])


def _column(text: str, dataset: str, uses_labels: bool, table: int) -> list[Json]:
    rows = []
    for line in text.strip().splitlines():
        method, *cells = line.split("|")
        nmi, *recall = map(float, cells[list(RECALL_AT).index(dataset)].split())
        by_k = {f"recall@{k}": r for k, r in zip(RECALL_AT[dataset], recall, strict=True)}
        row = {"method": method.strip(), "uses_labels": uses_labels, "nmi": nmi, "table": table}
        rows.append({**by_k, **row})
    return rows
