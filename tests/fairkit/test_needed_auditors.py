"""A policy adds the auditors that it needs; a rule that nobody measures is refused before any row is scored."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fairkit
from fairkit import plugins
from fairkit.auditors import Auditor


class Untouchable:
    """A model that no row may reach."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        raise AssertionError("rows were scored")

    predict = predict_proba


def _data():
    rng = np.random.default_rng(0)
    table = {"x": rng.random(200), "sex": rng.choice(["f", "m"], 200), "y": rng.integers(0, 2, 200)}
    return fairkit.load_data(table, label="y", favorable=1, sensitive="sex")


@pytest.mark.parametrize("auditors", [None, ["consistency"], ["group", "subgroups"]])
def test_a_misspelt_metric_fails_at_once(auditors):
    rule = fairkit.Rule(metric="demographic_parity_diference", sensitive="sex", max=0.1)
    with pytest.raises(fairkit.PolicyError, match="Did you mean 'demographic_parity_difference'"):
        fairkit.audit(Untouchable(), _data(), auditors=auditors, policy=[rule])
    rule = fairkit.Rule(metric="demographic_parity_difference", sensitive="sexx", max=0.1)
    with pytest.raises(fairkit.PolicyError, match=r"'sexx', which was not audited\. Did you mean 'sex'"):
        fairkit.audit(Untouchable(), _data(), auditors=auditors, policy=[rule])


@pytest.mark.long
def test_a_misspelt_metric_fails_before_training():
    rule = fairkit.Rule(metric="demographic_parity_diference", sensitive="sex", max=0.1)
    done = []
    with pytest.raises(fairkit.PolicyError, match="Did you mean"):
        fairkit.mitigate("reweigh", _data(), policy=[rule], progress=lambda *step, **_: done.append(step))
    assert not done


def test_an_auditor_comes_with_the_policy():
    data = _data()

    class Half:
        classes_ = np.array([0, 1])

        def predict_proba(self, X):
            x = np.asarray(X["x"], dtype=float)
            return np.stack([1 - x, x], axis=1)

        def predict(self, X):
            return self.predict_proba(X)[:, 1] >= 0.5

    rules = [
        fairkit.Rule(metric="consistency", min=0.5),
        fairkit.Rule(metric="demographic_parity_difference", sensitive="sex", max=0.9),
    ]
    report = fairkit.audit(Half(), data, policy=rules)
    assert report.find("consistency").value == 1.0
    assert report.verdict == "pass"
    report = fairkit.audit(Half(), data, auditors=["consistency"], policy=rules)
    assert {one.auditor for one in report.findings} == {"consistency", "group"}


@pytest.mark.long
def test_ours_say_what_they_measure():
    for found in plugins.find():
        for cls in plugins.load(found.name).auditors if found.built_in else ():
            assert cls.measures is not Auditor.measures, cls.name
            assert cls.measures(plugins.load("group").metrics)


@pytest.mark.long
def test_what_auditors_measure_is_known_where_their_libraries_are_missing():
    """A base install has no numba: a rule with a misspelt metric is told as everywhere."""
    script = """
import sys
for name in ("numba", "torch", "sklearn", "xgboost", "lightgbm", "scipy"):
    sys.modules[name] = None
import pyarrow as pa
import fairkit
data = fairkit.load_data(pa.table({"y": [0, 1] * 50, "d": [1, 1, 0, 1] * 25, "g": ["a", "b"] * 50}),
                         label="y", favorable=1, sensitive=["g"])
try:
    fairkit.audit(fairkit.PredictedColumns(decision="d"), data, policy=[fairkit.Rule("selection_rat", max=0.5)])
except fairkit.PolicyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "which no installed auditor measures" in done.stdout, done.stderr
    assert "selection_rate" in done.stdout
