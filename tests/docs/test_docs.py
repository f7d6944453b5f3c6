"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _make():
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs" / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["commands.md", "metrics.md", "plugins.md", "configuration.md", "python.md"])
def test_the_reference_is_what_the_code_says(page):
    assert (ROOT / "docs" / "reference" / page).read_text("utf-8") == _make().pages()[page], "run `make docs`"


def test_links_between_pages_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_index_leads_to_every_page():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", index)}
    plugins = (ROOT / "docs" / "plugins").resolve()
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "index.md" and plugins not in page.resolve().parents:
            assert page.resolve() in linked, f"docs/index.md does not link to {page.relative_to(ROOT)}"
