"""Every plugin that ships keeps the contract, and so do new projects and somebody else's plugin."""

from __future__ import annotations

import json

import pytest

import fairkit
from fairkit import plugins
from fairkit_cli.plugins.new import KINDS, project_files, write_project
from fairkit_testing import run_checks

QUICK = (
    "abfs", "delta", "duckdb", "endpoint", "gs", "iceberg", "mlflow", "pkcs11", "postgresql", "reject-option", "s3",
    "shift-inference",
)  # fmt: skip
LONG = (
    "all-inputs", "alternatives", "barycenter", "budro", "cards", "consistency", "correlation-remover",
    "correspondence", "counterfactuals", "data", "dif", "disparate-impact-remover", "exponentiated-gradient",
    "exposure", "fair-regression", "fairgbm", "group", "laws", "linear-post", "massaging", "multicalibrate",
    "project", "restricted-dro", "reweigh", "rto", "sensei", "subgroups", "threshold-optimizer", "why",
)  # fmt: skip
SETTINGS = {"exponentiated-gradient": {"iterations": 2}}


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_a_plugin_keeps_the_contract(name):
    broken = [one for one in run_checks(name, settings=SETTINGS.get(name)) if one.status == "failed"]
    assert broken == []


def test_no_plugin_of_ours_is_left_out():
    assert {one.name for one in plugins.find() if one.built_in} == {*QUICK, *LONG}


def test_show_names_all_that_a_plugin_offers():
    """A kind of classes that it forgot could be asked for, and was shown nowhere."""
    from fairkit_cli.plugins import describe

    for found in plugins.find():
        plugin = plugins.load(found.name)
        shown = [entry["name"] for kind in describe(plugin).values() if isinstance(kind, list) for entry in kind]
        assert sorted(shown) == sorted(cls.name for classes in plugin.classes.values() for cls in classes)


# `fairkit plugins new`: each kind is installed into a fresh environment, and its own tests pass there.
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


# Somebody else's plugin, installed as a distribution of its own, driven through the command line.
ROLES = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")


@pytest.mark.long
def test_it_is_listed_with_its_distribution(thirdparty):
    rows = json.loads(thirdparty.fairkit("plugins", "list", "--format", "json").stdout)
    row = next(row for row in rows if row["name"] == "lots")
    assert row == {
        "name": "lots",
        "kinds": ["metric", "auditor", "mitigator", "learner", "evidence chart", "source"],
        "distribution": "fairkit-lots",
        "version": "1.2.3",
        "loadable": True,
        "reason": None,
    }


@pytest.mark.long
def test_show_says_what_it_does(thirdparty):
    shown = thirdparty.fairkit("plugins", "show", "lots").stdout
    assert "lots (fairkit-lots 1.2.3)" in shown
    assert "Drawing lots: a method that leaves decisions to chance" in shown
    assert "mean_margin" in shown
    assert "The share of decisions made by lot." in shown
    assert "Nobody, Drawing lots, 2024" in shown


@pytest.mark.long
def test_its_metric_is_in_every_audit(thirdparty, loans):
    model, data = loans
    result = thirdparty.fairkit("audit", model, "--data", data, *ROLES, "--format", "json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    names = {finding["metric"]: finding for finding in report["findings"]}
    assert {"mean_margin", "mean_margin_difference", "mean_margin_group_min"} <= set(names)
    assert names["mean_margin"]["interval"][0] < names["mean_margin"]["value"] < 0.5
    used = {plugin["name"]: plugin for plugin in report["environment"]["plugins"]}
    assert used["lots"] == {"name": "lots", "distribution": "fairkit-lots", "version": "1.2.3"}


@pytest.mark.long
def test_its_auditor_takes_parameters(thirdparty, loans):
    model, data = loans
    command = ["audit", model, "--data", data, *ROLES, "--auditor", "lots", "--format", "json"]
    good = thirdparty.fairkit(*command, "--set", "lots.certain=0.1")
    finding = json.loads(good.stdout)["findings"][0]
    assert (finding["metric"], finding["value"], finding["parameters"]) == ("share_by_lot", 0.0, {"certain": 0.1})
    bad = thirdparty.fairkit(*command, "--set", "lots.certain=2")
    assert bad.returncode == 2
    assert bad.stderr == "fairkit: lots: certain must be 0 to 0.5, not 2.0\n"


@pytest.mark.long
def test_its_method_trains_a_randomized_model(thirdparty, loans, tmp_path):
    _, data = loans
    out = tmp_path / "fair.onnx"
    roles = (*ROLES, "--drop", "would_repay")
    command = ["mitigate", "--plugin", "lots", "--data", data, *roles, "--output", out, "--set", "share=0.5"]
    result = thirdparty.fairkit(*command, "--format", "json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert 0.3 < report["details"]["chance_of_the_lot"] < 0.8
    found = thirdparty.fairkit("audit", out, "--data", data, "--auditor", "lots", "--format", "json")
    assert json.loads(found.stdout)["findings"][0]["value"] == 1.0


@pytest.mark.long
def test_its_evidence_is_shown_on_the_terminal_and_on_the_page(thirdparty, loans):
    model, data = loans
    command = ["audit", model, "--data", data, *ROLES, "--auditor", "lots"]
    text = thirdparty.fairkit(*command).stdout
    assert "Rows by the chance that they get: share_by_lot" in text
    assert "0.9 to 1.0" in text
    page = thirdparty.fairkit(*command, "--format", "html").stdout
    section = page.split("Further evidence")[1].split("</section>")[0]
    assert section.count("<svg") == 2  # for wide and for narrow screens
    assert "0.9 to 1.0" in section


@pytest.mark.long
def test_its_learner_is_for_every_method_that_takes_any(thirdparty, loans, tmp_path):
    _, data = loans
    out = tmp_path / "fair.onnx"
    command = ["mitigate", "--plugin", "reweigh", "--data", data, *ROLES, "--drop", "would_repay", "--output", out]
    good = thirdparty.fairkit(*command, "--learner", "centroids", "--set", "settings.sharpness=0.1", "--format", "json")
    assert good.returncode == 0, good.stderr
    found = {finding["metric"]: finding["value"] for finding in json.loads(good.stdout)["after"]["findings"]}
    assert found["accuracy"] > 0.6
    bad = thirdparty.fairkit(*command, "--learner", "centroid")
    assert bad.returncode == 2
    assert "there is no learner 'centroid'" in bad.stderr
    assert "centroids" in bad.stderr
    own = thirdparty.fairkit(*command, "--learner", "centroids", "--set", "settings.sharp=1")
    assert own.returncode == 2
    assert "centroids has no setting 'sharp'" in own.stderr
    assert "learner centroids:" in thirdparty.fairkit("plugins", "show", "lots").stdout


@pytest.mark.long
def test_it_passes_the_contract_checks(thirdparty):
    result = thirdparty.fairkit("plugins", "check", "lots", "--format", "json")
    checks = json.loads(result.stdout)["checks"]
    assert result.returncode == 0, [check for check in checks if check["status"] != "passed"]
    assert len(checks) > 25
    assert {check["status"] for check in checks} == {"passed"}


@pytest.mark.long
def test_it_is_a_scikit_learn_estimator(thirdparty):
    code = (
        "import fairkit, numpy as np\n"
        "X = np.random.default_rng(0).normal(size=(200, 2)); y = (X[:, 0] > 0).astype(int)\n"
        "Lots = fairkit.mitigator('lots')\n"
        "fitted = Lots(share=1.0).fit(X, y, sensitive_features=X[:, 1] > 0)\n"
        "print(sorted(set(fitted.decision_probability(X).round(6))) == [round(float(y.mean()), 6)])"
    )
    result = thirdparty.run("-c", code)
    assert result.stdout.strip() == "True", result.stderr


@pytest.mark.long
def test_its_source_is_data(thirdparty):
    told = ("--predictions", "decision=won", "--sensitive", "sex", "--format", "json")
    result = thirdparty.fairkit("audit", "--data", "lots:500?seed=3", *told)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["data"]["rows"] == 500
    assert report["data"]["source"]["kind"] == "drawn"
    refused = thirdparty.fairkit("audit", "--data", "lots:some", *told)
    assert (refused.returncode, refused.stderr) == (2, "fairkit: lots:some says no number of people\n")
