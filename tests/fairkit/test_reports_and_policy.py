"""Findings and reports to JSON and back; the one verdict; plugins found and explained."""

from __future__ import annotations

import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairkit
from fairkit import plugins
from fairkit.results.findings import Finding, GroupValue
from fairkit.results.policy import judge, verdict_of
from fairkit.results.report import DataInfo, ModelInfo, Report
from fairkit.results.rules import Rule, RuleResult

# round trips

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)
TEXTS = st.text(max_size=8)
INTERVALS = st.none() | st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair)))
GROUPS = st.builds(GroupValue, group=TEXTS, rows=st.integers(0, 9), value=st.none() | NUMBERS, interval=INTERVALS)
FINDINGS = st.builds(
    Finding,
    auditor=TEXTS,
    metric=TEXTS,
    value=st.none() | NUMBERS,
    sensitive=st.none() | TEXTS,
    interval=INTERVALS,
    confidence=st.floats(0.01, 0.99),
    better=st.sampled_from(["lower", "higher", "none"]),
    groups=st.lists(GROUPS, max_size=3).map(tuple),
    parameters=st.dictionaries(TEXTS, NUMBERS, max_size=2),
    evidence=st.dictionaries(TEXTS, st.lists(NUMBERS, max_size=2), max_size=2),
    notes=st.lists(TEXTS, max_size=2).map(tuple),
    inconclusive=st.none() | TEXTS,
    interval_at=st.none(),
)
RULES = st.builds(
    RuleResult,
    rule=st.builds(
        lambda metric, sensitive, side, limit: Rule.from_dict({"metric": metric, "sensitive": sensitive, side: limit}),
        TEXTS,
        st.none() | TEXTS,
        st.sampled_from(["max", "min"]),
        NUMBERS,
    ),
    verdict=st.sampled_from(["pass", "fail", "inconclusive"]),
    reason=TEXTS,
)


@given(
    findings=st.lists(FINDINGS, max_size=3),
    rules=st.lists(RULES, max_size=2),
    verdict=st.sampled_from([None, "pass", "fail", "inconclusive"]),
)
def test_reports_survive_json(findings: list[Finding], rules: list[RuleResult], verdict: Any) -> None:
    report = Report(
        model=ModelInfo(name="m", sha256=None, task="binary", notes=("a",)),
        data=DataInfo(name="d", sha256="0", rows=3, dropped_rows=1, groups={"g": {"a": 1, "b": 2}}),
        findings=tuple(findings),
        policy=tuple(rules),
        verdict=verdict,
        adjustment="bonferroni",
        environment={"fairkit": "0", "plugins": []},
    )
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert Report.from_dict(record) == report


def test_numbers_that_json_lacks_are_absent() -> None:
    finding = Finding(auditor="a", metric="m", value=math.nan, interval=(-math.inf, 3.0))
    record = finding.to_dict()
    assert record["value"] is None
    assert record["interval"] == [None, 3.0]
    assert Finding.from_dict(record).interval == (-math.inf, 3.0)


def test_records_of_another_schema_are_refused() -> None:
    with pytest.raises(fairkit.DataError, match=r"not a fairkit\.report/1 record"):
        Report.from_dict({"schema": "fairkit.report/9"})


def test_equal_inputs_give_equal_bytes() -> None:
    rng = np.random.default_rng(0)
    columns = {"g": rng.integers(0, 3, 500), "y": rng.integers(0, 2, 500), "s": rng.random(500), "w": rng.random(500)}

    def once(seed: int) -> str:
        data = fairkit.load_data(columns, label="y", favorable=1, sensitive=["g"], weights="w")
        return json.dumps(fairkit.audit(fairkit.PredictedColumns(score="s"), data, seed=seed).to_dict())

    assert once(3) == once(3)
    assert once(3) != once(4)


# the verdict


def _finding(value: float | None, low: float, high: float, **more: Any) -> Finding:
    given = {"auditor": "group", "metric": "gap", "sensitive": "sex", "value": value, "interval": (low, high), **more}
    return Finding(**given)


@pytest.mark.parametrize(
    ("low", "high", "most", "least"),
    [
        (0.01, 0.05, "pass", "fail"),
        (0.01, 0.1, "pass", "inconclusive"),
        (0.1, 0.2, "inconclusive", "pass"),
        (0.11, 0.2, "fail", "pass"),
        (0.05, 0.2, "inconclusive", "inconclusive"),
    ],
)
def test_the_interval_makes_the_verdict(low: float, high: float, most: str, least: str) -> None:
    finding = _finding((low + high) / 2, low, high)
    assert judge([Rule(metric="gap", max=0.1)], [finding])[1] == most
    assert judge([Rule(metric="gap", min=0.1)], [finding])[1] == least


def test_no_interval_or_a_small_group_is_inconclusive() -> None:
    rule = Rule(metric="gap", max=0.5)
    bare = Finding(auditor="a", metric="gap", value=0.1)
    results, verdict = judge([rule], [bare])
    assert verdict == "inconclusive"
    assert "has no interval" in results[0].reason
    small = _finding(0.1, 0.05, 0.2, inconclusive="Groups with fewer than 30 rows: a (3).")
    results, verdict = judge([rule], [small])
    assert (verdict, results[0].reason) == ("inconclusive", "Groups with fewer than 30 rows: a (3).")


def test_a_one_sided_bound_takes_the_place_of_the_upper_end() -> None:
    finding = _finding(0.08, 0.05, 0.12, evidence={"upper_confidence_bound": 0.09})
    assert judge([Rule(metric="gap", max=0.1)], [finding])[1] == "pass"
    assert judge([Rule(metric="gap", min=0.1)], [finding])[1] == "inconclusive"


def test_the_worst_verdict_is_the_verdict() -> None:
    names = ["pass", "inconclusive", "fail"]
    for verdicts in itertools.product(names, repeat=3):
        assert verdict_of(verdicts) == max(verdicts, key=names.index)  # type: ignore[arg-type]
    assert verdict_of([]) is None
    assert judge([], [_finding(0.1, 0, 1)]) == ((), None)


def test_a_rule_without_a_column_is_for_all_columns() -> None:
    findings = [_finding(0.01, 0, 0.02), _finding(0.3, 0.2, 0.4, sensitive="race")]
    assert judge([Rule(metric="gap", max=0.1)], findings)[1] == "fail"
    assert judge([Rule(metric="gap", sensitive="sex", max=0.1)], findings)[1] == "pass"


def _normal(value: float, error: float, sensitive: str) -> Finding:
    from fairkit.intervals import two_sided

    def at(confidence: float) -> tuple[float, float]:
        half = two_sided(confidence) * error
        return value - half, value + half

    return _finding(value, *at(0.95), sensitive=sensitive, interval_at=at)


def test_adjustments_ask_for_more() -> None:
    findings = [_normal(0.1 + 0.025 * (k + 1), 0.01, f"s{k}") for k in range(4)]  # z of 2.5, 5, 7.5, 10
    rules = [Rule(metric="gap", sensitive=f"s{k}", max=0.1) for k in range(4)]
    plain = [result.verdict for result in judge(rules, findings)[0]]
    strict = [result.verdict for result in judge(rules, findings, adjustment="bonferroni")[0]]
    stepwise = [result.verdict for result in judge(rules, findings, adjustment="benjamini-hochberg")[0]]
    assert plain == ["fail"] * 4
    assert strict == ["fail"] * 4  # z of 2.498 is asked for: 2.5 is just enough
    assert stepwise == ["fail"] * 4
    weak = [*findings[1:], _normal(0.1 + 0.021, 0.01, "s0")]  # z of 2.1: enough alone, not among four
    assert [r.verdict for r in judge(rules[:1], weak)[0]] == ["fail"]
    assert [r.verdict for r in judge(rules, weak, adjustment="bonferroni")[0]] == ["inconclusive", *["fail"] * 3]
    assert [r.verdict for r in judge(rules, weak, adjustment="benjamini-hochberg")[0]] == ["fail"] * 4
    with pytest.raises(fairkit.PolicyError, match="the adjustment 'sidak' is not known"):
        judge(rules, findings, adjustment="sidak")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("gap:sex=0.1", Rule(metric="gap", sensitive="sex", max=0.1)),
        ("gap=1e-3", Rule(metric="gap", max=1e-3)),
        ("gap:sex+race=0.1", Rule(metric="gap", sensitive="sex+race", max=0.1)),
        ("gap:a=b=0.1", Rule(metric="gap", sensitive="a=b", max=0.1)),
    ],
)
def test_rules_are_read(text: str, rule: Rule) -> None:
    assert Rule.parse(text, "max") == rule
    assert Rule.parse(text, "min") == Rule.from_dict({**rule.to_dict(), "max": None, "min": rule.limit})


def test_rules_have_one_limit() -> None:
    for limits in ({}, {"max": 1.0, "min": 0.0}, {"max": math.nan}):
        with pytest.raises(fairkit.PolicyError, match="needs one finite limit"):
            Rule(metric="gap", **limits)


def test_a_policy_on_a_report_is_in_the_report() -> None:
    data = fairkit.datasets.loans(2_000, label="would_repay", favorable="yes", drop=[])
    model = fairkit.PredictedColumns(decision="decision", favorable="approved")
    rules = [Rule(metric="demographic_parity_difference", sensitive="sex", max=0.05), Rule(metric="accuracy", min=0.5)]
    report = fairkit.audit(model, data, policy=rules)
    assert report.verdict == "fail"
    assert [(result.verdict, result.metric) for result in report.policy] == [
        ("fail", "demographic_parity_difference"),
        ("pass", "accuracy"),
    ]
    assert report.to_dict()["policy"][1] == {
        "metric": "accuracy",
        "sensitive": None,
        "min": 0.5,
        "verdict": "pass",
        "reason": report.policy[1].reason,
    }


# plugins


def test_ours_are_found_without_importing_them() -> None:
    found = {plugin.name: plugin for plugin in plugins.find()}
    assert found["group"].built_in
    assert found["group"].distribution == "fairkit"
    assert plugins.load("group").kinds[:2] == ("metric", "auditor")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that installs a plugin module for the test."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(name: str, source: str, distribution: str = "theirs") -> None:
        info = tmp_path / f"{distribution}-1.2.dist-info"
        info.mkdir(exist_ok=True)
        module = f"plugin_{name.replace('-', '_')}_{len(list(tmp_path.iterdir()))}"
        (tmp_path / f"{module}.py").write_text(source)
        sys.modules.pop(module, None)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[fairkit]\n{name} = {module}\n")

    return add


def test_a_command_looks_for_plugins_once(install, monkeypatch):
    from fairkit import plugins
    from fairkit.plugins import finding

    real, calls = finding.entry_points, []
    monkeypatch.setattr(finding, "entry_points", lambda group: calls.append(group) or real(group))
    with plugins.listed_once():
        first = plugins.find()
        install("later", METRIC)
        assert plugins.find() == first
        plugins.find_auditor("group")
    assert calls == ["fairkit"]
    assert "later" in {found.name for found in plugins.find()}


METRIC = """
import fairkit, numpy as np
class Refused(fairkit.Metric):
    name = "refusal_rate"
    meaning = "0: nobody is refused."
    range = (0.0, 1.0)
    def contributions(self, rows):
        return np.column_stack([1 - rows.decision, np.ones_like(rows.decision)])
    def compute(self, sums):
        return sums[..., 0] / sums[..., 1]
@fairkit.hookimpl
def fairkit_metrics():
    return [Refused]
"""


def test_a_third_partys_metric_is_measured_like_ours(install: Any) -> None:
    install("refusal", METRIC)
    data = fairkit.datasets.loans(2_000, label="would_repay", favorable="yes", drop=[])
    report = fairkit.audit(fairkit.PredictedColumns(decision="decision", favorable="approved"), data)
    ours, theirs = (report.find(f"{name}_difference", "sex") for name in ("selection_rate", "refusal_rate"))
    assert theirs.value == pytest.approx(ours.value, abs=1e-12)
    assert theirs.interval == pytest.approx(ours.interval, abs=0.01)
    assert {"name": "refusal", "distribution": "theirs", "version": "1.2"} in report.environment["plugins"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import a_library_that_is_not_there", "it needs a_library_that_is_not_there, which is not installed"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def (", "SyntaxError"),
        ("import fairkit\n@fairkit.hookimpl\ndef fairkit_metrix():\n    return []", "a hook is not as specified"),
        ("import fairkit\n@fairkit.hookimpl\ndef fairkit_metrics():\n    return [3]", "lists of Metric classes"),
        (
            "import fairkit\n@fairkit.hookimpl\ndef fairkit_metrics():\n    raise OSError('no disk')",
            "fairkit_metrics raises OSError: no disk",
        ),
        (
            "import fairkit\nclass A(fairkit.Auditor):\n    name = 'a'\n"
            "@fairkit.hookimpl\ndef fairkit_auditors():\n    return [A]",
            "A does not define findings, measure",
        ),
        (METRIC.replace('name = "refusal_rate"', ""), "Refused has no name"),
    ],
)
def test_a_plugin_that_does_not_load_is_a_row_with_its_reason(source: str, said: str, install: Any) -> None:
    install("theirs", source)
    row = next(row for row in plugins.explain_all() if row.found.name == "theirs")
    assert row.reason is not None
    assert said in row.reason
    assert "fix it with: pip install" in row.reason
    assert "\n" not in row.reason
    with pytest.raises(fairkit.PluginError, match=r"'theirs' of theirs 1\.2 does not load"):
        plugins.load("theirs")
    data = fairkit.datasets.loans(500, label="would_repay", favorable="yes", drop=[])
    report = fairkit.audit(fairkit.PredictedColumns(decision="decision", favorable="approved"), data)
    assert report.environment["plugins_not_loaded"] == [row.reason]
    with pytest.raises(fairkit.PluginError, match="does not load"):
        fairkit.audit(fairkit.PredictedColumns(decision="decision", favorable="approved"), data, auditors=["theirs"])


def test_two_plugins_of_one_name_are_told(install: Any) -> None:
    install("twin", METRIC)
    install("twin", METRIC, distribution="others")
    reasons = {row.reason for row in plugins.explain_all() if row.found.name == "twin"}
    assert len(reasons) == 1
    assert "two plugins have the name 'twin'" in str(reasons.pop())
    with pytest.raises(fairkit.PluginError, match="uninstall one of them"):
        plugins.load("twin")


def test_an_unknown_plugin_suggests() -> None:
    with pytest.raises(fairkit.PluginError, match=r"there is no plugin 'groop'\. Did you mean 'group'"):
        plugins.load("groop")


SCENARIO = {"hazard": "Women are refused more often", "mitigation": "two thresholds", "review": "a new product"}


def test_a_rule_carries_its_bias_scenario_wherever_it_goes():
    rule = Rule("accuracy", min=0.5, **SCENARIO)
    assert Rule.from_dict(rule.to_dict()) == rule == Rule("accuracy", min=0.5)  # the same limit
    assert Rule.from_dict(rule.to_dict()).scenario == rule.scenario == SCENARIO
    assert Rule("accuracy", min=0.5).to_dict().keys() == {"metric", "sensitive", "min"}
    finding = Finding(
        auditor="group",
        metric="accuracy",
        sensitive=None,
        value=0.8,
        interval=(0.7, 0.9),
        confidence=0.95,
        better="higher",
    )
    (result,), _ = judge([rule], [finding])
    assert result.reason.endswith(
        "; hazard: Women are refused more often; mitigation: two thresholds; review: a new product"
    )
    assert RuleResult.from_dict(result.to_dict()) == result
