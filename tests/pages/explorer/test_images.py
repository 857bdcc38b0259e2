"""Searching with an image, by a tiny network."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="searching with images needs the extra 'vision'")

from rpml import RPML
from rpml.pages.explorer import uploads
from rpml.pages.explorer.app import make_app
from rpml.pages.explorer.catalog import make_catalog
from rpml.pages.explorer.uploads import image_describer, sample_image
from rpml.pages.items import make_items
from rpml.runtime.errors import InputError
from rpml.vision.backbone import Backbone
from rpml.vision.extract import Recipe, extract
from rpml.vision.images import find_images
from tests.cli.conftest import Run
from tests.pages.explorer.client import Client, running
from tests.vision.conftest import noise_image, tiny_network


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_network(tmp_path_factory.mktemp("network") / "tiny.onnx")


def png(seed: int) -> bytes:
    out = BytesIO()
    noise_image(seed).save(out, "PNG")
    return out.getvalue()


def test_an_image_finds_itself(network: Path, tmp_path: Path) -> None:
    for seed in range(12):
        (tmp_path / f"{seed:02d}.png").write_bytes(png(seed))
    recipe = Recipe(scales=(64,))
    X = extract(find_images(tmp_path), Backbone(network), recipe).values
    model = RPML(2, clustering=np.arange(12) % 3, tol=0.5, random_state=0).fit(X)
    describe = image_describer(Backbone(network), recipe)
    catalog = make_catalog(model, X, make_items(12, images=tmp_path))
    with running(make_app(catalog, describe=describe)) as port:
        client = Client(port)
        kept = client.post("/api/upload/image", png(7), x_file_name="seven.png").json
        found = client.json("/api/neighbors", upload=kept["upload"], space="raw", k=1)
        assert found["items"][0]["row"] == 7
        refused = client.post("/api/upload/image", b"<svg onload=alert(1)>")
        assert refused.status == 422
        assert "the uploaded image" in refused.sentence


def test_images_of_too_many_pixels_are_refused(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_IMAGE_PIXELS", 1000)
    describe = image_describer(Backbone(network), Recipe(scales=(64,)))
    with pytest.raises(InputError, match="pixels"):
        describe(png(0))


def test_a_network_of_another_size_is_refused(network: Path, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    RPML(2, clustering=np.arange(60) % 3, tol=0.5, random_state=0).fit(X).save(tmp_path / "m.rpml")
    arguments = ["explore", tmp_path / "m.rpml", tmp_path / "x.npy", "--port", 0]
    said = Run().refused(*arguments, "--backbone", network, "--scales", "64")
    assert "the model takes 5" in said


def test_the_sample_image_can_be_read(network: Path) -> None:
    vector, picture = image_describer(Backbone(network), Recipe(scales=(64,)))(sample_image())
    assert np.isfinite(vector).all()
    assert picture[8:12] == b"WEBP"
