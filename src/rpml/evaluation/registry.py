"""The registry of methods: name, title, constructor, and whether labels are used.

`compare`, `benchmark`, `demo`, `recommend` and the report all read this table. A new method is one
file and one line here.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol, Self

from numpy.typing import ArrayLike

from rpml.estimator import RPML
from rpml.evaluation.baselines import LDA, NCA, PCA, RandomProjection, Truncation
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array, RandomState
from rpml.runtime.wording import one_line


class Transformer(Protocol):
    """An estimator with fit and transform, as in scikit-learn."""

    def fit(self, X: Array, y: ArrayLike | None = None) -> Self: ...

    def transform(self, X: Array) -> Array: ...


Build = Callable[[int, RandomState], Transformer]
KNOWN = "rpml-known"
"""RPML that sees the nuisance and the queries of a comparison."""


@dataclass(frozen=True)
class Method:
    """One row of the table.

    `name` is used in Python and on the command line, `title` in tables and sentences. `build`
    returns the unfitted estimator for (n_components, seed). If `uses_labels`, `fit` sees the
    classes of the training rows: an upper reference. If `uses_knowledge`, it sees what else is
    known of them: a nuisance, queries.
    """

    name: str
    title: str
    build: Build
    uses_labels: bool = False
    uses_knowledge: bool = False

    def fit(
        self,
        X: Array,
        y: ArrayLike | None,
        n_components: int,
        seed: RandomState,
        known: Mapping[str, object] | None = None,
    ) -> tuple[Transformer, float, list[str]]:
        """Return the fitted estimator, the seconds of its fit and the texts of its warnings.

        Classes y and what is known are passed on only to methods that use them.
        """
        estimator = self.build(n_components, seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start = time.perf_counter()
            more = known if self.uses_knowledge and known else {}
            estimator.fit(X, y if self.uses_labels else None, **more)
            seconds = round(time.perf_counter() - start, 3)
        return estimator, seconds, sorted({one_line(w.message) for w in caught})


def seeded(estimator: Callable[..., Transformer], **settings: object) -> Build:
    """Return the constructor of an estimator with a random_state."""
    return lambda n_components, seed: estimator(n_components, random_state=seed, **settings)


def unseeded(estimator: Callable[..., Transformer], **settings: object) -> Build:
    """Return the constructor of a deterministic estimator."""
    return lambda n_components, seed: estimator(n_components, **settings)


def trained(**settings: object) -> Build:
    """Return the constructor of an RPML variant that always trains, so that variants differ."""
    return seeded(RPML, training="always", **settings)


_TABLE = (
    Method("raw", "raw features", lambda n_components, seed: Truncation(None)),
    Method("truncation", "first columns", unseeded(Truncation)),
    Method("random", "random projection", seeded(RandomProjection)),
    Method("pca", "PCA", unseeded(PCA)),
    Method("half-whitened", "half-whitened PCA", unseeded(PCA, exponent=0.5)),
    Method("pca-whitened", "whitened PCA", unseeded(PCA, exponent=1.0)),
    Method(
        "whitened-512",
        "all axes whitened, at most 512",
        lambda n_components, seed: PCA(None, exponent=1.0),
    ),
    Method("rpml", "RPML", seeded(RPML)),
    Method(KNOWN, "RPML with what is known", seeded(RPML), uses_knowledge=True),
    Method("rpml-trained", "RPML, always trained", trained()),
    Method("rpml-bilinear", "RPMLv1", trained(weight="bilinear")),
    Method("srpml", "sRPML", trained(solver="stochastic")),
    Method("srpml-random", "sRPML from random", trained(solver="stochastic", init="random")),
    Method("paper", "RPML as printed", seeded(RPML.paper)),
    Method("paper-stochastic", "sRPML as printed", seeded(RPML.paper, solver="stochastic")),
    Method("lda", "LDA (uses labels)", unseeded(LDA), uses_labels=True),
    Method("nca", "NCA (uses labels)", seeded(NCA), uses_labels=True),
)
METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
REFERENCE = "pca"
"""The method that gains are measured over."""
PCA_FAMILY = (REFERENCE, "half-whitened", "pca-whitened")


def chosen_methods(names: Iterable[str | Method]) -> list[Method]:
    """Return the methods of these names; InputError for an unknown name.

    A method that is not in the table is passed as it is.
    """
    methods = []
    for name in [names] if isinstance(names, str) else names:
        method = name if isinstance(name, Method) else METHODS.get(name)
        if method is None:
            near = get_close_matches(str(name), METHODS) or [*PCA_FAMILY, "rpml"]
            raise InputError(
                f"there is no method {name!r}, but {', '.join(near)} and others: "
                "rpml compare --help lists them"
            )
        methods.append(method)
    return methods
