"""How fast is the explorer at 200,000 rows: its answers over loopback, its map, its table?

python benchmarks/explorer.py            CPU seconds of the map, clients, the page in Chromium
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
PREPARED = 64  # features for the map and the clusters
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
        time.sleep(0.2)


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


def preparation() -> dict[str, float]:
    """CPU seconds for the clusters and the maps of 200,000 x 64, and seconds to take them back."""
    from rpml.pages.explorer.catalog import Pending, make_catalog, start_work
    from rpml.pages.items import make_items

    X, y = mixture(ROWS, PREPARED, 500, 1.0, 0)
    fine = y * 50 + np.random.default_rng(0).integers(50, size=ROWS)  # 25,000 clusters
    model = RPML(32, clustering=fine, max_iter=2, tol=1e-2, random_state=0).fit(X)
    catalog = make_catalog(model, X, make_items(ROWS))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "m.rpml.explorer"
        cpu, start = time.process_time(), time.perf_counter()
        start_work(catalog, X, cache=path).join()
        found = {
            "cpu_seconds": time.process_time() - cpu,
            "seconds": time.perf_counter() - start,
            "cache_mb": path.stat().st_size / 1e6,
        }
        catalog.clusters, catalog.maps = Pending(), Pending()
        start = time.perf_counter()
        start_work(catalog, X, cache=path).join()
        assert catalog.maps.state == catalog.clusters.state == "ready"
    return {**found, "seconds_from_cache": time.perf_counter() - start}


def the_map(port: int) -> dict[str, Any]:
    """What a person waits for: frames while panning, zooming and scrolling, a lasso, a click."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.pages.browser.chrome import Chrome, start_driver

    with tempfile.TemporaryDirectory() as profile:
        chrome = Chrome(start_driver(Path(profile)))
        try:
            chrome.size(1280, 900)
            chrome.open(f"http://127.0.0.1:{port}/")
            chrome.until("window.rpmlMap && document.getElementById('map-state').hidden")
            chrome.driver.set_script_timeout(120)
            frames: dict[str, list[float]] = {}
            for script in (FRAMES, LASSO, CLICKS, TABLE):
                frames |= chrome.driver.execute_async_script(WAITS + script)
        finally:
            chrome.driver.quit()
    return {name: spread(values) for name, values in frames.items()}


# every script ends with done({name: [seconds, ...]})
WAITS = """
const done = arguments[0], map = window.rpmlMap, { go, select, page } = window.rpmlExplorer;
const frame = () => new Promise((next) => requestAnimationFrame(() => next(performance.now())));
const pause = (ms) => new Promise((next) => setTimeout(next, ms));
const until = async (test) => { while (!test()) await pause(1); };
"""
# a lasso around a quarter of the points: from letting go to the painted selection
LASSO = """
(async () => {
  const seconds = [], counts = [];
  const xs = map.x.slice().sort(), ys = map.y.slice().sort(), n = map.n;
  map.reset();
  for (let i = 0; i < 15; i++) {
    const a = 0.05 + 0.03 * i, low = xs[Math.floor(a * n)], high = xs[Math.floor((a + 0.25) * n)];
    const corners = [];
    const along = (k) => low + (high - low) * k / 40;
    for (let k = 0; k <= 40; k++) corners.push(map.toScreen(along(k), ys[0]));
    for (let k = 40; k >= 0; k--) corners.push(map.toScreen(along(k), ys[n - 1]));
    const start = performance.now(), rows = map.inside(corners);
    select(rows);
    map.paint();
    seconds.push((performance.now() - start) / 1000);
    counts.push(rows.length);
    await pause(50);
  }
  select([]);
  done({ lasso: seconds, lasso_thousand_points: counts.map((c) => c / 1e6) });
})();
"""
# from a click on a point to both lists in the page
CLICKS = """
(async () => {
  const seconds = [];
  for (let i = 0; i < 60; i++) {
    const row = Math.floor(Math.random() * map.n);
    map.setHover(row); // as the mouse does before it clicks
    await pause(100);
    const before = page.results.rpml, start = performance.now();
    map.options.onPick(row);
    await until(() => page.results.rpml && page.results.raw && page.results.rpml !== before
      && page.results.rpml.query.row === row && document.querySelectorAll(".hit").length === 40);
    seconds.push((performance.now() - start) / 1000);
    await pause(30);
  }
  done({ click_to_both_lists: seconds.slice(5) });
})();
"""
# time between frames while the table scrolls from top to bottom, and until its cells are there
TABLE = """
(async () => {
  go({ tab: "table" });
  const view = document.getElementById("table-scroll"), frames = [], jumps = [];
  await until(() => document.querySelectorAll("#table-body td").length > 10);
  let last = await frame();
  for (let i = 0; i < 200; i++) {
    view.scrollTop += i < 100 ? 90 : 50000;
    const now = await frame();
    frames.push((now - last) / 1000);
    last = now;
  }
  for (let i = 0; i < 20; i++) {
    const start = performance.now();
    view.scrollTop = Math.random() * view.scrollHeight;
    await frame();
    await frame();
    await until(() => !document.getElementById("table-body").textContent.includes("…"));
    jumps.push((performance.now() - start) / 1000);
  }
  done({ table_scroll_between_frames: frames.slice(5), table_jump_until_filled: jumps });
})();
"""
# time to paint a frame, and between frames, while panning and zooming over all points
FRAMES = """
const result = { all_points: [], pan: [], zoom: [], pan_zoomed: [], pan_between_frames: [] };
const steps = [["pan", 60, () => map.pan(7, 4)],
  ["zoom", 60, (i) => map.zoomBy(i < 30 ? 1.1 : 1 / 1.1)],
  ["pan_zoomed", 60, (i) => { if (i === 0) map.zoomBy(8); map.pan(9, 5); }]];
const run = async () => {
  for (let i = 0; i < 20; i++) {
    map.moving = map.blended = false;
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
  map.reset();
  map.zoomBy(1.5);
  let last = await frame();
  for (let i = 0; i < 120; i++) {
    map.pan(i % 40 < 20 ? 7 : -7, 3);
    const now = await frame();
    if (i >= 20) result.pan_between_frames.push((now - last) / 1000);
    last = now;
  }
  done(result);
};
run();
"""


def main() -> None:
    results: dict[str, Any] = {"rows": ROWS, "features": FEATURES, "dimensions": DIMENSIONS}
    results["map_and_clusters_64_features"] = preparation()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        for turn in ("first_start", "restart"):
            start = time.perf_counter()
            with explorer(folder) as port:
                search = time.perf_counter() - start
                until_drawn(port)
                drawn = time.perf_counter() - start
                results[turn] = {"seconds_until_search": search, "seconds_until_map": drawn}
        with explorer(folder) as port:
            until_drawn(port)
            results["one_client"] = {n: one_client(port, spaces) for n, spaces in MODES.items()}
            results["many_clients"] = many_clients(port)
            if "--no-map" not in sys.argv:
                results["page"] = the_map(port)
    publish("explorer", results)


if __name__ == "__main__":
    main()
