"""Plugins from files: found by name, told apart, and explained where something is missing."""

from __future__ import annotations

import os

import pytest

import fairkit
from fairkit import plugins

TEXT = '''"""Scores as they are."""

import fairkit


class MeanOfScores(fairkit.Mean):
    """The mean score."""

    name = "mean_of_scores"
    range = (0.0, 1.0)
    meaning = "0: nobody has a chance; 1: everybody has."
    needs = frozenset({"score"})

    def per_row(self, rows):
        return rows.score


@fairkit.hookimpl
def fairkit_metrics():
    return [MeanOfScores]
'''


@pytest.fixture
def write(tmp_path, monkeypatch):
    def write_file(name: str, text: str, *more: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.setenv(plugins.FILES, os.pathsep.join([str(tmp_path / name), *more]))
        return str(tmp_path / name)

    return write_file


def test_a_file_is_a_plugin_of_its_own_name_and_digest(write):
    import hashlib

    write("my_scores.py", TEXT)
    plugin = plugins.load("my-scores")
    assert plugin.kinds == ("metric",)
    digest = hashlib.sha256(TEXT.encode()).hexdigest()[:12]
    assert plugin.to_dict() == {"name": "my-scores", "distribution": "file", "version": digest}


def test_the_prefix_of_packages_is_left_out(write):
    write("fairkit_my_scores_two.py", TEXT)
    assert plugins.load("my-scores-two").metrics[0].name == "mean_of_scores"


def test_no_file_is_run_that_is_not_named(tmp_path, monkeypatch):
    (tmp_path / "my_scores_three.py").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(plugins.FILES, raising=False)
    with pytest.raises(fairkit.PluginError, match="there is no plugin 'my-scores-three'"):
        plugins.load("my-scores-three")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "unmarked.py",
            TEXT.replace("@fairkit.hookimpl", ""),
            "write @fairkit.hookimpl above its function fairkit_metrics",
        ),
        ("no_hooks.py", '"""Nothing."""\n', "it needs one of the hooks fairkit_metrics, fairkit_auditors"),
        ("nameless.py", TEXT.replace('name = "mean_of_scores"', ""), "MeanOfScores has no name"),
        (
            "instance.py",
            TEXT.replace("[MeanOfScores]", "[MeanOfScores()]"),
            "hooks return lists of Metric classes",
        ),
        ("syntax.py", "def\n", "SyntaxError"),
        ("needs_more.py", "import no_such_library\n", "it needs no_such_library, which is not installed"),
        ("later.py", TEXT + "\nFAIRKIT_INTERFACE = 2\n", "is written for version 2 of the plugin interface"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(write, name, text, said):
    path = write(name, text)
    with pytest.raises(fairkit.PluginError) as caught:
        plugins.load(name.removesuffix(".py").replace("_", "-"))
    assert said in str(caught.value)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_a_row(write, tmp_path):
    write("my_scores_four.py", TEXT, str(tmp_path / "nowhere.py"))
    rows = {row.found.name: row for row in plugins.explain_all()}
    assert rows["my-scores-four"].reason is None
    assert "there is no such file" in rows["nowhere"].reason


def test_a_file_cannot_take_the_name_of_one_of_ours(write):
    write("group.py", TEXT)
    assert plugins.load("group").found.built_in
    (row,) = [row for row in plugins.explain_all() if row.found.distribution == "file"]
    assert "two plugins have the name 'group'" in row.reason
    assert "rename the file" in row.reason


def test_the_checks_say_in_which_line_a_plugin_raised(write):
    from fairkit.testing import run_checks

    path = write("raises_here.py", TEXT.replace("return rows.score", "return rows.scores"))
    failed = [outcome for outcome in run_checks("raises-here") if outcome.status == "failed"]
    assert [outcome.message for outcome in failed if f"(line 15 of {path})" not in outcome.message] == []
    assert len(failed) > 3
