"""Many findings at once: intervals that hold together, and Holm's steps."""

from __future__ import annotations

import numpy as np
import pytest
from tests.commands import checked

import fairkit
from fairkit.metrics import CONFUSION
from fairkit.models.columns import PredictedColumns
from fairkit.results.findings import Finding
from fairkit.results.policy import judge
from fairkit.results.rules import Rule
from fairkit.statistics import Rows
from fairkit_cli.formats import text_of
from fairkit_group.rates import RATES
from fairkit_group.simultaneous import Family, joint_confidence, marked


def _family(n: int = 3_000, groups: int = 5, seed: int = 0, metrics=tuple(RATES)) -> Family:
    rng = np.random.default_rng(seed)
    rows = Rows(outcome=rng.integers(0, 2, n).astype(float), decision=rng.integers(0, 2, n).astype(float))
    cells = CONFUSION.collect(rows, rng.integers(0, groups, n), groups)
    return Family(cells, [metric() for metric in metrics], 0)


@pytest.mark.long
def test_one_metric_alone_keeps_its_confidence():
    accuracy = [cls for cls in RATES if cls.name == "accuracy"]
    level = joint_confidence([_family(metrics=accuracy)], 0.95, np.random.default_rng(0))
    assert level == pytest.approx(0.95, abs=0.006)


def test_the_same_rate_under_two_names_costs_nothing():
    twins = [cls for cls in RATES if cls.name in ("true_positive_rate", "false_negative_rate")]
    level = joint_confidence([_family(metrics=twins)], 0.95, np.random.default_rng(0))
    assert level == pytest.approx(0.95, abs=0.006)


def test_rates_cost_less_than_bonferroni_and_independent_numbers_are_multiplied():
    level = joint_confidence([_family()], 0.95, np.random.default_rng(0))
    assert 0.95 < level < 1 - 0.05 / len(RATES)
    alone = joint_confidence([Family(None, (), 5)], 0.95, np.random.default_rng(0))
    assert alone == pytest.approx(0.95 ** (1 / 5), abs=1e-6)


def _null(seed: int, n: int = 6_000):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 12, n)
    rows = Rows(outcome=(rng.random(n) < 0.4).astype(float), decision=(rng.random(n) < 0.3).astype(float))
    return CONFUSION.collect(rows, codes, 12)


@pytest.mark.long
def test_reports_without_a_disparity_rarely_show_one():
    """Twelve equal groups and nine rates: a marginal interval misses in many reports, a simultaneous one in few."""
    from fairkit.intervals import spread_difference

    wrong = {"marginal": 0, "together": 0}
    audits = 120
    metrics = [cls() for cls in RATES if cls.name != "f1_score"]
    level = joint_confidence([Family(_null(999), metrics, 0)], 0.95, np.random.default_rng(0))
    for seed in range(audits):
        cells = _null(seed)
        estimates = [metric.estimate(cells, np.random.default_rng(0)) for metric in metrics]
        for name, at in (("marginal", 0.95), ("together", level)):
            wrong[name] += any(spread_difference(e.values, e.limits, at).low > 0 for e in estimates)
    assert wrong["marginal"] / audits > 0.1
    assert wrong["together"] / audits <= 0.05 + 3 * (0.05 * 0.95 / audits) ** 0.5


def _report(**told):
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], 3_000)
    columns = {
        "sex": sex, "y": rng.integers(0, 2, 3_000), "score": rng.random(3_000),
        "decision": (rng.random(3_000) < np.where(sex == "f", 0.3, 0.45)).astype(int),
    }  # fmt: skip
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["sex"])
    return fairkit.audit(PredictedColumns(decision="decision", score="score"), data, parameters={"group": told})


@pytest.mark.long
def test_the_report_marks_what_survives():
    plain, report = _report(), _report(simultaneous=True)
    gap = report.find("demographic_parity_difference", "sex")
    low, high = gap.evidence["simultaneous_interval"]
    assert low < gap.interval[0] < gap.interval[1] < high
    assert gap.evidence["survives"] is True
    assert report.find("accuracy_difference", "sex").evidence["survives"] is False
    assert "survives" not in plain.find("demographic_parity_difference", "sex").evidence
    for name in ("table", "html"):
        assert "survive when all intervals hold together" in " ".join(text_of(report, name, False).split())
        assert "Each interval holds by itself" in " ".join(text_of(plain, name, False).split())
    assert _report(simultaneous=True).to_dict()["findings"] == report.to_dict()["findings"]


def test_the_option_reaches_the_auditor(loans_model):
    roles = ("--data", loans_model.data, "--label", "decision", "--favorable", "approved", "--sensitive", "sex")
    found = checked("audit", loans_model.path, *roles, "--set", "group.simultaneous=true")
    assert "hold together" in found.output


def _finding(name: str, value: float, error: float) -> Finding:
    from fairkit.intervals import two_sided

    def at(confidence: float) -> tuple[float, float]:
        reach = two_sided(confidence) * error
        return value - reach, value + reach

    return Finding(auditor="group", metric=name, value=value, interval=at(0.95), better="lower", interval_at=at)


def test_holm_fails_step_by_step_and_leaves_passes():
    # p-values .0005, .015, .03 and a pass: Holm's limits are .0125, .0167 and .025, Bonferroni's is .0125
    values = {"a": 3.48, "b": 2.43, "c": 2.17, "d": -2.2}
    findings = [_finding(name, z, 1.0) for name, z in values.items()]
    rules = [Rule(metric=name, max=0.0) for name in values]
    plain = [rule.verdict for rule in judge(rules, findings)[0]]
    assert plain == ["fail", "fail", "fail", "pass"]
    results, verdict = judge(rules, findings, adjustment="holm")
    assert [rule.verdict for rule in results] == ["fail", "fail", "inconclusive", "pass"]
    assert verdict == "fail"
    assert "Holm's steps over 4 comparisons" in results[2].reason
    bonferroni = judge(rules, findings, adjustment="bonferroni")[0]
    assert [rule.verdict for rule in bonferroni] == ["fail", "inconclusive", "inconclusive", "inconclusive"]


def test_holm_keeps_the_chance_of_a_wrong_fail():
    rng, wrong = np.random.default_rng(0), 0
    rules = [Rule(metric=str(i), max=0.0) for i in range(8)]
    for _ in range(600):
        findings = [_finding(str(i), float(z), 1.0) for i, z in enumerate(rng.standard_normal(8))]
        wrong += judge(rules, findings, adjustment="holm")[1] == "fail"
    assert wrong / 600 <= 0.05


def test_an_adjustment_that_is_not_known_is_refused():
    with pytest.raises(fairkit.PolicyError, match="holm, bonferroni or benjamini-hochberg"):
        judge([Rule(metric="a", max=0.0)], [_finding("a", 1, 1)], adjustment="sidak")


def test_findings_that_the_statement_does_not_cover_stay():
    finding = _finding("accuracy", 1.0, 1.0)
    assert marked([finding], 0.99) == [finding]
