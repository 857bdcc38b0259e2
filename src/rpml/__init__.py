"""rpml: learn a smaller linear embedding from unlabeled vectors."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpml.estimator import RPML
    from rpml.evaluation.comparison import compare
    from rpml.evaluation.diagnostics import diagnose
    from rpml.evaluation.recommendation import recommend
    from rpml.evaluation.resources import estimate_resources
    from rpml.method.clustering.aas import AuthorityAscentShift
    from rpml.pages.notebook import explore, report

__version__ = "0.1.0"

# public name -> module; imported on first use so that `import rpml` stays instant (PEP 562)
_EXPORTS = {
    "RPML": "rpml.estimator",
    "AuthorityAscentShift": "rpml.method.clustering.aas",
    "compare": "rpml.evaluation.comparison",
    "diagnose": "rpml.evaluation.diagnostics",
    "estimate_resources": "rpml.evaluation.resources",
    "explore": "rpml.pages.notebook",
    "recommend": "rpml.evaluation.recommendation",
    "report": "rpml.pages.notebook",
}
__all__ = [
    "RPML",
    "AuthorityAscentShift",
    "__version__",
    "compare",
    "diagnose",
    "estimate_resources",
    "explore",
    "recommend",
    "report",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'rpml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
