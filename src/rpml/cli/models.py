"""Loading a model for a command, and checking it against the features it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rpml.estimator import RPML


class Described(Protocol):
    """Features of whichever source."""

    name: str

    @property
    def n_features(self) -> int: ...

    @property
    def feature_names(self) -> Sequence[str] | None: ...


def load_model(path: str, dim: int | None = None) -> RPML:
    """A model, cut to its first `dim` components if asked."""
    from rpml.estimator import RPML

    model = RPML.load(path)
    if dim is None:
        return model
    size = len(model.components_)
    if dim > size:
        raise InputError(f"--dim {dim} is more than the {size} components of {path}")
    model.components_ = model.components_[:dim]
    return model


def check_features(model: RPML, source: Described, path: str) -> None:
    """Refuse features of another number or with other names than the model was fitted on."""
    if source.n_features != model.n_features_in_:
        raise InputError(
            f"{path} was fitted on {model.n_features_in_} features, "
            f"{source.name} has {source.n_features}"
        )
    names = getattr(model, "feature_names_in_", None)
    if names is not None and source.feature_names is not None:
        pairs = zip(names, source.feature_names, strict=True)
        wrong = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if wrong is not None:
            raise InputError(
                f"column {wrong} of {source.name} is {source.feature_names[wrong]!r}, "
                f"{path} was fitted on {names[wrong]!r} there"
            )
    if names is not None:
        del model.feature_names_in_  # checked here; arrays without names would only warn
