"""rpml: learn a smaller linear embedding from unlabeled vectors."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpml.estimator import RPML as RPML
    from rpml.evaluation.comparison import compare as compare
    from rpml.evaluation.diagnostics import diagnose as diagnose
    from rpml.evaluation.recommendation import recommend as recommend
    from rpml.evaluation.resources import estimate_resources as estimate_resources
    from rpml.method.clustering.aas import AuthorityAscentShift as AuthorityAscentShift
    from rpml.pages.notebook import explore as explore
    from rpml.pages.notebook import report as report

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
__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'rpml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
