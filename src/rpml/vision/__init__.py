"""From images to feature vectors: decoding, an ONNX backbone, R-MAC and other pooling."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpml.vision.backbone import Backbone, Convention
    from rpml.vision.extract import Extraction, Recipe, extract
    from rpml.vision.files import find_images
    from rpml.vision.pooling import Pooling, rmac_regions
    from rpml.vision.views import Views
    from rpml.vision.whitening import Whitening

# imported on first use: pillow and onnxruntime are optional and slow to load (PEP 562)
_EXPORTS = {
    "Backbone": "rpml.vision.backbone",
    "Convention": "rpml.vision.backbone",
    "Extraction": "rpml.vision.extract",
    "Pooling": "rpml.vision.pooling",
    "Recipe": "rpml.vision.extract",
    "Views": "rpml.vision.views",
    "Whitening": "rpml.vision.whitening",
    "extract": "rpml.vision.extract",
    "find_images": "rpml.vision.files",
    "rmac_regions": "rpml.vision.pooling",
}
__all__ = [
    "Backbone",
    "Convention",
    "Extraction",
    "Pooling",
    "Recipe",
    "Views",
    "Whitening",
    "extract",
    "find_images",
    "rmac_regions",
]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'rpml.vision' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
