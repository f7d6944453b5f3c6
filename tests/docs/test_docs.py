"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = {"commands.md", "metrics.md", "plugins.md", "configuration.md", "python.md", "which-metric.md"}


@pytest.fixture(scope="module")
def reference():
    """What docs/make.py writes, page by page."""
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs" / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


@pytest.mark.parametrize("page", sorted(GENERATED))
def test_the_reference_is_what_the_code_says(page, reference):
    assert (ROOT / "docs" / "reference" / page).read_text("utf-8") == reference[page], "run `make docs`"


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


PAGES = [page for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if page.name != "CHANGELOG.md"]


def test_pages_name_commands_and_options_that_there_are():
    import typer.main

    from fairkit_cli.main import app

    known: dict[str, set[str]] = {}

    def walk(command, path):
        inner = getattr(command, "commands", {})
        known[path] = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"--help"}
        for name in inner:
            walk(inner[name], f"{path} {name}".strip())

    walk(typer.main.get_command(app), "")
    wrong = set()
    for page in PAGES:
        text = page.read_text("utf-8").replace("\\\n", " ")
        for line in re.findall(r"^(?:    |\$ )?(fairkit [^\n]*)$|`(fairkit [^`\n]*)`", text, re.MULTILINE):
            words, path = "".join(line).split("#")[0].split("&&")[0].split(" | ")[0].split()[1:], ""
            while words and words[0].startswith("-") and words[0] in known[""]:
                words = words[1:]
            while words and f"{path} {words[0]}".strip() in known:
                path, words = f"{path} {words[0]}".strip(), words[1:]
            allowed = set().union(*(known[one] for one in known if f"{one} ".startswith(f"{path} ".lstrip())))
            named = {word.split("=")[0] for word in words if re.fullmatch(r"--[a-z-]+(=.*)?", word)}
            if path and named - allowed:
                wrong.add((page.name, path, *(named - allowed)))
            if not path and words and re.fullmatch(r"[a-z-]+", words[0]) and line[1]:
                wrong.add((page.name, words[0]))
    assert wrong == set()


WORDS, LINES = 70_000, 8_000
"""Words of the pages that no program writes, and lines of `benchmarks/`. Lowered only."""


def test_pages_and_benchmarks_keep_their_budgets():
    written = [page for page in (ROOT / "docs").rglob("*.md") if page.name not in GENERATED]
    assert sum(len(page.read_text("utf-8").split()) for page in written) <= WORDS
    code = (ROOT / "benchmarks").rglob("*.py")
    assert sum(len(path.read_text("utf-8").splitlines()) for path in code) <= LINES


# The page on threats names tests that exist.
def test_every_test_that_the_page_names_exists():
    page = (ROOT / "docs" / "explanation" / "threat-model.md").read_text("utf-8")
    named = re.findall(r"`(test_\w+)::(test_\w+)`", page)
    assert len(named) > 20
    files = {path.stem: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    assert [f"{file}::{name}" for file, name in named if f"def {name}(" not in files.get(file, "")] == []
    alone = set(re.findall(r"`(test_\w+)`", page))
    assert {name for name in alone if not any(f"def {name}(" in text for text in files.values())} == set()
