"""The fixture `fairkit_audit` in somebody else's tests, run by a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

TESTS = """
import numpy as np
import pytest

import fairkit


def test_kept(fairkit_audit):
    fairkit_audit("model.onnx").assert_policy()


def test_broken(fairkit_audit):
    rule = fairkit.Rule("demographic_parity_difference", "sex", max=0.001)
    fairkit_audit("model.onnx", "rows.parquet", policy=[rule]).assert_policy()


def test_no_policy(fairkit_audit):
    fairkit_audit("model.onnx", sensitive=["ethnicity"], policy=[]).assert_policy()


def test_undecided(fairkit_audit):
    value = fairkit_audit("model.onnx").report.find("demographic_parity_difference", "sex").value
    audited = fairkit_audit("model.onnx", policy=[fairkit.Rule("demographic_parity_difference", "sex", max=value)])
    audited.assert_policy(undecided=True)
    with pytest.raises(AssertionError, match="INCONCLUSIVE"):
        audited.assert_policy()


def test_an_estimator(fairkit_audit):
    class Model:
        classes_ = np.array([0, 1])

        def predict(self, frame):
            return (np.asarray(frame)[:, 0] > 0).astype(int)

    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    rule = fairkit.Rule("accuracy", min=0.5)
    fairkit_audit(Model(), X, y, sensitive_features=rng.integers(0, 2, 400), policy=[rule]).assert_policy()


def test_no_such_file(fairkit_audit):
    with pytest.raises(fairkit.FairkitError, match="missing.parquet"):
        fairkit_audit("model.onnx", "missing.parquet")
"""


@pytest.mark.long
def test_a_policy_is_a_test(loans_model, tmp_path):
    (tmp_path / "model.onnx").write_bytes(loans_model.path.read_bytes())
    (tmp_path / "rows.parquet").write_bytes(loans_model.data.read_bytes())
    (tmp_path / "fairkit.toml").write_text(
        '[data]\npath = "rows.parquet"\nlabel = "decision"\nfavorable = "approved"\nsensitive = ["sex"]\n'
        '[[policy]]\nmetric = "accuracy"\nmin = 0.5\n',
        encoding="utf-8",
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    folder = tmp_path / "checks"
    folder.mkdir()
    (folder / "test_credit.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junit-xml", "found.xml", "checks"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "2 failed, 4 passed" in result.stdout, result.stdout + result.stderr
    assert "FAIL: 1 of 1 policy rule broken" in result.stdout
    assert "add [[policy]] rules to fairkit.toml" in result.stdout
    cases = {case.get("name"): case for case in ET.parse(tmp_path / "found.xml").iter("testcase")}
    told = {one.get("name"): one.get("value") for one in cases["test_kept"].iter("property")}
    assert told["fairkit_verdict"] == "pass"
    assert told["fairkit_rule_accuracy"].startswith("pass: accuracy")
    assert cases["test_broken"].find("failure") is not None


def test_pytest_loads_nothing_heavy_for_those_who_do_not_use_it():
    heavy = "('numpy', 'onnxruntime', 'typer')"
    code = f"import sys, fairkit_cli.pytest_plugin; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_rules_are_written_as_the_command_says_them():
    import fairkit

    rule = fairkit.Rule("demographic_parity_difference", "sex", max=0.1, within="department+year")
    assert rule == fairkit.Rule.parse("demographic_parity_difference:sex|department+year=0.1", "max")
    assert fairkit.Rule("accuracy", min=0.8).limit == 0.8
    assert fairkit.Rule("accuracy", min=0.8, within="") == fairkit.Rule("accuracy", min=0.8)
    for wrong in ({}, {"max": 0.1, "min": 0.1}, {"max": float("nan")}):
        with pytest.raises(fairkit.PolicyError, match="one finite limit"):
            fairkit.Rule("accuracy", **wrong)
