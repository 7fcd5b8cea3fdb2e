"""A headless Chromium for tests, driven by ChromeDriver over the W3C WebDriver protocol."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 30.0
# without the networking flags it knocks at many doors of its maker, and a closed network refuses them all
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's id, fixed by the standard


def free_port() -> int:
    """A TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Browser:
    """One browser window. url: of its WebDriver session."""

    url: str

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {json.load(error)['value']['message']}") from error

    def open(self, url: str) -> None:
        self.call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """What the function body `script` returns in the page."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def point_at(self, selector: str) -> None:
        """Move the mouse there."""
        found = self.call("POST", "/element", {"using": "css selector", "value": selector})
        self.run("arguments[0].scrollIntoView({block: 'center'})", found)
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": {_ELEMENT: found[_ELEMENT]}}
        self.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def until(self, script: str, wanted: Callable[[Any], bool] = bool) -> Any:
        """What `script` returns once it is as wanted."""
        end, seen = time.monotonic() + PATIENCE_SECONDS, None
        while time.monotonic() < end:
            seen = self.run(script)
            if wanted(seen):
                return seen
            time.sleep(0.05)
        raise AssertionError(f"not within {PATIENCE_SECONDS} s: {script}: {seen!r}")

    def complaints(self) -> list[str]:
        """What the console has been told since the last time: errors, refused scripts, failed requests."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]


def missing() -> str:
    """Why there is no browser here; "" where there is one."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)} (Debian packages chromium and chromium-driver)" if absent else ""


@contextmanager
def browsing(directory: Path, *, width: int = 1280) -> Iterator[Browser]:
    """A new browser with an empty profile below `directory`."""
    port = free_port()
    with (directory / "chromedriver.log").open("wb") as log:
        driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        base = Browser(f"http://127.0.0.1:{port}")
        _wait(base)
        flags = [*_FLAGS, f"--user-data-dir={directory / 'profile'}", f"--window-size={width},1200"]
        options = {"goog:chromeOptions": {"args": flags}, "goog:loggingPrefs": {"browser": "ALL"}}
        session = base.call("POST", "/session", {"capabilities": {"alwaysMatch": options}})["sessionId"]
        browser = Browser(f"{base.url}/session/{session}")
        try:
            yield browser
        finally:
            browser.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(PATIENCE_SECONDS)


def _wait(driver: Browser) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if driver.call("GET", "/status")["ready"]:
                return
        time.sleep(0.05)
    raise AssertionError("chromedriver does not answer")
