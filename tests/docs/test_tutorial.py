"""The tutorial's blocks run in order, as they stand, on the real data."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
from terminal import typed_page

ROOT = Path(__file__).parents[2]
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
