"""A headless Chromium, driven through chromedriver's own HTTP interface (W3C WebDriver)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,1400",
]
_START_SECONDS = 60
_REQUEST_SECONDS = 120


class Browser:
    """One browser session: open a page, run a script in it, take a picture.

    Args:
        profile: An empty folder for the browser's own data.
    """

    def __init__(self, profile: Path) -> None:
        driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
        if driver is None or browser is None:
            missing = "chromium and chromedriver are not installed: run .ci/browser-packages"
            if os.environ.get("CI") == "true":
                pytest.fail(missing)
            pytest.skip(missing)
        self._process = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            self._base = f"http://127.0.0.1:{self._port()}"
            options = {"binary": browser, "args": [*_ARGUMENTS, f"--user-data-dir={profile}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        self._session = f"/session/{answer['sessionId']}"

    def open(self, page: Path) -> None:
        """Load a file."""
        self._ask("POST", f"{self._session}/url", {"url": page.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """Run JavaScript in the page and give what it returns."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def complaints(self) -> list[str]:
        """What the page wrote to the browser's console."""
        return [entry["message"] for entry in self._ask("POST", f"{self._session}/se/log", {"type": "browser"})]

    def picture(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self._ask("GET", f"{self._session}/screenshot"))

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._ask("DELETE", self._session)
        finally:
            self._process.kill()
            self._process.wait()

    def _port(self) -> int:
        stream = self._process.stdout
        assert stream is not None
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until:
            line = stream.readline()
            if not line:
                break
            if "started successfully on port" in line:
                return int(line.rstrip().rstrip(".").rpartition(" ")[2])
        raise RuntimeError("chromedriver did not start")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self._base + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_REQUEST_SECONDS) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode(errors="replace")[:500]) from error
