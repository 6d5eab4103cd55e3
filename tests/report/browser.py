"""A headless Chromium that tests steer through pipes, with the standard library only."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHROMIUM = next((path for name in ("chromium", "chromium-browser") if (path := shutil.which(name))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-default-apps", "--hide-scrollbars", "--mute-audio"),
)
START = """
import fcntl, os, sys
for number, pipe in zip((3, 4), [fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3]]):
    os.dup2(pipe, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Starts Chromium with its pipes at the numbers that it expects."""
SECONDS = 60.0
"""How long an answer may take."""


class Refused(Exception):
    """Chromium cannot do what it was told."""


class Browser:
    """One page in Chromium, with what it wrote to the console."""

    def __init__(self, folder: Path):
        assert CHROMIUM is not None
        read, self._out = os.pipe()
        self._in, write = os.pipe()
        words = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        start = [sys.executable, "-S", "-c", START, str(read), str(write)]
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([*start, *words], pass_fds=(read, write), **quiet)
        os.close(read)
        os.close(write)
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        """All events so far."""
        self._tab = ""

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise Refused(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, page: Path, width: int = 1280, height: int = 900, *, dark: bool = False) -> float:
        """Open a page in a new tab, which remembers nothing, and return the seconds until it was drawn."""
        self._new_tab()
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        began = time.monotonic()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait("document.readyState === 'complete' && document.querySelector('footer') !== null")
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.monotonic() - began

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page and return its value."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(Refused):  # the page is just being loaded
                if self.run(condition):
                    return
            assert time.monotonic() < until, f"not true: {condition}"
            time.sleep(0.02)

    def mouse(self, x: float, y: float, kind: str = "mouseMoved") -> None:
        """Move the mouse, or press or release its button."""
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def click(self, selector: str) -> None:
        """Click on the first element that a selector finds."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def write(self, selector: str, text: str) -> None:
        """Write a text into a field."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{found}.value = {json.dumps(text)}; {found}.dispatchEvent(new Event('input'))")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save a picture of the page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def troubles(self) -> list[str]:
        """Return errors and warnings of the page, and everything that it wanted to load from elsewhere."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown" or method == "Log.entryAdded":
                found.append(json.dumps(params))
            elif method == "Runtime.consoleAPICalled":
                found.append(json.dumps(params["args"]))
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                found += [] if url.startswith(("file:", "data:", "blob:", "about:")) else [url]
        return found

    def close(self) -> None:
        """End the browser."""
        self._session = ""
        try:
            self.call("Browser.close")
        except (AssertionError, Refused, OSError):
            self._process.kill()
        self._process.wait(10)
        os.close(self._out)
        os.close(self._in)

    def _new_tab(self) -> None:
        self._session, old = "", self._tab
        self._tab = self.call("Target.createTarget", url="about:blank")["targetId"]
        if old:
            self.call("Target.closeTarget", targetId=old)
        self._session = self.call("Target.attachToTarget", targetId=self._tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.events.clear()

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._in, 1 << 20) if ready else b""
            assert piece, "Chromium does not answer"
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)
