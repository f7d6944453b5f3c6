"""What a layperson reads: findings as sentences, whatever the metric's family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.commands import checked

import fairkit
from fairkit.models.columns import PredictedColumns
from fairkit.reading import answer, answers, disparities, metric_term, performance
from fairkit.results.findings import Finding, GroupValue
from fairkit.results.report import DataInfo, ModelInfo, Report
from fairkit.results.rules import Rule, RuleResult
from fairkit_cli.text.view import changes, question


def report(*findings: Finding, task: str = "binary", **changes: Any) -> Report:
    base = Report(
        model=ModelInfo(name="m.onnx", sha256=None, task=task),
        data=DataInfo(name="d.csv", sha256="0" * 64, rows=200, dropped_rows=0, groups={}),
        findings=findings,
    )
    return replace(base, **changes)


def between(metric: str, value: float, pair: tuple[float, float], *rates: float, **more: Any) -> Finding:
    names = ["women", "men", "others"][: len(rates)]
    order = sorted(range(len(rates)), key=rates.__getitem__)
    return Finding(
        auditor="group",
        metric=metric,
        sensitive="sex",
        value=value,
        interval=pair,
        groups=tuple(GroupValue(group=name, rows=100, value=rate) for name, rate in zip(names, rates, strict=True)),
        evidence={"lowest_group": names[order[0]], "highest_group": names[order[-1]]},
        **more,
    )


def rule(metric: str, verdict: Any, sensitive: str | None = "sex", **limit: float) -> RuleResult:
    reason = f"{metric} for {sensitive} is" if sensitive else f"{metric} is"
    return RuleResult(rule=Rule(metric, sensitive, **limit), verdict=verdict, reason=reason)


def test_a_difference_is_so_many_fewer_of_a_hundred():
    found = between("equal_opportunity_difference", 0.07, (0.055, 0.086), 0.82, 0.89)
    judged = rule("equal_opportunity_difference", "fail", max=0.05)
    assert str(answer(report(found), found, judged)) == (
        "Of 100 qualified people of group women, 82 get a favorable decision; of 100 of group men, 89: "
        "6 to 9 fewer (95% confidence). Your limit is at most 5: it is broken."
    )


@pytest.mark.parametrize(
    ("pair", "limit", "shown"),
    [
        ((0.046, 0.094), 0.05, "4.6 to 9.4"),  # 5 to 9 would look as if it were not below the limit
        ((0.0501, 0.094), 0.05, "5.01 to 9.40"),
        ((0.05, 0.094), 0.05, "5 to 9"),
        ((0.0, 0.004), 0.05, "0.0 to 0.4"),  # 0 to 0 would be a claim of no noise
        ((0.011, 0.029), 0.05, "1 to 3"),
        ((0.04996, 0.05004), 0.05, "4.996 to 5.004"),
    ],
)
def test_rounding_never_moves_an_end_across_the_limit(pair: tuple[float, float], limit: float, shown: str):
    found = between("demographic_parity_difference", 0.05, pair, 0.4, 0.45)
    told = answer(report(found), found, rule(found.metric, "inconclusive", max=limit))
    assert f": {shown} fewer" in told.told
    assert told.limit == "Your limit is at most 5: these rows do not decide it."


def test_a_ratio_is_so_many_times_as_many():
    found = between("demographic_parity_ratio", 0.9, (0.85, 0.96), 0.45, 0.5, better="higher")
    told = answer(report(found), found, rule(found.metric, "pass", min=0.8))
    assert str(told) == (
        "Of 100 people of group women, 45 get a favorable decision; of 100 of group men, 50: 0.900 (0.850 to 0.960) "
        "times as many (95% confidence). Your limit is at least 0.8: it is kept."
    )


@pytest.mark.parametrize(
    ("metric", "start"),
    [
        ("false_positive_rate_difference", "Of 100 unqualified people of group women, 10 get a favorable"),
        ("false_negative_rate_difference", "Of 100 qualified people of group women, 10 get an unfavorable"),
        ("true_negative_rate_difference", "Of 100 unqualified people of group women, 10 get an unfavorable"),
        ("precision_difference", "Of 100 people of group women with a favorable decision, 10 are qualified"),
        ("accuracy_difference", "Of 100 people of group women, 10 get the right decision"),
    ],
)
def test_each_rate_names_the_people_it_is_about(metric: str, start: str):
    found = between(metric, 0.1, (0.05, 0.15), 0.1, 0.2)
    assert answer(report(found), found).told.startswith(start)


def test_equalized_odds_names_the_rate_that_differs_more():
    tpr = between("true_positive_rate_difference", 0.02, (0.0, 0.05), 0.80, 0.82)
    fpr = between("false_positive_rate_difference", 0.10, (0.06, 0.14), 0.10, 0.20)
    odds = replace(fpr, metric="equalized_odds_difference", groups=(), evidence={})
    told = answer(report(tpr, fpr, odds), odds).told
    assert told.startswith("Of 100 unqualified people of group women, 10 get a favorable decision")
    assert "6 to 14 fewer" in told


def test_the_worst_group_and_all_people():
    low = between("accuracy_group_min", 0.7, (0.62, 0.77), 0.7, 0.8)
    assert answer(report(low), low).told == (
        "Of 100 people of group women, 70 get the right decision (62 to 77 with 95% confidence)."
    )
    whole = Finding(auditor="group", metric="accuracy", value=0.75, interval=(0.7, 0.8))
    judged = rule("accuracy", "inconclusive", None, min=0.72)
    assert str(answer(report(whole), whole, judged)) == (
        "Of 100 people, 75 get the right decision (70 to 80 with 95% confidence). "
        "Your limit is at least 72: these rows do not decide it."
    )


def test_regression_speaks_in_the_unit_of_the_outcome():
    found = between("mean_absolute_error_difference", 120.0, (80.0, 160.0), 400.0, 520.0)
    told = answer(report(found, task="regression"), found, rule(found.metric, "fail", max=50))
    assert str(told) == (
        "Mean error is 400 for group women and 520 for group men: a difference of 120 (80.000 to 160). "
        "Your limit is at most 50: it is broken."
    )


def test_one_class_of_several():
    found = between("true_positive_rate_difference", 0.2, (0.1, 0.3), 0.5, 0.7, parameters={"class": "gold"})
    assert answer(report(found, task="multiclass"), found).told == (
        "Of 100 people of group women whose class is gold, 50 are put in it; of 100 of group men, 70: "
        "10 to 30 fewer (95% confidence)."
    )
    whole = Finding(auditor="group", metric="accuracy", value=0.75, interval=(0.7, 0.8))
    assert "get the right class" in answer(report(whole, task="multiclass"), whole).told


def test_without_value_or_interval():
    none = between("demographic_parity_difference", 0.1, (0, 1), 0.1, 0.2)
    told = answer(report(none), replace(none, interval=None))
    assert told.told.endswith("of 100 of group men, 20: 10 fewer (no interval).")
    assert "is not defined here" in answer(report(none), replace(none, value=None)).told


def test_a_rule_on_all_columns_is_told_by_the_finding_that_decided_it():
    women = between("demographic_parity_difference", 0.01, (0.0, 0.02), 0.4, 0.41)
    race = replace(women, sensitive="race", value=0.2, interval=(0.15, 0.25))
    judged = replace(rule(women.metric, "fail", None, max=0.1), reason=f"{women.metric} for race is 0.2")
    (told,) = answers(report(women, race, policy=(judged,), verdict="fail"))
    assert told.finding is race
    assert told.limit == "Your limit is at most 10: it is broken."


def test_a_passing_ratio_does_not_lead_and_what_the_policy_limits_is_shown():
    many = [replace(between(f"metric{i}_difference", 0.3, (0.2, 0.4), 0.1, 0.4), sensitive=f"c{i}") for i in range(20)]
    small = between("demographic_parity_difference", 0.001, (0.0, 0.01), 0.4, 0.401)
    ratio = between("demographic_parity_ratio", 0.97, (0.9, 1.0), 0.4, 0.41, better="higher")
    policy = (rule("demographic_parity_ratio", "pass", min=0.8), rule("demographic_parity_difference", "pass", max=0.1))
    shown = disparities(report(ratio, small, *many, policy=policy, verdict="pass"))
    assert len(shown) == 12
    assert shown[-1] is ratio
    assert small in shown
    assert shown[0].metric.startswith("metric")


@pytest.fixture(scope="module")
def audited() -> Report:
    rng = np.random.default_rng(3)
    sex = rng.choice(["female", "male"], 600)
    score = np.clip(rng.random(600) + 0.15 * (sex == "male"), 0, 1)
    table = pa.table(
        {
            "score": score,
            "outcome": np.where(rng.random(600) < score, "yes", "no"),
            "sex": sex,
            "day": pa.array(np.datetime64("2024-03-05") + rng.permutation(600) % 90),
        }
    )
    data = fairkit.load_data(table, label="outcome", favorable="yes", sensitive=["sex"])
    policy = (Rule.parse("demographic_parity_difference:sex=0.02", "max"), Rule.parse("accuracy=0.6", "min"))
    about = {"intended_use": "credit", "owner": "Lending"}
    return fairkit.audit(PredictedColumns(score="score"), data, policy=policy, about=about)


def test_the_report_says_outcome_threshold_period_facts_and_counts(audited: Report):
    told = audited.to_dict()
    assert (told["data"]["label"], told["data"]["favorable"]) == ("outcome", "yes")
    assert told["predictions"]["outputs"]["threshold"] == 0.5
    assert told["data"]["period"] == {"column": "day", "from": "2024-03", "to": "2024-06"}
    assert told["about"] == {"intended_use": "credit", "owner": "Lending"}
    assert {"name": "outcome", "type": "text", "missing": 0} in told["data"]["columns"]
    counted = told["decisions"]
    assert counted["favorable"] + counted["unfavorable"] == 600
    rates = {g.group: g for g in audited.find("selection_rate_difference", "sex").groups}
    for name, one in counted["groups"]["sex"].items():
        assert one["favorable"] / (one["favorable"] + one["unfavorable"]) == pytest.approx(rates[name].value)
    assert Report.from_dict(told) == audited


def test_the_question_and_what_would_change_the_answer(audited: Report):
    assert question(audited) == (
        "Do these decisions keep the limits that were set: difference in favorable decisions between groups of sex, "
        "at most 0.02; right decisions, at least 0.6?"
    )
    said = changes(audited, answers(audited))
    assert any("Other decisions would." in line for line in said)  # there is no model to repair
    model = replace(audited, model=ModelInfo(name="m.onnx", sha256="0" * 64, task="binary"))
    assert (
        "$ fairkit mitigate --max demographic_parity_difference:sex=0.02 --min accuracy=0.6 --label outcome "
        "--favorable yes --sensitive sex --data TRAIN --test TEST --output REPAIRED.onnx"
    ) in changes(model, answers(model))


def test_performance_comes_in_the_order_of_its_ranks(audited: Report):
    assert performance(audited)[0].metric == "accuracy"


def test_every_metric_has_a_plain_name_and_a_sentence(audited: Report):
    for finding in audited.findings:
        term = metric_term(finding.metric)
        assert term.plain != finding.metric
        assert term.meaning.endswith(".")
    assert metric_term("recall_ratio").plain == "ratio: recall"


def test_facts_are_typed_or_configured_and_odd_ones_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.csv").write_text("y,d,sex\n" + "1,1,f\n0,1,m\n1,0,f\n0,0,m\n" * 20)
    (tmp_path / "fairkit.toml").write_text('[model]\nowner = "Lending"\nintended_use = "credit"\n')
    command = [
        "audit", "--data", "d.csv", "--label", "y", "--favorable", "1", "--sensitive", "sex",
        "--predictions", "decision=d", "--format", "json",
    ]  # fmt: skip
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    done = checked(*command, "--set", "about.owner=Risk")
    assert '"owner": "Risk"' in done.stdout
    assert '"intended_use": "credit"' in done.stdout
    assert '"date": "2023-11-14"' in done.stdout
    for odd in ("owner", "Owner=x", "owner="):
        refused = checked(*command, "--set", f"about.{odd}", code=2)
        assert "about." in refused.stderr
    checked(*command, "--set", "about.owner=a", "--set", "about.owner=b", code=2)
