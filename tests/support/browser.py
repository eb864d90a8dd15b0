"""Headless Chromium, spoken to over a pipe by the Chrome DevTools Protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One tab of a browser that has a profile of its own and ends with this."""

    def __init__(self, profile: Path) -> None:
        there, self._to = os.pipe()
        self._from, back = os.pipe()

        def place() -> None:
            # Where --remote-debugging-pipe reads and writes; by way of high numbers, since either
            # may be 3 or 4 already.
            high = os.dup(there), os.dup(back)
            for number, descriptor in zip((3, 4), high, strict=True):
                os.dup2(descriptor, number)

        # Root has no sandbox; nothing but the tests' own pages is opened.
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        self._process = subprocess.Popen(
            [CHROMIUM, *flags, "--remote-debugging-pipe", f"--user-data-dir={profile}"],
            pass_fds=(3, 4),
            preexec_fn=place,
            env={"PATH": os.environ["PATH"], "HOME": str(profile)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(there)
        os.close(back)
        self._number, self._rest, self._session = 0, b"", None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, page: Path | str, width: int, scheme: str) -> None:
        """Open a file or an address in a window of this size, in `light` or `dark` colours."""
        window = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **window)
        likes = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=likes)
        self._call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while self.evaluate("document.readyState") != "complete":
            pass

    def evaluate(self, script: str) -> Any:
        """Evaluate JavaScript in the page regardless of the page's policy; return its value."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        return answer["result"].get("value")

    def screenshot(self, height: int = 0) -> bytes:
        """Return a picture (PNG) of the page, or of `height` pixels from its top."""
        width = self.evaluate("document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        part = {"clip": clip} if height else {}
        answer = self._call("Page.captureScreenshot", captureBeyondViewport=True, **part)
        return base64.b64decode(answer["data"])

    def close(self) -> None:
        with suppress(OSError, EOFError):
            self._session = None
            self._call("Browser.close")
        for descriptor in (self._to, self._from):
            os.close(descriptor)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method and return its answer; what the page says meanwhile is kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            said = self._read()
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]
            self._note(said)

    def _note(self, said: dict[str, Any]) -> None:
        told = said.get("params", {})
        match said.get("method"):
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                self.complaints.append(json.dumps(told))
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._from, 1 << 16)
            if not more:
                raise EOFError("the browser has closed the pipe")
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
