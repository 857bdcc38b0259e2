"""Write the fixture of the current model format; run once per format version, then commit it."""

import json
from pathlib import Path

import numpy as np

from rpml import RPML
from rpml.io.container import FORMAT_VERSION

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    y = np.arange(60) % 4
    X = rng.normal(size=(4, 6))[y] + 0.3 * rng.normal(size=(60, 6))
    model = RPML(3, n_neighbors=8, random_state=0).fit(X)
    target = Path(__file__).parent / f"model_v{FORMAT_VERSION}.rpml"
    model.save(target)
    rows = rng.normal(size=(5, 6))
    fields = {
        "rows": rows.tolist(),
        "embedding": model.transform(rows).tolist(),
        "n_iter": model.n_iter_,
    }
    target.with_suffix(".json").write_text(json.dumps(fields))
