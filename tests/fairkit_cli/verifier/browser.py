"""A real browser over its debugging pipe: files are given to the page as a person does, its own policy in force."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


def chromium() -> str | None:
    """Return the browser's command, if there is one."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


class Browser:
    """One headless Chromium with one page."""

    def __init__(self, profile: Path) -> None:
        (inward, self._write), (self._read, outward) = os.pipe(), os.pipe()

        def wire() -> None:
            # Chromium reads commands from descriptor 3 and writes to 4
            first, second = os.dup(inward), os.dup(outward)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [str(chromium()), *FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=wire,  # noqa: PLW1509 -- descriptors 3 and 4 cannot be named otherwise
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(inward)
        os.close(outward)
        self._number, self._rest, self._session = 0, b"", None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "DOM", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result; events that come before are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return found["result"]
            self.events.append(found)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, page: Path) -> None:
        """Open a file and wait until it is there."""
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        self.wait("document.readyState === 'complete'")

    def run(self, code: str) -> Any:
        """Run code in the page and return its value; a promise is waited for."""
        told = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(
                told["exceptionDetails"]["exception"].get("description", told["exceptionDetails"]["text"])
            )
        return told["result"].get("value")

    def wait(self, condition: str, seconds: float = 60.0) -> None:
        """Wait until a condition holds in the page."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise RuntimeError(f"{condition} was not met in {seconds} s: {self.text()[:300]}")
            time.sleep(0.02)

    def give(self, field: str, *files: Path) -> None:
        """Choose files in a field of the page."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=f"#{field}")["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(one) for one in files])

    def check(self, seconds: float = 60.0, **files: Path | Sequence[Path] | str) -> str:
        """Fill the form, press the button, and return what the page says."""
        for field, value in files.items():
            if isinstance(value, str):
                self.run(f"document.getElementById({field!r}).value = {value!r}")
            else:
                self.give(field, *([value] if isinstance(value, Path) else value))
        self.run("document.querySelector('section').replaceChildren(); document.querySelector('[type=submit]').click()")
        self.wait("document.querySelector('section h2') !== null", seconds)
        return self.text()

    def text(self) -> str:
        """Return the text of the page that a person sees."""
        return str(self.run("document.body.innerText"))

    def requests(self) -> list[str]:
        """Return every address that the page asked for, besides files of its own."""
        self.call("Runtime.evaluate", expression="0")
        asked = [
            one["params"]["request"]["url"] for one in self.events if one.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith("file:")]

    def complaints(self) -> list[str]:
        """Return errors and warnings of the page's console."""
        found = [
            one["params"] for one in self.events if one.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")
        ]
        return [json.dumps(one) for one in found]

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
