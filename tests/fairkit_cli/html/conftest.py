"""A real browser for the pages, and reports made by hand with whatever a page must bear."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("vl_convert", reason="pages need vl-convert-python: pip install 'fairkit[html]'")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=4000",
)

OWN_HOSTS = {"clients2.google.com", "accounts.google.com", "update.googleapis.com"}

RUN_AXE = """
axe.run().then(result => {
  const told = document.createElement("pre");
  told.id = "axe";
  told.textContent = JSON.stringify({
    passes: result.passes.length,
    violations: result.violations.map(one => [one.impact, one.id, one.nodes[0].html]),
  });
  document.body.replaceChildren(told);
});
"""


def chromium() -> str | None:
    """The browser's command, if there is one."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


@dataclass(frozen=True)
class Visit:
    """What became of a page in the browser: its document after scripts, its console, the addresses it asked for."""

    dom: str
    console: list[str]
    requests: list[str]


def visit(folder: Path, content: str, *flags: str) -> Visit:
    """Open a page in a fresh headless Chromium."""
    page, log = folder / "page.html", folder / "net.json"
    page.write_text(content, encoding="utf-8")
    command = [str(chromium()), *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", *flags]
    run = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    asked = re.findall(r'"url":"(https?:[^"]*)"', log.read_text("utf-8"))
    return Visit(run.stdout, [line for line in run.stderr.splitlines() if ":CONSOLE" in line], asked)


@pytest.fixture(scope="session")
def own_hosts(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Where the browser itself calls, whatever the page."""
    if chromium() is None:
        pytest.skip("no chromium on PATH: apt-get install chromium")
    empty = visit(tmp_path_factory.mktemp("empty"), "<!doctype html><title>empty</title>")
    return {host for url in empty.requests if (host := urlsplit(url).hostname)} | OWN_HOSTS


@pytest.fixture
def browse(tmp_path: Path, own_hosts: set[str]) -> Callable[..., Visit]:
    """Open a page; the requests are those that the browser does not make on its own account."""

    def open_page(content: str, *flags: str) -> Visit:
        seen = visit(tmp_path, content, *flags)
        return replace(seen, requests=[url for url in seen.requests if urlsplit(url).hostname not in own_hosts])

    return open_page


@pytest.fixture
def faults(browse: Callable[..., Visit]) -> Callable[..., list[str]]:
    """Serious and critical faults that axe-core finds in a page, as sentences."""
    found = find_spec("axe_core_python")
    if found is None or not found.submodule_search_locations:
        pytest.skip("axe-core is not installed: pip install axe-core-python")
    axe = (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text("utf-8")

    def check(content: str, *flags: str) -> list[str]:
        open_to_scripts = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", content)
        dom = browse(
            open_to_scripts.replace("</body>", f"<script>{axe}</script><script>{RUN_AXE}</script></body>"), *flags
        ).dom
        told = re.search(r'<pre id="axe">(.*?)</pre>', dom, re.DOTALL)
        assert told is not None, "axe did not run"
        result = json.loads(html.unescape(told[1]))
        assert result["passes"] > 10
        return [f"{rule}: {node}" for impact, rule, node in result["violations"] if impact in ("serious", "critical")]

    return check
