"""A page as PDF, printed by a browser that is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from fairkit.errors import FairkitError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SECONDS = 120
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-pdf-header-footer",
)


class PdfError(FairkitError, RuntimeError):
    """No browser, or one that does not print."""


def as_pdf(page: str) -> bytes:
    """Print a page."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise PdfError(
            "a PDF is printed by chromium or chrome, and neither is on PATH: install one (apt-get install chromium), "
            "or write the page as html and print it from any browser"
        )
    return _by_browser(browser, page)


def _by_browser(browser: str, page: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="fairkit-pdf-") as folder:
        source, target = Path(folder) / "page.html", Path(folder) / "page.pdf"
        source.write_text(page, encoding="utf-8")
        command = [browser, *_FLAGS, f"--user-data-dir={folder}/profile", f"--print-to-pdf={target}", source.as_uri()]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
            return target.read_bytes()
        except (OSError, subprocess.SubprocessError) as error:
            raise PdfError(
                f"{browser} does not print the page: {error}; write it as html, and print it from a browser"
            ) from error
