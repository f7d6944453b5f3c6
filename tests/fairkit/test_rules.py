"""How a rule is written, which auditors it needs, and what methods can do about it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import fairkit
from fairkit import PolicyError, plugins
from fairkit.auditors import Auditor
from fairkit.capabilities import CONSTRAINTS, Capability, constraint_of, metrics_of
from fairkit.results.rules import MoreRows, Rule, RuleResult


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gap:sex", ("gap", "sex", None, ())),
        ("gap@50", ("gap", None, 50, ())),
        ("gap@50:sex", ("gap", "sex", 50, ())),
        ("gap:sex|age", ("gap", "sex", None, ("age",))),
        ("gap:sex|age+race", ("gap", "sex", None, ("age", "race"))),
    ],
)
def test_the_first_argument_may_name_the_groups(text, parts):
    rule = Rule(text, max=0.1)
    assert (rule.metric, rule.sensitive, rule.support, rule.within) == parts
    assert Rule(text, parts[1], support=parts[2], within=parts[3], max=0.1) == rule  # said twice, alike
    assert Rule.parse(f"{text}=0.1", "max") == rule
    assert Rule.from_dict(rule.to_dict()) == rule


@pytest.mark.parametrize("text", [":sex", "gap@", "gap@0", "gap@few", "gap:|age", "gap:sex|", "gap:sex|age+"])
def test_half_a_name_is_refused(text):
    with pytest.raises(PolicyError, match="is not understood"):
        Rule(text, max=0.1)
    with pytest.raises(PolicyError, match="is not understood"):
        Rule.parse(f"{text}=0.1", "max")


@pytest.mark.parametrize(
    ("sensitive", "more"), [("race", {}), (None, {"support": 9}), ("sex", {"within": "age"}), ("sex", {"support": 9})]
)
def test_two_names_that_differ_are_refused(sensitive, more):
    with pytest.raises(PolicyError, match="write METRIC:COLUMN, and the rest once"):
        Rule("gap:sex", sensitive, max=0.1, **more)


@pytest.mark.parametrize("text", ["gap", "gap=", "gap=few", "gap=nan", "gap=inf", "=1"])
def test_a_rule_without_a_number_is_refused(text):
    with pytest.raises(PolicyError, match="is not understood"):
        Rule.parse(text, "min")


def test_the_limit_itself_keeps_a_rule():
    most, least = Rule("gap", max=0.1), Rule("gap", min=0.1)
    assert [most.kept(value) for value in (0.05, 0.1, 0.15)] == [True, True, False]
    assert [least.kept(value) for value in (0.05, 0.1, 0.15)] == [False, True, True]
    assert most.upper
    assert not least.upper
    intervals = [(0.0, 0.05), (0.0, 0.1), (0.05, 0.2), (0.1, 0.2), (0.15, 0.2)]
    assert [most.settled(one) for one in intervals] == [True, True, None, None, False]
    assert [least.settled(one) for one in intervals] == [False, None, None, True, True]


def test_a_rule_says_its_limit_and_its_place():
    assert Rule("gap", max=0.05).say() == "at most 0.05"
    assert Rule("gap", min=0.05).say() == "at least 0.05"
    assert Rule("gap", max=0.05).say("5 %") == "at most 5 %"
    assert Rule("gap", max=0.05).place is None
    assert Rule("gap:sex", max=0.05).place == "sex"
    assert Rule("gap:sex|age+race", max=0.05).place == "sex | age+race"


def test_a_scenario_has_three_keys_and_follows_the_reason():
    rule = Rule("gap", max=0.05, hazard="refusals", review="each year")
    assert rule.with_scenario("Too large") == "Too large; hazard: refusals; review: each year"
    assert Rule("gap", max=0.05).with_scenario("Too large") == "Too large"
    with pytest.raises(PolicyError, match="may say hazard, mitigation, review, and no more"):
        Rule("gap", max=0.05, owner="me")


def test_the_rows_that_would_decide_are_a_sentence():
    one = MoreRows(rows=1_200, group="f", value=0.0712345, power=0.8)
    assert (
        one.sentence
        == "About 1,200 more rows of group f would decide it (with 80% chance, if the true value is 0.07123)"
    )
    everybody = MoreRows(rows=1_200, group=None, value=0.07, power=0.8)
    assert "more rows in the present shares of the groups would" in everybody.sentence
    never = MoreRows(rows=None, group=None, value=0.0999, power=0.8)
    assert never.sentence == "Even 100,000 more rows would hardly decide it: 0.0999 is too near the limit"
    assert one.to_dict() == {"rows": 1_200, "group": "f", "value": 0.0712345, "power": 0.8}


def test_what_became_of_a_rule_is_not_changed_afterwards():
    result = RuleResult(rule=Rule("gap", max=0.1), verdict="pass", reason="")
    more = MoreRows(rows=1, group=None, value=0.1, power=0.8)
    for one, name in ((result, "verdict"), (more, "rows")):
        with pytest.raises(FrozenInstanceError):
            setattr(one, name, None)
        assert not hasattr(one, "__dict__")
    with pytest.raises(TypeError):
        RuleResult(Rule("gap", max=0.1), "pass", "")


# A policy adds the auditors that it needs; a rule that nobody measures is refused before any row is scored.
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


# What methods say that they can do about a policy, and what a search makes of it.
@pytest.mark.parametrize(
    ("metric", "constraint"),
    [
        ("demographic_parity_difference", "demographic_parity"),
        ("selection_rate_ratio", "demographic_parity"),
        ("false_negative_rate_difference", "equal_opportunity"),
        ("true_negative_rate_difference", "predictive_equality"),
        ("gap_max", "equalized_odds"),
        ("statistical_parity_ks", "statistical_parity"),
        ("exposure_ratio", "exposure"),
        ("accuracy", "accuracy"),
        ("true_positive_rate_group_min", "true_positive_rate_group_min"),
    ],
)
def test_the_constraint_behind_a_metric(metric, constraint):
    assert constraint_of(metric) == constraint


def test_every_metric_of_a_constraint_leads_back_to_it():
    assert all(constraint_of(metric) == name for name in CONSTRAINTS for metric in metrics_of(name))


def test_equalized_odds_bounds_both_of_its_rates_and_neither_bounds_it():
    odds = Capability(constraints=("equalized_odds",))
    assert odds.meets("equal_opportunity_difference")
    assert odds.meets("false_positive_rate_difference")
    assert not odds.meets("demographic_parity_difference")
    assert not Capability(constraints=("equal_opportunity",)).meets("equalized_odds_difference")


def test_what_is_tried_is_in_units_of_the_limit_or_the_parameters_own():
    by_limit = Capability(constraints=("demographic_parity",), dial="tolerance", steps=(0.0, 0.5))
    assert by_limit.tries(0.1) == [{"tolerance": 0.0}, {"tolerance": 0.05}]
    own = Capability(constraints=("demographic_parity",), dial="strength", steps=(1.0, 0.5), of_limit=False)
    assert own.tries(0.1) == [{"strength": 1.0}, {"strength": 0.5}]
    assert Capability(constraints=("x",), settings={"a": 1}).tries(0.1) == [{"a": 1}]


@pytest.mark.parametrize(
    "wrong",
    [{"constraints": ()}, {"constraints": ("x",), "dial": "d", "steps": ()}, {"constraints": ("x",), "trainings": -1}],
)
def test_capabilities_that_say_nothing_are_refused(wrong):
    with pytest.raises(fairkit.ParameterError):
        Capability(**wrong)


def test_every_shipped_method_says_what_it_can_meet_or_is_a_baseline():
    without = {
        cls.name
        for found in plugins.find()
        if found.built_in
        for cls in plugins.load(found.name).mitigators
        if not cls.capabilities
    }
    assert without == {"correlation-remover", "disparate-impact-remover"}
