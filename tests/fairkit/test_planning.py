"""Plans: the closed form's numbers, planned and simulated power, advice after an inconclusive audit."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
from tests.commands import checked, invoke

import fairkit
from fairkit import Rule
from fairkit.models.columns import PredictedColumns
from fairkit.planning.assumptions import _some_of, intervals, target_of
from fairkit.planning.results import two_digits
from fairkit.planning.run import installed
from fairkit.statistics import Sums

GAP = Rule(metric="demographic_parity_difference", sensitive="sex", max=0.05)
HALVES = {"female": 0.5, "male": 0.5}


def _decided(rule: Rule, sizes, rates, side: str, audits: int, seed: int = 1) -> float:
    """Audit drawn people, rows and all, and return the share of audits with the wanted verdict."""
    rng, hits = np.random.default_rng(seed), 0
    names = np.repeat(list(sizes), list(sizes.values()))
    chance = np.repeat(list(rates), list(sizes.values()))
    for _ in range(audits):
        decision = (rng.random(len(names)) < chance).astype(int)
        data = fairkit.load_data(
            {"sex": names, "y": np.arange(len(names)) % 2, "decision": decision},
            label="y",
            favorable=1,
            sensitive=["sex"],
        )
        report = fairkit.audit(PredictedColumns(decision="decision"), data)
        from fairkit.results.policy import judge

        hits += judge([rule], report.findings)[1] == side
    return hits / audits


@pytest.mark.long
@pytest.mark.parametrize(
    ("rule", "rates", "shares", "closed", "near"),
    [
        (GAP, [0.3, 0.3], [0.5, 0.5], 3_738, 0.04),
        (GAP, [0.3, 0.2], [0.6, 0.4], 2_515, 0.06),
        (Rule(metric="demographic_parity_ratio", sensitive="sex", min=0.8), [0.5, 0.46], [0.7, 0.3], 2_292, 0.1),
    ],
)
def test_two_groups_need_about_what_the_closed_form_says(rule, rates, shares, closed, near):
    names = ("female", "male")
    plan = fairkit.plan(
        [rule], groups=dict(zip(names, shares, strict=True)), assume=dict(zip(names, rates, strict=True))
    )
    assert plan.rows == pytest.approx(closed, rel=near)
    (one,) = plan.rules
    assert sum(group.rows for group in one.groups) == pytest.approx(plan.rows, abs=2)
    assert one.power == pytest.approx(0.8, abs=0.03)
    powers = [power for _, power in one.curve]
    assert powers == sorted(powers)


@pytest.mark.long
def test_the_planned_power_is_that_of_audits_of_rows():
    plan = fairkit.plan([GAP], groups={"female": 0.4, "male": 0.6}, assume={"female": 0.2, "male": 0.32})
    (one,) = plan.rules
    assert one.side == "fail"
    sizes = {group.group: group.rows for group in one.groups}
    assert _decided(GAP, sizes, [0.2, 0.32], "fail", 100) == pytest.approx(0.8, abs=0.12)  # 3 standard errors


@pytest.mark.long
def test_many_groups_need_more_rows_each_than_two():
    two = fairkit.plan([GAP], groups={"a": 1, "b": 1}, assume=0.2)
    ten = fairkit.plan([GAP], groups={str(i): 1 for i in range(10)}, assume=0.2)
    assert two.rules[0].groups[0].rows == pytest.approx(1_430, rel=0.06)
    assert ten.rules[0].groups[0].rows == pytest.approx(2_720, rel=0.06)
    assert "10 groups need more rows each" in ten.rules[0].notes[0]


def test_a_rate_over_outcomes_needs_rows_with_that_outcome():
    rule = Rule(metric="true_positive_rate_difference", sensitive="sex", max=0.1)
    plan = fairkit.plan(
        [rule], groups={"f": 0.85, "m": 0.15}, assume={"f": 0.8, "m": 0.78}, base={"f": 0.3, "m": 0.2}, power=0.9
    )
    assert plan.rows == pytest.approx(12_256, rel=0.09)
    assert plan.rules[0].groups[1].denominator == pytest.approx(0.2 * plan.rules[0].groups[1].rows, abs=1)
    assert plan.rules[0].balanced_rows < 0.7 * plan.rows


def test_the_smallest_difference_that_an_audit_fails():
    """At a rate of .3, half and half, 2,000 rows fail .112 with 80 % chance (simulated: 79 %), and 10,000 fail .077."""
    from fairkit.planning.advice import detectable
    from fairkit.planning.assumptions import Truth, target_of
    from fairkit.planning.run import installed

    target = target_of(GAP.metric, installed())
    for rows, expected in ((2_000, 0.112), (10_000, 0.077)):
        none, each = np.zeros(2), np.full((1, 2), rows / 2)
        truth = Truth(
            names=("f", "m"), shares=np.full(2, 0.5), rates=np.full((1, 2), 0.3), bases=np.ones((1, 2)),
            rows=none, denominators=none[None], counted=none[None],
        )  # fmt: skip
        found = detectable(target, truth, each, GAP, 0.95, 0.8)
        assert found.fails_from == pytest.approx(expected, abs=0.002)


@pytest.mark.long
@pytest.mark.parametrize("groups", [2, 3, 4])
@pytest.mark.parametrize("metric", ["demographic_parity_difference", "equalized_odds_difference"])
def test_the_ends_of_many_draws_at_once_are_those_of_each_audit(metric, groups):
    target = target_of(metric, installed())
    cells = np.random.default_rng(3).integers(0, 60, (50 * groups, 4)).astype(float)
    cells[0] = cells[:, 0] = 0  # a rate of 0 / 0, and of 1
    estimates = [
        rate().estimate(Sums(cells.sum(1), cells, cells[:, :, None] * np.eye(4)), None) for rate in target.rates
    ]
    enough = np.ones(50, dtype=bool)
    found = list(intervals(target, estimates, enough, 0.9))
    assert len(found) >= 40
    for draw, ends in found:
        part = [_some_of(one, slice(draw * groups, (draw + 1) * groups)) for one in estimates]
        assert ends == pytest.approx(target.interval(part, 0.9), abs=1e-15)


def test_the_same_seed_gives_the_same_plan():
    one, two = (fairkit.plan([GAP], groups=HALVES, seed=4).to_dict() for _ in range(2))
    assert json.dumps(one) == json.dumps(two)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs the groups' shares"),
        ({"groups": {"f": 1}}, "two or more"),
        ({"groups": HALVES, "assume": 2}, "between 0 and 1"),
        ({"groups": HALVES, "assume": {"female": 0.3}}, "no number for 'male'"),
        ({"groups": HALVES, "power": 1}, "power=1"),
        ({"groups": HALVES, "confidence": 0}, "confidence=0"),
    ],
)
def test_assumptions_that_do_not_do_are_refused(given, said):
    with pytest.raises(fairkit.ParameterError, match=said):
        fairkit.plan([GAP], **given)


def test_rules_that_cannot_be_planned_are_refused():
    with pytest.raises(fairkit.PolicyError, match="not made of rates"):
        fairkit.plan([Rule(metric="roc_auc_difference", max=0.1)], groups=HALVES)
    with pytest.raises(fairkit.PolicyError, match="no rule to plan for"):
        fairkit.plan([], groups=HALVES)
    with pytest.raises(fairkit.ParameterError, match="needs `base`"):
        fairkit.plan([Rule(metric="equalized_odds_difference", max=0.1)], groups=HALVES, assume=0.5)


def test_rules_inside_strata_are_refused():
    rule = Rule.parse("demographic_parity_difference:sex|department=0.05", "max")
    with pytest.raises(fairkit.FairkitError, match="inside the strata of 'department'"):
        fairkit.plan([rule], groups={"a": 0.5, "b": 0.5}, assume=0.3)
    found = _run("--max", "demographic_parity_difference:sex|department=0.05", "--groups", "a=1,b=1", "--assume", "0.3")
    assert found.code == 2
    assert "inside the strata of 'department'" in " ".join(found.text.split())


@pytest.mark.long
def test_a_pilot_of_dependent_rows_is_planned_from_its_width():
    """Each person stands in the table eight times with one decision: it takes about eight times the rows."""
    rng = np.random.default_rng(4)
    people = {"sex": rng.choice(["f", "m"], 500), "who": np.arange(500), "h": rng.integers(0, 2, 500)}
    rows = {name: np.repeat(values, 8) for name, values in people.items()}
    rule = Rule(metric="demographic_parity_difference", sensitive="sex", max=0.2)
    plans = []
    for columns, roles in ((people, {}), (rows, {}), (rows, {"cluster": "who"})):
        data = fairkit.load_data(columns, sensitive=["sex"], **roles)
        report = fairkit.Report.from_dict(fairkit.audit(PredictedColumns(decision="h"), data).to_dict())
        plans.append(fairkit.plan([rule], report=report).rules[0])
    assert plans[0].rows == pytest.approx(plans[1].rows, rel=0.1)
    assert plans[2].rows == pytest.approx(8 * plans[0].rows, rel=0.25)
    assert any("more clusters" in note for note in plans[2].notes)


def test_a_number_at_the_limit_has_no_plan():
    plan = fairkit.plan([GAP], groups=HALVES, assume={"female": 0.3, "male": 0.35})
    assert plan.rows is None
    assert "at the limit" in plan.rules[0].notes[-1]


def _audit(n: int = 3_000, rates=(0.27, 0.30), rule: Rule = GAP, seed: int = 0):
    rng = np.random.default_rng(seed)
    sex = np.repeat(["female", "male"], [int(0.3 * n), n - int(0.3 * n)])
    decision = (rng.random(n) < np.where(sex == "female", *rates)).astype(int)
    columns = {"sex": sex, "y": rng.integers(0, 2, n), "decision": decision, "score": rng.random(n)}
    data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["sex"])
    return fairkit.audit(PredictedColumns(decision="decision", score="score"), data, policy=[rule])


@pytest.mark.long
def test_an_inconclusive_rule_says_how_many_more_rows_would_decide_it():
    report = _audit(rates=(0.30, 0.30), rule=Rule(metric=GAP.metric, sensitive="sex", max=0.04))
    (result,) = report.policy
    assert result.verdict == "inconclusive"
    assert result.more_rows.rows is not None
    assert f"{result.more_rows.rows:,} more rows" in result.reason
    assert fairkit.Report.from_dict(json.loads(json.dumps(report.to_dict()))).policy == report.policy
    from fairkit_cli.formats import text_of

    for name in ("table", "json", "junit", "html"):
        flat = " ".join(text_of(report, name, False).split())
        assert f"{result.more_rows.rows:,} more rows" in flat, name


@pytest.mark.long
def test_the_advised_rows_decide():
    """Of audits extended as advised, with the found value as the truth, about 80 % are decided."""
    from fairkit.results.policy import judge

    rule = Rule(metric=GAP.metric, sensitive="sex", max=0.08)
    report = _audit(n=3_000, rates=(0.27, 0.30), rule=rule, seed=4)
    more = report.policy[0].more_rows
    finding = report.find(GAP.metric, "sex")
    assert more.group == "female"
    hits, rng = 0, np.random.default_rng(0)
    old = {g.group: (g.rows, g.value) for g in finding.groups}
    for _ in range(80):
        sex, decision = [], []
        for group, (rows, value) in old.items():
            new = more.rows if group == more.group else 0
            fresh = (rng.random(new) < value).astype(int)
            seen = np.arange(rows) < round(rows * value)
            sex += [group] * (rows + new)
            decision += [*seen.astype(int), *fresh]
        columns = {"sex": sex, "decision": decision, "y": np.arange(len(sex)) % 2}
        data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["sex"])
        again = fairkit.audit(PredictedColumns(decision="decision"), data)
        hits += judge([rule], again.findings)[1] != "inconclusive"
    assert hits / 80 == pytest.approx(0.8, abs=0.13)  # 3 standard errors


def test_a_number_too_near_the_limit_gets_no_rows():
    report = _audit()
    value = report.find(GAP.metric, "sex").value
    (result,) = _audit(rule=Rule(metric=GAP.metric, sensitive="sex", max=round(value, 4))).policy
    assert result.more_rows.rows is None
    assert "too near the limit" in result.reason


def test_other_numbers_are_advised_from_their_width():
    (result,) = _audit(rule=Rule(metric="roc_auc_difference", sensitive="sex", max=0.05)).policy
    assert result.more_rows.rows > 0
    assert result.more_rows.group is None


def test_a_finding_with_a_rule_says_what_the_audit_could_have_seen():
    seen = _audit().find(GAP.metric, "sex").evidence["detectable"]
    assert 0.05 < seen["fails_from"] < 0.2
    assert seen["passes_up_to"] is None
    assert "detectable" not in _audit().find("accuracy_difference", "sex").evidence


def test_a_pilot_plans_numbers_that_are_not_rates():
    rule = Rule(metric="roc_auc_difference", sensitive="sex", max=0.08)
    plan = fairkit.plan([rule], report=_audit(rule=rule))
    assert plan.rows > 0
    assert "width of the pilot" in plan.rules[0].notes[0]


@pytest.mark.long
def test_a_pilot_report_plans_the_next_audit(tmp_path):
    report = _audit()
    (tmp_path / "pilot.json").write_text(json.dumps(report.to_dict()))
    plan = fairkit.plan([GAP], report=report)
    assert [group.group for group in plan.rules[0].groups] == ["female", "male"]
    found = checked(
        "plan",
        "--max",
        "demographic_parity_difference:sex=0.05",
        "--report",
        tmp_path / "pilot.json",
        "--format",
        "json",
    )
    assert json.loads(found.stdout)["rows"] == plan.rows


def _run(*told: str) -> SimpleNamespace:
    found = invoke("plan", *told)
    return SimpleNamespace(code=found.exit_code, text=" ".join(found.output.split()))


@pytest.mark.long
def test_the_command_prints_rows_and_what_they_see():
    found = _run(
        "--max", "demographic_parity_difference:sex=0.05", "--groups", "female=0.2,male=0.8",
        "--assume", "female=0.2,male=0.3",
    )  # fmt: skip
    assert found.code == 0
    assert "rows decide the policy" in found.text
    assert "It fails from" in found.text
    assert "rows of each group as it needs" in found.text


@pytest.mark.parametrize(
    "told",
    [
        ["--groups", "a=x,b=1"],
        ["--groups", "a=1,b=1", "--assume", "half"],
        ["--groups", "a=1,b=1", "--groups", "a=1,b=2"],
        ["--report", "none.json"],
        ["--report", "none.json", "--assume", "0.3"],
    ],
)
def test_bad_usage_of_the_command_is_one_message(told):
    found = _run("--max", "demographic_parity_difference:sex=0.05", *told)
    assert found.code == 2


def test_rows_are_rounded_up_to_two_digits():
    assert [two_digits(x) for x in (7.2, 99.5, 101, 2_301, 2_300, 123_456)] == [8, 100, 110, 2_400, 2_300, 130_000]


@pytest.mark.long
def test_the_rows_of_a_policy_decide_all_its_rules_at_once():
    """Two rules on other rows are both passed with the chance that was asked for, not each of them alone."""
    from fairkit.intervals import share_limits, spread_difference

    rules = [
        Rule(metric="true_positive_rate_difference", sensitive="sex", max=0.1),
        Rule(metric="false_positive_rate_difference", sensitive="sex", max=0.1),
    ]
    rates = {"true_positive_rate": 0.7, "false_positive_rate": 0.3}
    made = fairkit.plan(rules, groups=HALVES, assume=rates, base=0.5)
    alone = max(one.rows for one in made.rules)
    assert made.rows > alone
    assert made.policy_power >= 0.8 - 1e-6
    assert made.to_dict()["policy_power"] == made.policy_power

    def together(rows: int) -> float:
        rng, hits = np.random.default_rng(1), 0
        for _ in range(1_500):
            passed = True
            positives = rng.binomial(rows // 2, 0.5, 2)
            for counts, rate in ((positives, 0.7), (rows // 2 - positives, 0.3)):
                over, values = counts.astype(float), rng.binomial(counts, rate) / counts
                spread = spread_difference(values, lambda z, v=values, n=over: share_limits(v, n, z), 0.95)
                passed &= spread.high <= 0.1
            hits += passed
        return hits / 1_500

    assert together(alone) < 0.72  # each rule has .8
    assert 0.77 <= together(made.rows) <= 0.88
    one = fairkit.plan(rules[:1], groups=HALVES, assume=rates["true_positive_rate"], base=0.5)
    assert one.rows == one.rules[0].rows
