"""`fairkit plugins new`: each kind is installed into a fresh environment, and its own tests pass there."""

from __future__ import annotations

import json

import pytest

import fairkit
from fairkit_cli.plugins.new import KINDS, project_files, write_project


@pytest.fixture(scope="module")
def projects(tmp_path_factory, fresh):
    """One project of each kind, installed together."""
    folder = tmp_path_factory.mktemp("projects")
    made = {kind: write_project(f"sample-{kind}", kind, folder / f"sample-{kind}") for kind in KINDS}
    environment = fresh()
    environment.install(*made.values())
    return environment, made


@pytest.mark.long
def test_their_own_tests_pass(projects):
    environment, made = projects
    options = ["-q", "-rA", "-W", "error", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir=."]
    folders = [folder.name for folder in made.values()]
    result = environment.run("-m", "pytest", *options, *folders, cwd=made["metric"].parent)
    assert result.returncode == 0, result.stdout[-3_000:]
    for folder in made.values():
        for file in (folder / "tests").iterdir():
            assert f"PASSED {file.relative_to(folder.parent)}::" in result.stdout


@pytest.mark.long
def test_all_are_installed_and_load(projects):
    environment, made = projects
    rows = json.loads(environment.fairkit("plugins", "list", "--format", "json").stdout)
    loaded = {row["name"]: row["kinds"] for row in rows if row["distribution"] != "fairkit"}
    assert loaded == {
        f"sample-{kind}": [kind.removesuffix("-in").removesuffix("-post").replace("-", " ")] for kind in made
    }


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_project_holds(kind):
    files = project_files("score-gap", kind)
    assert set(files) == {
        ".github/workflows/tests.yml",
        ".gitignore",
        "README.md",
        "fairkit_score_gap.py",
        "pyproject.toml",
        "tests/test_contract.py",
        "tests/test_score_gap.py",
    }
    assert "@software{fairkit_score_gap," in files["README.md"]
    assert 'score-gap = "fairkit_score_gap"' in files["pyproject.toml"]
    assert "class ScoreGap(" in files["fairkit_score_gap.py"]
    assert "${{ matrix.python }}" in files[".github/workflows/tests.yml"]


def test_the_command_says_what_to_do_next(tmp_path, thirdparty):
    result = thirdparty.fairkit("plugins", "new", "score-gap", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "cd fairkit-score-gap" in result.stdout
    assert (tmp_path / "fairkit-score-gap" / "fairkit_score_gap.py").is_file()
    again = thirdparty.fairkit("plugins", "new", "score-gap", cwd=tmp_path)
    assert again.returncode == 2
    assert "exists already" in again.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["fairkit-score-gap"]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("Score_Gap", "metric", "lower case words joined by hyphens"),
        ("group", "metric", "fairkit has a plugin 'group' already"),
        ("score-gap", "metrics", "Did you mean 'metric'?"),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path, name, kind, said):
    with pytest.raises(fairkit.ParameterError, match=said.replace("?", r"\?")):
        write_project(name, kind, tmp_path / "project")
    assert list(tmp_path.iterdir()) == []
