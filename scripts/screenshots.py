"""Take the pictures of the report and the explorer for README and docs, from the demo data.

The explorer shows programs, whose language is known not to matter, at the program in Python
of whose five nearest most more solve its problem by the embedding than by the raw vectors.

python scripts/screenshots.py     needs Chromium; writes docs/images/pages
"""

from __future__ import annotations

import base64
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from rpml import RPML  # noqa: E402
from rpml.io.datasets.demos import (  # noqa: E402
    Drawings,
    gradient_histograms,
    load_drawings,
    load_solutions,
)
from rpml.pages.explorer.app import make_app  # noqa: E402
from rpml.pages.explorer.catalog import make_catalog, start_work  # noqa: E402
from rpml.pages.items import (  # noqa: E402
    Items,
    make_items,
    picture_reader,
)
from rpml.pages.report.measurements import Measurements, Source  # noqa: E402
from rpml.pages.report.page import build_report  # noqa: E402
from tests.pages.browser.chrome import Chrome, start_driver  # noqa: E402
from tests.pages.explorer.client import running  # noqa: E402

IMAGES = ROOT / "docs" / "images" / "pages"
MAP_READY = "window.rpmlMap && document.getElementById('map-state').hidden"
LOADED = (
    "[...document.images].every((image) => image.complete || "
    "image.getBoundingClientRect().top > innerHeight)"
)


def write_drawings(drawings: Drawings, folder: Path) -> Items:
    """One PNG a drawing, named by alphabet and character."""
    ids = []
    for place, picture in enumerate(drawings.images):
        alphabet, character = drawings.alphabet[place], drawings.character[place]
        ids.append(f"{alphabet}/{character:03d}-{place % 20 + 1:02d}.png")
        path = folder / ids[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.where(picture, 30, 255).astype(np.uint8)).save(path)
    labels = [f"{a} {c}" for a, c in zip(drawings.alphabet, drawings.character, strict=True)]
    return make_items(len(ids), ids, labels, folder)


def shoot(chrome: Chrome, name: str, top: int, height: int) -> None:
    """A part of the page."""
    width = chrome.js("return window.innerWidth")
    clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
    shot = chrome.driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    path = IMAGES / f"{name}.png"
    Image.open(BytesIO(base64.b64decode(shot["data"]))).convert("RGB").save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} kB")


def top_of(chrome: Chrome, selector: str) -> int:
    script = "return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY"
    return int(chrome.js(script, selector))


def shoot_report(chrome: Chrome, page: str, folder: Path) -> None:
    (folder / "report.html").write_text(page, encoding="utf8")
    chrome.size(1280, 900)
    chrome.open((folder / "report.html").as_uri())
    shoot(chrome, "report", 0, top_of(chrome, "#table .spaced + .spaced"))
    chrome.js("rpmlMaps[1].options.onPick(rpmlMaps[1].nearest(300, 200, 200))")
    start = top_of(chrome, "#maps") - 20
    shoot(chrome, "report-maps", start, top_of(chrome, "#changed") - start - 20)
    chrome.size(390, 844, touch=True)
    chrome.media(dark=True)
    chrome.open((folder / "report.html").as_uri())
    shoot(chrome, "report-phone", 0, 844)
    chrome.media()


def shoot_explorer(chrome: Chrome, address: str, view: dict[str, str], name: str) -> None:
    chrome.size(1280, 860)
    chrome.open(f"{address}/?{urlencode(view)}")
    chrome.until(MAP_READY)
    chrome.until(f"document.querySelector('.hit, .tree') && {LOADED}")
    shoot(chrome, name, 0, 860)


def shoot_programs(chrome: Chrome) -> None:
    programs = load_solutions()[1]
    X, problem, language = programs.vectors, programs.problem, programs.language
    names = [f"{p} ({k})" for p, k in zip(problem, language, strict=True)]
    known = {"language": language}
    items = make_items(len(X), names, problem, nuisance=known)
    model = RPML(64, random_state=0).fit(X, nuisance=language)
    catalog = make_catalog(model, X, items, "programs.npy")

    def right(space: str, row: int) -> int:
        return int(np.sum(problem[catalog.indices[space].near_row(row, 5)[0]] == problem[row]))

    rows = np.flatnonzero(language == "python")
    row = max(rows, key=lambda row: right("rpml", row) - right("raw", row))
    start_work(catalog, X).join()
    with running(make_app(catalog)) as port:
        view = {"id": names[row], "color": "language"}
        shoot_explorer(chrome, f"http://127.0.0.1:{port}", view, "explorer")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    seen, unseen = load_drawings()
    X, X_new = (gradient_histograms(part.images).astype(np.float32) for part in (seen, unseen))
    model = RPML(64, random_state=0).fit(X)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        items = write_drawings(seen, folder / "seen")
        new = write_drawings(unseen, folder / "unseen")
        chrome = Chrome(start_driver(folder / "profile"))
        try:
            chrome.reset()
            page = build_report(
                Measurements([model], X_new, new, Source("characters.rpml", "unseen-alphabets.npy"))
            )
            shoot_report(chrome, page, folder)
            shoot_programs(chrome)
            catalog = make_catalog(model, X, items, "characters.npy")
            start_work(catalog, X).join()
            app = make_app(catalog, picture_reader(items, folder / "seen"))
            with running(app) as port:
                address = f"http://127.0.0.1:{port}"
                largest = catalog.clusters.value.ordered("size")[0]
                view = {"tab": "clusters", "cluster": str(catalog.clusters.value.names[largest])}
                shoot_explorer(chrome, address, view, "explorer-clusters")
        finally:
            chrome.driver.quit()


if __name__ == "__main__":
    main()
