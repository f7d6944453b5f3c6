"""Somebody else's plugin, installed as a distribution of its own, driven through the command line."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.long

ROLES = ("--label", "decision", "--favorable", "approved", "--sensitive", "sex")


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


def test_show_says_what_it_does(thirdparty):
    shown = thirdparty.fairkit("plugins", "show", "lots").stdout
    assert "lots (fairkit-lots 1.2.3)" in shown
    assert "Drawing lots: a method that leaves decisions to chance" in shown
    assert "mean_margin" in shown
    assert "The share of decisions made by lot." in shown
    assert "Nobody, Drawing lots, 2024" in shown


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


def test_its_source_is_data(thirdparty):
    told = ("--predictions", "decision=won", "--sensitive", "sex", "--format", "json")
    result = thirdparty.fairkit("audit", "--data", "lots:500?seed=3", *told)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["data"]["rows"] == 500
    assert report["data"]["source"]["kind"] == "drawn"
    refused = thirdparty.fairkit("audit", "--data", "lots:some", *told)
    assert (refused.returncode, refused.stderr) == (2, "fairkit: lots:some says no number of people\n")
