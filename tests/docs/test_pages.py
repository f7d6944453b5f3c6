"""Pages run in order, as they stand, in a terminal of 80 columns: no question, no code, no line that is cut."""

from __future__ import annotations

import re
import subprocess

import pytest
from tests.terminal import ROOT, typed, typed_page


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


# The tutorial's blocks run in order, as they stand, on the real data.

_BLOCK = re.compile(r"```(sh|python)(?: exit=(\d+))?\n(.*?)```", re.DOTALL)


def test_the_tutorial_runs_as_typed(public_data, tmp_path):
    typed_page("docs/tutorials/income.md", tmp_path, cumulative=True, key=b"\n", FAIRKIT_DATA=str(public_data))


def test_a_model_is_watched_until_it_drifts_and_its_alias_is_taken_back(tmp_path):
    """Certified, watched for 300 days, silent for 200, alarm within two weeks, alias taken back, a page."""
    typed_page("docs/tutorials/watching.md", tmp_path, FAIRKIT_REGISTRY="")
    assert "Broken lately" in (tmp_path / "watch.html").read_text("utf-8")


def test_the_page_on_groups_that_nobody_named_runs_as_typed(tmp_path, demo):
    assert len(typed_page("docs/how-to/subgroups.md", tmp_path, demo=demo)) == 5


def test_the_page_for_users_of_scikit_learn_runs_as_typed(capsys):
    """In this process: the page starts none."""
    text = (ROOT / "docs" / "how-to" / "scikit-learn.md").read_text("utf-8")
    blocks = [block for _, _, block in _BLOCK.findall(text)]
    assert len(blocks) == 6
    seen: dict[str, object] = {}
    exec("\n".join(blocks), seen)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("INCONCLUSIVE: Of 100 people of group female, ")
    assert any(line.startswith("demographic_parity_difference of sex: 0.") for line in printed)
    assert any(line.startswith("demographic_parity_difference of sex | employment: 0.") for line in printed)
    assert "better" in printed[-1]


def test_the_page_on_notebooks_runs_as_typed(tmp_path, monkeypatch, capsys):
    pytest.importorskip("altair", reason="the page draws charts")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "how-to" / "notebooks.md").read_text("utf-8")
    blocks = [block for _, _, block in _BLOCK.findall(text)]
    assert len(blocks) == 5
    exec("\n".join(blocks), {})
    assert (tmp_path / "loans.svg").read_text("utf-8").startswith("<svg")
    assert capsys.readouterr().out.startswith("<Certificate ")
