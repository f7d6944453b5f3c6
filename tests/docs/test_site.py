"""The documentation site: built once, without a network and without a warning, as `make site` builds it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import fairkit

ROOT = Path(__file__).parents[2]
MISSING = [
    name
    for name in ("sphinx", "myst_nb", "pydata_sphinx_theme", "sphinx_gallery", "ipykernel", "vl_convert")
    if importlib.util.find_spec(name) is None
]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built pages."""
    target = tmp_path_factory.mktemp("site") / "site"
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    command = [sys.executable, str(ROOT / "docs" / "site" / "build.py"), str(target)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return target / "html"


class _Page(HTMLParser):
    """What a page links to, loads, and can be linked at."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        self.anchors |= {told[name] for name in ("id", "name") if told.get(name)}
        if tag == "a" and told.get("href"):
            self.links.append(told["href"])
        if told.get("src"):
            self.loaded.append(told["src"])
        if tag == "link" and told.get("href") and told.get("rel") != "canonical":
            self.loaded.append(told["href"])


@pytest.fixture(scope="module")
def pages(site):
    return {path: _Page(path.read_text("utf-8")) for path in site.rglob("*.html") if "_static" not in path.parts}


def test_every_link_inside_the_site_leads_somewhere(pages):
    broken = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            if re.match(r"[a-z]+:", link) or link == "#":
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            if not target.exists():
                broken.append(f"{path.name}: {link}")
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                broken.append(f"{path.name}: {link} (no such place)")
    assert len(pages) > 100
    assert broken == []


def test_no_page_loads_anything_from_the_network(site, pages):
    for path, page in pages.items():
        assert [one for one in page.loaded if "://" in one or one.startswith("//")] == [], path.name
    assert "cdn." not in (site / "tutorials" / "first-model.html").read_text("utf-8")


def test_the_first_page_says_what_this_is(site):
    text = (site / "index.html").read_text("utf-8")
    body = " ".join(re.sub(r"<[^>]+>", " ", text[text.index("<article") :]).split())
    assert "audits machine-learning models for fairness" in body
    assert "pip install" in body
    assert len(body.split()) < 350


def test_every_public_name_is_in_the_reference(site):
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.loads(file.read(), uri="")
    listed = {name for kind in inventory.data.values() for name in kind}
    for name in fairkit.__all__:
        assert f"fairkit.{name}" in listed, name
    assert "fairkit_registry.certify" in listed


def test_every_example_has_a_picture_for_light_and_for_dark_pages(site):
    examples = sorted((ROOT / "docs" / "examples").glob("plot_*.py"))
    assert len(examples) >= 12
    for example in examples:
        page = (site / "gallery" / f"{example.stem}.html").read_text("utf-8")
        for theme in ("light", "dark"):
            assert re.search(rf'class="[^"]*only-{theme}', page), example.name
        assert "Traceback" not in page
        (thumb,) = (site / "_images").glob(f"sphx_glr_{example.stem}_thumb.*")
        assert thumb.stat().st_size > 1500, f"{thumb.name} is empty"


def test_the_notebook_is_fifteen_cells_that_end_in_a_certified_model(site):
    notebook = json.loads((ROOT / "docs" / "tutorials" / "first-model.ipynb").read_text("utf-8"))
    assert len(notebook["cells"]) == 15
    assert all(not cell.get("outputs") for cell in notebook["cells"])
    page = (site / "tutorials" / "first-model.html").read_text("utf-8")
    assert page.count("<iframe") == 3
    assert len(re.findall(r"<svg[^>]*class=\"marks\"", page)) + page.count("image/svg") + page.count(".svg") >= 3
    assert "of fair.onnx on loans: pass" in page
    assert "signature verified" in page


def test_search_works_without_a_server(site):
    """In a browser, from the disk."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom"]
    address = f"file://{site}/search.html?q=equalized"
    result = subprocess.run([*command, address], capture_output=True, text=True, check=False, timeout=120)
    found = re.findall(r'<a href="([^"?]+)[^"]*"[^>]*>', result.stdout[result.stdout.index('id="search-results"') :])
    assert any("metrics" in one for one in found), found[:10]
    assert re.search(r"found \d+ pages", result.stdout)
