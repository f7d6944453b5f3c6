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
        ("instance.py", TEXT.replace("[MeanOfScores]", "[MeanOfScores()]"), "hooks return lists of Metric classes"),
        ("syntax.py", "def\n", "SyntaxError"),
        (
            "misspelt.py",
            TEXT.replace("fairkit_metrics", "fairkit_metric"),
            "unknown hook 'fairkit_metric'. Did you mean 'fairkit_metrics'",
        ),
        (
            "text_needs.py",
            TEXT.replace('frozenset({"score"})', '"score"'),
            "MeanOfScores.needs is 'score'; it is a set of decision, score",
        ),
        (
            "odd_tasks.py",
            TEXT.replace("    needs", '    tasks = {"binary", "sorting"}\n    needs'),
            "it is a set of answers, binary, multiclass, ranking, regression",
        ),
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
    assert f"there is no file {tmp_path / 'nowhere.py'}" in rows["nowhere"].reason
    assert rows["nowhere"].found.version == ""


def test_two_files_with_one_class_name_do_not_share_their_totals(write, tmp_path):
    from fairkit_testing import sample_data, sample_model

    (tmp_path / "halves.py").write_text(
        TEXT.replace("mean_of_scores", "half_of_scores").replace("return rows.score", "return rows.score / 2")
    )
    write("my_scores_five.py", TEXT, str(tmp_path / "halves.py"))
    report = fairkit.audit(sample_model(), sample_data())
    for sensitive in (None, "sex"):
        tail = "" if sensitive is None else "_difference"
        whole, half = (report.find(f"{name}_of_scores{tail}", sensitive).value for name in ("mean", "half"))
        assert whole > 0.01
        assert half == pytest.approx(whole / 2, rel=1e-12)


@pytest.mark.long
def test_who_asks_for_a_metric_or_an_auditor_is_told_the_plugin(write):
    write("my_scores_six.py", TEXT)
    with pytest.raises(fairkit.PluginError, match="The metric 'mean_of_scores' is of the plugin 'my-scores-six'"):
        plugins.load("mean_of_scores")
    with pytest.raises(fairkit.PluginError, match="The metric 'accuracy' is of the plugin 'group'"):
        plugins.load("accuracy")


@pytest.mark.long
def test_all_that_is_not_documented_is_said_at_once(write):
    from fairkit_testing import run_checks

    text = TEXT.replace('"""Scores as they are."""', "").replace('"""The mean score."""', '"""Mean."""')
    write("bare_scores.py", text.replace("0: nobody has a chance; 1: everybody has.", ""))
    (message,) = [one.message for one in run_checks("bare-scores") if one.check == "check_documented"]
    assert "its module has no docstring" in message
    assert "MeanOfScores has too short a docstring ('Mean.')" in message
    assert "MeanOfScores.meaning is empty" in message


def test_a_file_cannot_take_the_name_of_one_of_ours(write):
    write("group.py", TEXT)
    assert plugins.load("group").found.built_in
    (row,) = [row for row in plugins.explain_all() if row.found.distribution == "file"]
    assert "two plugins have the name 'group'" in row.reason
    assert "rename the file" in row.reason
    assert "or take it out of FAIRKIT_PLUGINS" in row.reason


def test_a_project_may_take_the_name_of_a_file(write, tmp_path, monkeypatch, capsys):
    from fairkit_cli.plugins import new as plugins_new

    write("my_scores_seven.py", TEXT)
    monkeypatch.chdir(tmp_path)
    plugins_new.new("my-scores-seven")
    assert (tmp_path / "fairkit-my-scores-seven" / "fairkit_my_scores_seven.py").is_file()
    assert "FAIRKIT_PLUGINS names a file of that name: take it out" in capsys.readouterr().out


@pytest.mark.long
def test_the_checks_say_in_which_line_a_plugin_raised(write):
    from fairkit_testing import run_checks

    path = write("raises_here.py", TEXT.replace("return rows.score", "return rows.scores"))
    failed = [outcome for outcome in run_checks("raises-here") if outcome.status == "failed"]
    assert [outcome.message for outcome in failed if f"(line 15 of {path})" not in outcome.message] == []
    assert len(failed) > 3
