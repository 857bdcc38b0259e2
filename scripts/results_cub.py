"""Write docs/results/cub.md and benchmarks/results/cub.json from a finished `rpml benchmark cub`.

rpml benchmark cub --features cub_googlenet.npz -o cub
python scripts/results_cub.py cub
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMMAND = "rpml benchmark cub --features cub_googlenet.npz -o cub"
PAGE = """\
# CUB-200-2011: the paper's protocol on frozen GoogLeNet features

In short:

- The published starting point is far below ours ("Initial": R@1 31.5, against {random[r1]:.1f}
  for a random projection to 128 dimensions). The descriptors or the embedding dimension, which
  the paper does not state, must differ, so published rows and ours are only roughly comparable.
- `RPML(128)` has R@1 {rpml[r1]:.1f} and NMI {rpml[nmi]:.1f} with an eighth of the dimensions of
  the raw descriptors ({raw[r1]:.1f} and {raw[nmi]:.1f}); half-whitened PCA of the same size has
  {half-whitened[r1]:.1f} and {half-whitened[nmi]:.1f}.
- sRPML from a random subspace, as in the paper, improves R@1 from {random[r1]:.1f} to
  {srpml-random[r1]:.1f}.
- The objective as printed hardly moves ({paper[r1]:.1f}, stochastic {paper-stochastic[r1]:.1f}):
  its weights collapse, and the fit warns about it.
- Whitening to 512 dimensions alone gives {whitened-512[r1]:.1f} and {whitened-512[nmi]:.1f}, with
  four times as many dimensions as RPML.

Fitted without labels on the {rows[train]:,} images of classes 1 to 100, scored on the
{rows[test]:,} images of classes 101 to 200. The features are 1024-dimensional R-MAC descriptors
of an ImageNet GoogLeNet (BVLC) at three scales (512, 362 and 256 pixels on the longer side). NMI
and pairwise F, precision (P) and recall (R) are computed on k-means clusters, k = 100. R@K is
Recall@K by cosine similarity, or by Euclidean distance, as in the authors' code, where the row
says so. All scores are percentages.

Rows in italics are **published results**, copied from Tables 1 and 2 of the paper, not measured
by us. Most of them train the network; our rows learn a linear map on frozen descriptors.

{table}
One seed ({seed}); rpml {versions[rpml]}, numpy {versions[numpy]}, scikit-learn
{versions[scikit-learn]}. Reproduce with

```text
{command}
```

or, from the images, with

```text
rpml benchmark cub --root CUB_200_2011 --backbone googlenet.onnx -o cub
```
"""


def main() -> None:
    folder = Path(sys.argv[1])
    found = json.loads((folder / "results.json").read_text(encoding="utf8"))
    found["command"] = COMMAND.split()  # without the paths of this machine
    scores = {row["method"]: row["scores"]["cosine"] for row in found["measured"]}
    values = {
        name: {"r1": 100 * row["recall@1"], "nmi": 100 * row["nmi"]} for name, row in scores.items()
    }
    table = (folder / "results.md").read_text(encoding="utf8")
    text = PAGE.format_map({**found, **values, "table": table, "command": COMMAND})
    page = ROOT / "docs" / "results" / "cub.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text(text, encoding="utf8")
    target = ROOT / "benchmarks" / "results" / "cub.json"
    target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf8")


if __name__ == "__main__":
    main()
