"""How fast does the explorer answer at 200,000 x 128, over loopback, and is its map smooth?

python benchmarks/explorer.py            one client, 16 clients, and (with Chromium) the map
python benchmarks/explorer.py --no-map   without a browser
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from common import publish
from evaluation import mixture

from rpml import RPML

ROWS, FEATURES, DIMENSIONS = 200_000, 128, 64
REQUESTS, CLIENTS = 400, 16
MODES = {"raw": ["raw"], "embedding": ["rpml"], "both, as the page asks": ["raw", "rpml"]}


def write_inputs(folder: Path) -> None:
    """Features of 200,000 rows and a model fitted on 4,000 of them."""
    X, _ = mixture(ROWS, FEATURES, 500, 1.0, 0)
    X = X[np.random.default_rng(0).permutation(ROWS)]
    np.save(folder / "features.npy", X)
    RPML(DIMENSIONS, max_iter=5, tol=1e-2, random_state=0).fit(X[:4000]).save(folder / "m.rpml")


@contextmanager
def explorer(folder: Path) -> Iterator[int]:
    """`rpml explore` as a user starts it; its port."""
    command = [sys.executable, "-c", "from rpml.cli.app import main; main()", "explore"]
    command += [str(folder / "m.rpml"), str(folder / "features.npy"), "--port", "0", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield urlsplit(process.stdout.readline().split()[2]).port or 0
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def until_drawn(port: int) -> None:
    """Wait for the map, which is drawn in the background."""
    while True:
        line = http.client.HTTPConnection("127.0.0.1", port)
        line.request("GET", "/api/status")
        if json.loads(line.getresponse().read())["map"]["state"] == "ready":
            return
        time.sleep(1)


class Client:
    """One browser: a connection a space, kept open."""

    def __init__(self, port: int, spaces: list[str]) -> None:
        self.lines = {s: http.client.HTTPConnection("127.0.0.1", port) for s in spaces}

    def search(self, row: int) -> float:
        """Seconds until every list is there."""
        start = time.perf_counter()
        for space, line in self.lines.items():
            line.request("GET", f"/api/neighbors?row={row}&k=20&space={space}")
        for line in self.lines.values():
            answer = json.loads(line.getresponse().read())
            assert len(answer["items"]) == 20
        return time.perf_counter() - start


def spread(seconds: list[float]) -> dict[str, float]:
    """Quantiles in milliseconds."""
    found = np.quantile(seconds, [0.5, 0.95, 0.99])
    return {f"p{p}_ms": 1e3 * float(v) for p, v in zip((50, 95, 99), found, strict=True)}


def one_client(port: int, spaces: list[str]) -> dict[str, float]:
    rng = np.random.default_rng(1)
    client = Client(port, spaces)
    client.search(0)
    return spread([client.search(int(r)) for r in rng.integers(ROWS, size=REQUESTS)])


def many_clients(port: int) -> dict[str, float]:
    """Each asks for both lists, one after the other, without a pause."""
    each = REQUESTS // CLIENTS

    def run(seed: int) -> list[float]:
        client = Client(port, ["raw", "rpml"])
        rows = np.random.default_rng(seed).integers(ROWS, size=each)
        return [client.search(int(row)) for row in rows]

    start = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        seconds = [s for part in pool.map(run, range(CLIENTS)) for s in part]
    elapsed = time.perf_counter() - start
    return {"clients": CLIENTS, "views_a_second": len(seconds) / elapsed, **spread(seconds)}


def the_map(port: int) -> dict[str, Any]:
    """Milliseconds to paint a frame while panning and zooming over all points."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.pages.browser.chrome import Chrome, start_driver

    with tempfile.TemporaryDirectory() as profile:
        chrome = Chrome(start_driver(Path(profile)))
        try:
            chrome.size(1280, 900)
            chrome.open(f"http://127.0.0.1:{port}/")
            chrome.until("window.rpmlMap && document.getElementById('map-state').hidden")
            frames: dict[str, list[float]] = chrome.driver.execute_async_script(FRAMES)
        finally:
            chrome.driver.quit()
    return {name: spread(values) for name, values in frames.items()}


FRAMES = """
const done = arguments[0], map = window.rpmlMap;
const result = { all_points: [], pan: [], zoom: [], pan_zoomed: [] };
const steps = [["pan", 60, () => map.pan(7, 4)],
  ["zoom", 60, (i) => map.zoomBy(i < 30 ? 1.1 : 1 / 1.1)],
  ["pan_zoomed", 60, (i) => { if (i === 0) map.zoomBy(8); map.pan(9, 5); }]];
const run = async () => {
  for (let i = 0; i < 20; i++) {
    map.moving = false;
    const start = performance.now();
    map.paint();
    result.all_points.push((performance.now() - start) / 1000);
    await new Promise((next) => setTimeout(next, 0));
  }
  for (const [name, count, move] of steps) {
    map.reset();
    for (let i = 0; i < count; i++) {
      move(i);
      await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
      if (i >= 10) result[name].push(map.lastFrame / 1000);
    }
  }
  done(result);
};
run();
"""


def main() -> None:
    results: dict[str, Any] = {"rows": ROWS, "features": FEATURES, "dimensions": DIMENSIONS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        start = time.perf_counter()
        with explorer(folder) as port:
            results["seconds_until_search"] = time.perf_counter() - start
            until_drawn(port)
            results["seconds_until_map"] = time.perf_counter() - start
            results["one_client"] = {n: one_client(port, spaces) for n, spaces in MODES.items()}
            results["many_clients"] = many_clients(port)
            if "--no-map" not in sys.argv:
                results["map_frames"] = the_map(port)
    publish("explorer", results)


if __name__ == "__main__":
    main()
