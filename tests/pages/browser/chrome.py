"""A headless Chromium: opening pages, looking at them, and what its console said."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PATIENCE = 20.0
# a map of its own on the page, of a width and height in pixels
SCATTER = """const scatter = (x, y, side) => { const canvas = document.createElement('canvas');
canvas.getContext('2d', { willReadFrequently: true });
canvas.style.cssText = `width:${side}px;height:${side}px`; document.body.append(canvas);
return new rpml.Scatter(canvas, x, y) };"""


def find_chromium() -> tuple[str, str]:
    """(browser, driver), or a skip with the reason."""
    pytest.importorskip("selenium", reason="the browser tests need selenium (extra 'dev')")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("the browser tests need chromium and chromium-driver (Debian packages)")
    return browser, driver


def start_driver(profile: Path) -> Any:
    """A driver with a profile of its own."""
    browser, path = find_chromium()
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = browser
    for flag in [*FLAGS, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(path))


def fetch_axe(folder: Path) -> str:
    """The source of axe-core, fetched by npm for the tests alone; or a skip with the reason."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("the accessibility tests need npm, to fetch axe-core")
    done = subprocess.run(
        [npm, "pack", "axe-core@4", "--silent"], cwd=folder, capture_output=True, timeout=120
    )
    packed = list(folder.glob("axe-core-*.tgz"))
    if done.returncode or not packed:
        pytest.skip("npm could not fetch axe-core: " + done.stderr.decode()[-200:].strip())
    with tarfile.open(packed[0]) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode("utf8")


class Chrome:
    """What the tests do with a browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def reset(self) -> None:
        """A desktop window in light colors on an empty page."""
        self.driver.get("about:blank")
        self.size(1280, 900)
        self.media()
        self.driver.get_log("browser")

    def size(self, width: int, height: int, touch: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": touch}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": touch})

    def media(self, dark: bool = False, kind: str = "") -> None:
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {
                "name": "prefers-reduced-motion",
                "value": "reduce",
            },  # a click must not chase a scroll
        ]
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": kind, "features": features}
        )

    def open(self, address: str) -> None:
        self.driver.get(address)

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def until(self, script: str, *arguments: Any) -> Any:
        """Wait until an expression is true; its value."""
        return wait(lambda: self.js(f"return {script}", *arguments), script)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def text(self, selector: str) -> str:
        return str(self.js("return document.querySelector(arguments[0]).innerText", selector))

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def click_at(self, selector: str, x: float, y: float) -> None:
        """Click a place of an element, counted from its upper left corner."""
        self._pointer(selector, x, y).click().perform()

    def drag(self, selector: str, *points: tuple[float, float]) -> None:
        """Drag the pointer over places of an element, counted from its upper left corner."""
        chain = self._pointer(selector, *points[0]).click_and_hold()
        for (ax, ay), (bx, by) in itertools.pairwise(points):
            chain = chain.move_by_offset(round(bx - ax), round(by - ay))
        chain.release().perform()

    def move_to(self, selector: str, x: float, y: float) -> None:
        self._pointer(selector, x, y).perform()

    def _pointer(self, selector: str, x: float, y: float) -> Any:
        from selenium.webdriver import ActionChains

        element = self.find(selector)
        self.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        size = element.size
        across, down = round(x - size["width"] / 2), round(y - size["height"] / 2)
        return ActionChains(self.driver).move_to_element_with_offset(element, across, down)

    def choose(self, selector: str, value: str) -> None:
        """Set a select as a person would."""
        self.js(
            "const s = document.querySelector(arguments[0]); s.value = arguments[1];"
            "s.dispatchEvent(new Event('change'))",
            selector,
            value,
        )

    def tap(self, selector: str, x: float, y: float) -> None:
        """A finger on a place of an element."""
        left, top = self.js(
            "const e = document.querySelector(arguments[0]);"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect(); return [b.left, b.top]",
            selector,
        )
        point = {"x": left + x, "y": top + y}
        self.driver.execute_cdp_cmd(
            "Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]}
        )
        self.driver.execute_cdp_cmd(
            "Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []}
        )

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.js("return document.documentElement.scrollWidth - window.innerWidth"))

    def complaints(self) -> list[str]:
        """Errors and warnings of the console since the last call."""
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] != "INFO"]

    def violations(self, axe: str) -> list[str]:
        """What axe-core finds wrong with the page."""
        self.js(axe)
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {runOnly: arguments[0]}).then((r) => done(r.violations.map("
            "(v) => v.id + ': ' + v.nodes.map((n) => n.html.slice(0, 120)).join(' | '))),"
            "(e) => done(['axe failed: ' + e]))",
            RULES,
        )
        return list(found)


def wait(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of a condition."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE:.0f} s in vain for: {what}")
