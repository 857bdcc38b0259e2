"""A folder of sentence-transformers modules, to append to the model whose embeddings were fitted.

Written without torch: each Dense is a config and a safetensors file, each Normalize a config.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from rpml.io.export import Affine, Step, bias

_TYPES = "sentence_transformers.models"
README = """# An rpml embedding as sentence-transformers modules

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("the model whose embeddings rpml was fitted on")
for module in SentenceTransformer("this folder"):
    model.append(module)
```

For fewer dimensions scale the truncated rows to unit norm again, or dot products mislead:
`model.encode(texts, truncate_dim=8, normalize_embeddings=True)`.
"""


def write(steps: Sequence[Step], path: Path) -> None:
    """Write the folder in the layout that `SentenceTransformer(folder)` reads."""
    modules = []
    for i, step in enumerate(steps):
        kind = "Dense" if isinstance(step, Affine) else "Normalize"
        folder = path / f"{i}_{kind}"
        folder.mkdir()
        if isinstance(step, Affine):
            _write_dense(step, folder)
        else:
            _write_json(folder / "config.json", {"module_input_name": "sentence_embedding"})
        modules.append({"idx": i, "name": str(i), "path": folder.name, "type": f"{_TYPES}.{kind}"})
    _write_json(path / "modules.json", modules)
    (path / "README.md").write_text(README, encoding="utf8")


def _write_dense(step: Affine, folder: Path) -> None:
    d, size = step.matrix.shape
    config = {
        "in_features": d,
        "out_features": size,
        "bias": step.mean is not None,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    _write_json(folder / "config.json", config)
    weights = {"linear.weight": np.ascontiguousarray(step.matrix.T, np.float32)}
    if step.mean is not None:
        weights["linear.bias"] = bias(step).astype(np.float32)
    (folder / "model.safetensors").write_bytes(save(weights))


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf8")
