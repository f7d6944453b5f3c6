"""Pages run in order, as they stand, in a terminal of 80 columns: no question, no code, no line that is cut."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from terminal import ROOT, typed, typed_page


def test_the_readme_runs_as_typed(tmp_path):
    """Whoever presses Return gets the guide's defaults."""
    (shown,) = typed_page("README.md", tmp_path, kinds=("sh",), key=b"\n")
    said = " ".join(shown.split())
    quoted = (ROOT / "README.md").read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    assert " ".join(quoted.split()) in said


@pytest.mark.parametrize("page", ["docs/tutorials/why.md", "docs/how-to/why.md"])
def test_the_pages_on_causes_run_as_typed(page, tmp_path, demo):
    shown = " ".join(" ".join(typed_page(page, tmp_path, kinds=("sh",), demo=demo)).split())
    assert "Of these 21.2 points" in shown


def test_the_page_on_tables_of_decisions_runs_as_typed(tmp_path):
    typed_page("docs/how-to/decisions.md", tmp_path, kinds=("sh", "python", "toml"))


def test_the_page_on_text_runs_as_typed(tmp_path):
    typed_page("docs/how-to/text.md", tmp_path, kinds=("sh", "python", "toml"))
    command = (
        "fairkit audit plain.onnx --data sentences.parquet --auditor counterfactuals "
        "--set counterfactuals.rows=swapped.parquet --min prediction_consistency=0.95"
    )
    assert typed(command, tmp_path)[1] == 1  # as the page says, the plain network fails


def test_the_page_on_conditions_shows_numbers_that_are_printed(tmp_path):
    number = re.compile(r"-?\d\.\d+")
    printed = {one for shown in typed_page("docs/how-to/conditions.md", tmp_path) for one in number.findall(shown)}
    page = (ROOT / "docs/how-to/conditions.md").read_text("utf-8")
    lines = [line for line in page.splitlines() if line.startswith("    ") and not line.strip().startswith("--")]
    quoted = {one for line in lines for one in number.findall(line)}
    assert len(quoted) > 30
    assert quoted <= printed


def test_the_story_of_the_registry_works_as_typed(tmp_path):
    typed_page("docs/how-to/registry.md", tmp_path, follow=False)
    assert "# Model card: credit@2" in (tmp_path / "card.md").read_text()


def test_the_tutorial_on_paired_names_finds_the_planted_gap(tmp_path):
    try:
        screens = typed_page("docs/tutorials/paired-names.md", tmp_path)
    finally:
        subprocess.run(["bash", "-c", "kill $(cat pid) 2> /dev/null"], cwd=tmp_path, check=False)
    assert "FAIL: correspondence_difference for group is 0.07992" in screens[2]
    assert "PASS: correspondence_difference for group is 0" in " ".join(screens[4].split())
    assert "12 names cannot stand for a group" in " ".join(screens[5].split())
    assert "Difference by pair of groups and context" in (tmp_path / "page.html").read_text()
