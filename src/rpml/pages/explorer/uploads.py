"""Uploaded queries: a .npy vector or an image, validated before anything is computed."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.numpy_files import read_npy_header
from rpml.method.whitening.linear_map import Preprocessing
from rpml.pages.items import thumbnail
from rpml.runtime.errors import InputError, counted, explained
from rpml.runtime.rows import Array, Floats

if TYPE_CHECKING:
    from rpml.vision.backbone import Backbone
    from rpml.vision.extract import Recipe


MAX_VECTOR_BYTES = 2 * 2**20
MAX_IMAGE_BYTES = 20 * 2**20
MAX_IMAGE_PIXELS = 40_000_000
UPLOAD_SIDE = 400  # pixels of an uploaded image in the page

Describe = Callable[[bytes], tuple[Floats, bytes | None]]


def parse_vector(data: bytes, n_features: int) -> NDArray[np.float64]:
    """Return the vector in the bytes of a .npy file; the header is not trusted."""
    stream = BytesIO(data)
    with explained("the upload is not a .npy file"):
        shape, _, dtype = read_npy_header(stream)
    if dtype.hasobject or dtype.kind not in "fiub":
        raise InputError(f"the uploaded array has dtype {dtype}, and a query must be real numbers")
    if shape not in ((n_features,), (1, n_features)):
        raise InputError(
            f"the uploaded array has shape {shape}, and a query must be one vector of "
            f"{counted(n_features, 'number')}"
        )
    body = data[stream.tell() :]
    if len(body) < n_features * dtype.itemsize:
        raise InputError("the uploaded .npy file is truncated")
    vector = np.frombuffer(body, dtype, n_features).astype(np.float64)
    if not np.isfinite(vector).all():
        raise InputError("the uploaded vector holds a NaN or an infinite number")
    return vector


@dataclass(frozen=True)
class Upload:
    """An uploaded query; `picture` is None for a vector."""

    name: str
    vector: Array
    picture: bytes | None = None

    @cached_property
    def token(self) -> str:
        """Its address while the server runs; the same vector has the same one."""
        return hashlib.sha256(self.vector.tobytes()).hexdigest()[:20]


def image_describer(
    backbone: Backbone, recipe: Recipe, whitening: Preprocessing | None = None
) -> Describe:
    """Return a function from the bytes of an image to its vector and a small picture of it."""
    from rpml.vision.extract import extract
    from rpml.vision.images import ImageError, ImageFile, load_rgb
    from rpml.vision.pooling import whiten

    recipe = replace(recipe, max_pixels=min(recipe.max_pixels, MAX_IMAGE_PIXELS))

    def describe(data: bytes) -> tuple[Floats, bytes | None]:
        with tempfile.TemporaryDirectory(prefix="rpml-") as folder:
            path = Path(folder, "query")
            path.write_bytes(data)
            try:
                load_rgb(path, recipe.max_pixels, enough=64)
            except ImageError as error:  # without the temporary path
                raise InputError(f"the uploaded image cannot be used: {error}") from None
            image = ImageFile("the uploaded image", path)
            features = extract([image], backbone, recipe, workers=1, strict=True)
            picture = thumbnail(path, UPLOAD_SIDE)
        values = features.values if whitening is None else whiten(features.values, whitening)
        return np.asarray(values[0], np.float32), picture

    return describe


def sample_image() -> bytes:
    """Return a small picture to test a network with."""
    side = 64
    shades = bytes((7 * x * y + 3 * x) % 256 for y in range(side) for x in range(3 * side))
    return f"P6 {side} {side} 255\n".encode() + shades
