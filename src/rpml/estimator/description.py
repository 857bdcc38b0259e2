"""Descriptions of models: what the fit came to and what it discounts, and what their files hold."""

from __future__ import annotations

import html
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rpml.estimator.fitted import training_counts
from rpml.io.container import Arrays, read_model
from rpml.method.calibration import expected_gain
from rpml.method.graph.heaps import nearest_others
from rpml.runtime.context import data_digest
from rpml.runtime.errors import counted
from rpml.runtime.rows import AnyArray, Array, Indices, sorted_sample, unit_rows

if TYPE_CHECKING:
    from rpml.estimator.embedding import Embedding
    from rpml.estimator.rpml import RPML

SEPARATED_PAIRS = 3  # of rows that were nearest and no longer are, shown as examples
SEPARATED_NEAREST = 10
SEPARATED_ROWS = 20_000
SEPARATED_QUERIES = 1000
Pair = tuple[int, int]
_SIMILAR = {"groups": "rows of one group", "pairs": "paired rows", "labels": "rows of one class"}


def describe_model(model: RPML, path: str | PathLike[str]) -> dict[str, object]:
    """Describe the shape, settings, training and decisions of a model loaded from `path`."""
    arrays, metadata = read_model(path)
    training = {name: v for name, v in metadata["training"].items() if name != "history"}
    loss, run = mean_losses(model), metadata.get("run", {})
    labels = vars(model).get("labels_", np.empty(0, np.intp))
    sizes = np.unique(labels[labels >= 0], return_counts=True)[1]
    clusters = {"count": len(sizes)}
    if len(sizes):
        clusters |= {"largest": int(sizes.max()), "singletons": int((sizes == 1).sum())}
    weights, quantiles = vars(model).get("triplet_weights_", np.empty(0)), {}
    if len(weights):
        low, middle, high = np.quantile(weights, [0.05, 0.5, 0.95]).tolist()
        quantiles = {"mean": float(weights.mean()), "5%": low, "50%": middle, "95%": high}
    return {
        "kind": "model",
        "path": str(path),
        "format_version": metadata["format_version"],
        "rpml_version": metadata["rpml_version"],
        "features": model.n_features_in_,
        "dim": len(model.components_),
        "fingerprint": map_fingerprint(model),
        "arrays": describe_arrays(arrays),
        "preprocessing": metadata["preprocessing"],
        "normalize": model.normalize,
        "feature_names": metadata["feature_names"] or [],
        "settings": metadata["settings"],
        "decisions": decisions(model),
        "training": training,
        "outcome": model.outcome_,
        "clusters": clusters,
        "loss": {"first": loss[0], "last": loss[-1]} if loss else {},
        "triplet_weights": quantiles,
        "interrupted": bool(run.get("interrupted", False)),
        "trained_on": run.get("options", {}).get("features", "unknown"),
    }


def map_fingerprint(model: RPML) -> str:
    """Return a short hash that a model shares with its indexes, whatever their dimensions."""
    applied = model.preprocessing_
    first = (applied.matrix @ model.components_[0]).astype(np.float32)
    power = () if isinstance(model.whiten, str | None) else (model.whiten,)  # not of the first axis
    return data_digest(np.asarray(applied.mean, np.float64), first, *power)[:16]


def describe_arrays(arrays: Arrays) -> dict[str, dict[str, object]]:
    """Return shape, dtype, bytes and share of all bytes of each array, the largest first."""
    total = sum(array.nbytes for array in arrays.values())
    return {
        name: {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "bytes": array.nbytes,
            "share": array.nbytes / total,
        }
        for name, array in sorted(arrays.items(), key=lambda item: -item[1].nbytes)
    }


def mean_losses(model: RPML) -> list[float]:
    """Return the loss of each iteration or epoch, as the mean over triplets."""
    # the stochastic solver already reports means
    count = 1 if model.solver == "stochastic" else max(1, training_counts(model)["n_triplets"])
    return [float(loss) / count for loss in vars(model).get("history_", {}).get("loss", [])]


def outcome_facts(model: Embedding) -> dict[str, str]:
    """Return what the fit came to, its size, and where known the knowledge used and the gain."""
    size = f"{model.n_features_in_} to {counted(len(model.components_), 'dimension')}"
    if model.message_.startswith("bridge"):
        return {"outcome": model.message_, "size": size}
    facts = {"outcome": model.outcome_, "size": size, "rows": counted(model.n_samples_, "row")}
    choice = model.whitening_
    sources = [] if choice is None else choice.source.split(" and ")
    used = [source for source in sources if source not in ("neighbors", "none")]
    labeled = np.any(vars(model).get("labeled_mask_", False))
    if labeled and "labels" not in used and not (choice and choice.labels_ignored):
        used.append("labels")
    if used or not model.n_iter_:  # which constraints a training had is not stored
        facts["knowledge used"] = " and ".join(used) or "none"
    if choice is not None and choice.gain is not None:
        gain = expected_gain(choice.gain.value)
        value, low, high = (f"{100 * v:+z.1f}" for v in (gain.value, gain.low, gain.high))
        text = f"{value} points of Recall@1 ({low} to {high})" if choice.gain.value > 0 else "none"
        facts["expected gain over PCA"] = text
    return facts


def result_line(model: Embedding) -> str:
    """Return the facts of `outcome_facts` as one line, the same wherever a fit is described."""
    return "; ".join(
        text if name in ("outcome", "size", "rows") else f"{name}: {text}"
        for name, text in outcome_facts(model).items()
    )


def result_table(model: Embedding) -> str:
    """Return the facts of `outcome_facts` as an HTML table, for notebooks."""
    rows = "".join(
        f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>"
        for name, text in outcome_facts(model).items()
    )
    return f"<table><tbody>{rows}</tbody></table>"


def describe_outcome(model: RPML) -> str:
    """Explain what the fit came to in words."""
    choice, rows = model.whitening_, "unit-length rows" if model.normalize_input else "the rows"
    pca, trained = f"PCA of {rows}", ", then trained on triplets" if model.n_iter_ else ""
    if model.center < 1 and (model.whiten == 0 or (choice is not None and not choice.whitens)):
        pca += f", {model.center:.0%} of the mean subtracted"
    if choice is None:
        return f"{pca}, whitened as set{trained}" if model.whiten else f"{pca}{trained}"
    kinds = [_SIMILAR.get(source, "similar rows") for source in choice.source.split(" and ")]
    differ = f"in which {' and '.join(dict.fromkeys(kinds))} differ"
    if np.isfinite(choice.shrinkage):
        return f"learned axes: directions {differ} count less{trained}"
    if choice.whitens:
        return f"{pca}, with the axes {differ} scaled down{trained}"
    return f"{pca}{trained}" if trained else f"{pca}: the rows support nothing better"


def outcome_lines(model: RPML) -> dict[str, str]:
    """Return what the fit came to and the evidence for it, as titles and sentences."""
    decided, choice = decisions(model), model.whitening_
    lines = {"outcome": result_line(model)}
    if not model.message_.startswith("bridge"):
        lines["meaning"] = describe_outcome(model)
    if choice is not None and choice.reason and not (choice.nuisance and choice.nuisance.used):
        lines["evidence"] = choice.reason
    skipped = ("whitening",) if model.n_iter_ else ("whitening", "training")
    return lines | {title: text for title, text in decided.items() if title not in skipped}


def decisions(model: RPML) -> dict[str, str]:
    """Explain what a fit decided by itself: the whitening, the training, the groups and pairs."""
    choice, training = model.whitening_, model.message_
    if model.n_iter_:
        training = f"{counted(model.n_iter_, 'iteration')} ({training})"
    if choice is None:
        return {"whitening": "as set", "training": training}
    whitening = f"by {choice.source}, {choice.strength}" if choice.whitens else choice.strength
    whitening += f", because {choice.reason}" if choice.reason else ""
    decided = {"whitening": whitening, "training": training}
    if choice.groups_ignored:
        decided["groups"] = f"ignored, because {choice.groups_ignored}"
    if choice.nuisance is not None:
        decided[choice.nuisance.source] = choice.nuisance.summary
    if choice.labels_ignored:
        decided["labels"] = f"ignored, because {choice.labels_ignored}"
    if (pairs := choice.pairs) is not None:
        used = "used" if pairs.used else "ignored"
        share = f"; about {pairs.rate:.0%} are right" if pairs.rate else ""  # or not measured
        decided["pairs"] = f"{used}, because {pairs.reason}{share}"
    return decided


def separated_pairs(
    X: Array, Z: Array, rows: Indices, values: AnyArray | None = None
) -> list[Pair]:
    """Return the most similar of some rows X that were nearest neighbors and are not near in Z.

    Pairs are given by the numbers `rows` of these rows. With the `values` of a nuisance, empty or
    -1 where unknown, only pairs that share its value are returned.
    """
    asked = sorted_sample(len(X), SEPARATED_QUERIES, np.random.default_rng(0))
    k = min(SEPARATED_NEAREST, len(X) - 1)
    spaces = (np.asarray(space, np.float32) for space in (X, Z))
    before, after = (nearest_others(space, asked, k) for space in spaces)
    nearest = before[:, 0]
    gone = ~(after == nearest[:, None]).any(axis=1)
    if values is not None:
        known = values != ("" if values.dtype.kind == "U" else -1)
        gone &= (values[asked] == values[nearest]) & known[asked]
    similarity = np.einsum("ij,ij->i", unit_rows(X[asked]), unit_rows(X[nearest]))
    pairs: list[Pair] = []
    seen: set[int] = set()
    for place in np.flatnonzero(gone)[np.argsort(-similarity[gone], kind="stable")].tolist():
        pair = int(asked[place]), int(nearest[place])
        if not seen.intersection(pair):
            seen.update(pair)
            pairs.append((int(rows[pair[0]]), int(rows[pair[1]])))
        if len(pairs) == SEPARATED_PAIRS:
            break
    return pairs


def discounted_pairs(model: RPML, X: Array, values: AnyArray | None = None) -> list[Pair]:
    """Return such pairs among (a sample of) the rows of a fit; none if it is PCA."""
    if model.outcome_ == "PCA" or len(X) < 3:
        return []
    rows = sorted_sample(len(X), SEPARATED_ROWS, np.random.default_rng(0))
    sample = np.asarray(X[rows])
    known = None if values is None else values[rows]
    Z = model.preprocessing_.embed(sample, model.components_, model.normalize)  # names unchecked
    return separated_pairs(sample, Z, rows, known)


def named_pairs(pairs: Sequence[Pair], ids: NDArray[np.object_] | None) -> list[list[str | int]]:
    """Return the pairs by their ids, or by row numbers from 0."""
    return [[row if ids is None else str(ids[row]) for row in pair] for pair in pairs]


def separated_question(pairs: Sequence[Sequence[object]], numbered: bool) -> str:
    """Return what pairs of ids, or of row numbers, are, and the question that they raise."""
    listed = "; ".join(f"{a} and {b}" for a, b in pairs)
    kind = "Rows " if numbered else ""
    return (
        f"{kind}{listed} were nearest neighbors and are not among each other's {SEPARATED_NEAREST} "
        "nearest now. Does their difference matter? Then use PCA, or say what belongs together "
        "(labels, groups, pairs)."
    )
