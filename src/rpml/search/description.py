"""Descriptions of index files, as JSON values."""

import os
from os import PathLike

from rpml.estimator.description import decisions, describe_arrays, map_fingerprint
from rpml.io.container import read_container
from rpml.search.index import FORMAT_VERSION, Index


def describe_index(path: str | PathLike[str]) -> dict[str, object]:
    """Describe the rows and codes of an index, and the model that it belongs to."""
    index = Index.load(path)
    arrays, fields = read_container(str(path), "index", FORMAT_VERSION)
    ids = arrays.get("ids")
    return {
        "kind": "index",
        "path": str(path),
        "format_version": fields["format_version"],
        "rpml_version": str(fields.get("rpml_version")),
        "rows": len(index),
        "features": index.model.n_features_in_,
        "dim": len(index.model.components_),
        "codes": index.output,
        "rescore": index.rescore,
        "recall": index.recall,
        "bytes_per_row": index.bytes_per_row,
        "bytes": os.path.getsize(path),
        "ids": None if ids is None else "text" if ids.dtype.kind == "u" else "numbers",
        "fingerprint": map_fingerprint(index.model),
        "arrays": describe_arrays(arrays),
        "feature_names": list(getattr(index.model, "feature_names_in_", [])),
        "settings": fields["metadata"]["model"]["settings"],
        "decisions": decisions(index.model),
    }
