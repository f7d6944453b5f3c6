"""How many people may be replacements: the trend, verdicts that depend on it, rules that name it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fairkit
from fairkit import Rule
from fairkit.models.columns import PredictedColumns
from fairkit_cli.config import read_config
from fairkit_individual.support import Trend
from fairkit_similarity.transport import Support

pytest.importorskip("numba")


def _people(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Scores jump with noise of their own, so that ever more people find a worse-treated twin."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    score = 1 / (1 + np.exp(-2 * z[:, 0] - rng.normal(size=n)))
    return {"a": z[:, 0], "b": z[:, 1], "c": z[:, 2], "y": rng.integers(0, 2, n), "score": score}


def _apart(columns):
    """Two crowds of equal people, far from each other, with a score each: nobody near is treated otherwise."""
    side = np.arange(400) % 2
    columns |= {"a": 1e6 * side, "b": np.zeros(400), "c": np.zeros(400), "score": np.where(side, 0.6, 0.4)}


def _audit(columns, *rules: Rule, auditor: str = "restricted-dro", adjustment=None, **given):
    told = {"fair_metric": "euclidean", "columns": ["a", "b", "c"], "epsilon": 0.1} | given
    data = fairkit.load_data(columns, label="y", favorable=1)
    return fairkit.audit(
        PredictedColumns(score="score"), data, auditors=[auditor], parameters={auditor: told}, policy=rules,
        adjustment=adjustment,
    )  # fmt: skip


@pytest.mark.parametrize(("auditor", "metric"), [("restricted-dro", "performance_gap"), ("dif", "dif")])
def test_a_number_that_climbs_with_the_people_does_not_pass(auditor, metric):
    report = _audit(_people(400), Rule(metric=metric, max=50), auditor=auditor)
    (finding,) = report.findings
    assert finding.parameters["support"] == 400
    assert finding.evidence["support_sizes"] == [100, 200, 400]
    values = finding.evidence["support_values"]
    assert values == sorted(values)
    assert values[-1] == finding.value
    assert finding.evidence["climbs"]
    assert report.verdict == "inconclusive"
    assert f"{metric}@400" in report.policy[0].reason
    assert "as possible replacements" in finding.notes[0]


def test_a_number_that_breaks_the_limit_fails_though_it_climbs():
    assert _audit(_people(400), Rule(metric="performance_gap", max=0.1)).verdict == "fail"


def test_a_model_without_jumps_passes():
    columns = _people(400)
    _apart(columns)
    report = _audit(columns, Rule(metric="performance_gap", max=1), epsilon=0.01)
    assert not report.findings[0].evidence["climbs"]
    assert report.verdict == "pass"


def test_growth_by_rounding_is_none():
    assert not Trend((100, 200, 400), (0.0, 1e-15, 3e-15)).climbs((3e-15, 3e-15))
    assert Trend((100, 200, 400), (0.0, 1e-9, 1e-9)).climbs((1e-9, 1e-9))


def test_a_rule_is_for_the_number_of_people_that_it_names():
    columns = _people(800)
    rule = Rule.parse("performance_gap@200=5", "max")
    assert rule.support == 200
    other = _audit(columns, rule)
    assert other.verdict == "inconclusive"
    assert "the parameter `restricted-dro.support=200`" in other.policy[0].reason
    same = _audit(columns, rule, support=200)
    assert same.verdict == "pass"
    assert same.findings[0].parameters["support"] == same.findings[0].parameters["queries"] == 200
    assert same.findings[0].value < other.findings[0].value
    assert fairkit.Report.from_dict(json.loads(json.dumps(same.to_dict()))).policy == same.policy
    assert read_config({"policy": [rule.to_dict() | {"sensitive": "x"}]}).policy[0].support == 200


@pytest.mark.parametrize("text", ["performance_gap@=1", "performance_gap@x=1", "performance_gap@0=1"])
def test_a_support_that_is_no_number_is_refused(text):
    with pytest.raises(fairkit.PolicyError, match="not understood"):
        Rule.parse(text, "max")


def test_a_support_that_cannot_be_is_refused():
    with pytest.raises(fairkit.ParameterError, match="more than the 400 rows"):
        _audit(_people(400), support=500)
    data = fairkit.load_data(_people(400), label="y", favorable=1)
    with pytest.raises(fairkit.PolicyError, match="no support size"):
        fairkit.audit(PredictedColumns(score="score"), data, policy=[Rule(metric="accuracy", min=0.1, support=9)])
    with pytest.raises(fairkit.ConfigError, match="number"):
        read_config({"policy": [{"metric": "dif", "max": 1, "support": "many"}]})


def test_the_trend_is_the_mean_over_disjoint_parts():
    from fairkit_individual.support import Parts
    from fairkit_individual.tables import AuditedRows, MemoryTable, Rewards

    columns = _people(200)
    z = np.stack([columns[name] for name in "abc"], axis=1)

    class Plain:
        def transform(self, raw):
            return np.stack([raw[name] for name in "abc"], axis=1)

    rows = AuditedRows(columns=columns, fields={"rows": np.arange(200), "score": columns["score"]})
    make = lambda some: Rewards(kind="squared", values=some.fields["score"][:, None])  # noqa: E731
    rng = np.random.default_rng(7)
    parts = Parts.of(MemoryTable(rows), Plain(), make, None, weighted=False, rng=rng)
    trend = parts.trend(0.1, 9.0, 200, 1.0, 1e-10)
    order = np.random.default_rng(7).permutation(200)
    for share, value in ((4, trend.values[0]), (2, trend.values[1])):
        pieces = [np.sort(piece) for piece in np.array_split(order, share)]
        alone = [Support(z[p]).outputs(columns["score"][p]).solve(0.1, tolerance=1e-10).value for p in pieces]
        assert value == pytest.approx(np.mean(alone), abs=1e-8)
    assert trend.sizes == (50, 100, 200)
    assert trend.values[-1] == 9.0


def test_few_people_have_no_trend():
    report = _audit(_people(25), Rule(metric="performance_gap", max=50))
    (finding,) = report.findings
    assert "support_values" not in finding.evidence
    assert finding.evidence["support"] == 25
    assert report.verdict == "inconclusive"


def test_growth_that_was_not_measured_counts_as_growth():
    from fairkit.results.findings import Finding
    from fairkit.results.policy import judge
    from fairkit_individual.support import described

    finding = Finding(
        auditor="restricted-dro", metric="performance_gap", value=0.1, interval=(0.05, 0.15), better="lower",
        parameters={"support": 300_000}, evidence=described(None, (0.05, 0.15), 300_000, unmeasured=True),
    )  # fmt: skip
    (result,), _ = judge([Rule(metric="performance_gap", max=1)], [finding])
    assert result.verdict == "inconclusive"
    assert "was not measured" in result.reason
    named = Rule(metric="performance_gap", max=1, support=300_000)
    assert judge([named], [finding])[1] == "pass"


def test_several_rules_on_a_gap_are_decided_under_an_adjustment():
    rules = [Rule(metric="performance_gap", max=0.1), Rule(metric="performance_gap", max=0.2)]
    for adjustment in ("bonferroni", "benjamini-hochberg"):
        report = _audit(_people(400), *rules, adjustment=adjustment)
        assert [rule.verdict for rule in report.policy] == ["fail", "fail"]
    columns = _people(400)
    _apart(columns)
    wide = [Rule(metric="performance_gap", max=1), Rule(metric="performance_gap", max=2)]
    assert _audit(columns, *wide, epsilon=0.01, adjustment="bonferroni").verdict == "pass"


def test_certificates_of_different_sizes_are_not_compared_without_a_word():
    from fairkit_registry.promotion.case import worse_findings

    small, large = _audit(_people(200)), _audit(_people(400))
    worse, unknown = worse_findings(small, large)
    assert "performance_gap" not in {one.title for one in worse}
    assert "performance_gap" in {one.title for one in unknown}
    assert worse_findings(small, small)[0] == []


def test_a_part_of_a_support_is_a_support_of_the_part():
    rng = np.random.default_rng(0)
    z = rng.integers(0, 3, (400, 3)).astype(float) @ rng.normal(size=(3, 20))  # many equal rows, more than 16 columns
    whole, labels, losses = Support(z), rng.integers(0, 2, 400), rng.uniform(size=(2, 400))
    places = np.sort(rng.choice(400, 150, replace=False))
    part, alone = whole.part(places), Support(z[places])
    np.testing.assert_array_equal(part.group, alone.group)
    np.testing.assert_array_equal(part.first, alone.first)
    np.testing.assert_array_equal(part.places, alone.places)
    found = part.losses(losses[:, places], labels[places]).solve(0.5)
    known = alone.losses(losses[:, places], labels[places]).solve(0.5)
    assert found.value == pytest.approx(known.value, abs=1e-9)
    outputs = rng.normal(size=(150, 1))
    assert part.outputs(outputs).solve(0.5).value == pytest.approx(alone.outputs(outputs).solve(0.5).value, abs=1e-9)
