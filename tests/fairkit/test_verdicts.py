"""Every way to a verdict and its reason: which findings a rule is about, missing values, adjustments."""

from __future__ import annotations

from typing import Any

import pytest

from fairkit import PolicyError
from fairkit.results.findings import Finding, GroupValue
from fairkit.results.policy import UNKNOWNS, judge
from fairkit.results.rules import Rule

MOST, LEAST = Rule("gap", max=0.1), Rule("gap", min=0.1)


def found(low: float = 0.02, high: float = 0.06, **more: Any) -> Finding:
    given = {"auditor": "group", "metric": "gap", "value": (low + high) / 2, "interval": (low, high), **more}
    return Finding(**given)


def verdict(rule: Rule, *findings: Finding, **more: Any) -> tuple[str, str]:
    (result,), worst = judge([rule], findings, **more)
    assert worst == result.verdict
    return result.verdict, result.reason


@pytest.mark.parametrize(
    ("rule", "ends", "reason"),
    [
        (MOST, (0.02, 0.06), "gap is 0.04, interval [0.02, 0.06]: the whole interval is at most the limit 0.1"),
        (MOST, (0.2, 0.6), "gap is 0.4, interval [0.2, 0.6]: the whole interval is above the limit 0.1"),
        (MOST, (0.0, 0.2), "gap is 0.1, interval [0, 0.2]: the interval contains the limit 0.1"),
        (LEAST, (0.2, 0.6), "gap is 0.4, interval [0.2, 0.6]: the whole interval is at least the limit 0.1"),
        (LEAST, (0.02, 0.06), "gap is 0.04, interval [0.02, 0.06]: the whole interval is below the limit 0.1"),
    ],
)
def test_the_reason_has_the_numbers(rule, ends, reason):
    assert verdict(rule, found(*ends))[1] == reason


def test_the_reason_says_where():
    told = found(sensitive="sex", reference="f", within=("age", "job"), parameters={"class": "x", "other": 1})
    inside = Rule("gap:sex|age+job", max=0.1)
    assert verdict(inside, told)[1].startswith("gap for sex against f | age+job (class x) is 0.04")


# which findings a rule is about


def test_a_rule_is_about_its_metric_its_column_and_its_strata():
    findings = [
        found(0.0, 0.01, sensitive="sex"),
        found(0.2, 0.3, sensitive="race"),
        found(0.0, 0.2, sensitive="sex", within=("age",)),
        found(0.2, 0.3, sensitive="sex", metric="other"),
    ]
    assert verdict(Rule("gap:sex", max=0.1), *findings)[0] == "pass"
    assert verdict(Rule("gap:race", max=0.1), *findings)[0] == "fail"
    assert verdict(Rule("gap", max=0.1), *findings)[0] == "fail"
    assert verdict(Rule("gap:sex|age", max=0.1), *findings)[0] == "inconclusive"


def test_where_all_groups_are_compared_those_against_a_reference_are_not_judged():
    every, against = found(0.0, 0.01), found(0.2, 0.3, reference="f")
    assert verdict(MOST, every, against)[0] == verdict(MOST, against, every)[0] == "pass"
    assert verdict(MOST, against)[0] == "fail"


def test_a_rule_about_nothing_is_refused():
    def refused(text: str, *findings: Finding, **more: Any) -> str:
        with pytest.raises(PolicyError) as caught:
            judge([Rule(text, max=0.1)], findings, **more)
        return str(caught.value)

    assert "'gap', which was not measured" in refused("gap", found(metric="other"))
    assert "Did you mean 'gap'" in refused("gaps", found())
    assert "against a group only" in refused("gap", conditions={"gap": "against a group"})
    assert "not looked" in refused("gap:sex|age", found(sensitive="sex"))
    assert "not looked" in refused("gap:sex|age", found(sensitive="sex"), found(metric="other"))
    assert "was not measured" in refused("gap:sex|age", found(metric="other", sensitive="sex"))
    assert "'gap' for 'race', which was not audited" in refused("gap:race", found(sensitive="sex"))
    assert "Did you mean 'sex'" in refused("gap:sxe", found(sensitive="sex"), found())


PART = {"column": "age", "value": -0.08, "interval": (-0.12, -0.05)}


@pytest.mark.parametrize(
    ("ends", "at", "expected"),
    [
        ((-0.12, -0.05), 0.13, "pass"),
        ((-0.12, -0.05), 0.045, "fail"),
        ((-0.12, 0.05), 0.1, "inconclusive"),
        ((-0.02, 0.05), 0.06, "pass"),
        ((0.05, 0.12), 0.045, "fail"),
        (None, 0.5, "inconclusive"),
    ],
)
def test_a_part_of_a_divided_gap_has_its_size(ends, at, expected):
    part = PART | {"interval": ends}
    whole = found(0.0, 1.0, metric="attribution", sensitive="sex", evidence={"columns": [part]},
                  interval_at=lambda _: (0.0, 1.0))  # fmt: skip
    score = found(metric="attribution", sensitive="sex", parameters={"of": "score"},
                  evidence={"columns": [PART | {"interval": (5.0, 6.0)}]})  # fmt: skip
    rule = Rule("attribution:sex.age", max=at)
    assert verdict(rule, whole, score)[0] == expected
    if ends == (-0.12, -0.05):
        assert verdict(rule, whole)[1].startswith("attribution for sex.age is 0.08, interval [0.05, 0.12]")


def test_the_size_of_a_part_of_either_sign_begins_at_0():
    part = PART | {"interval": (-0.02, 0.05)}
    whole = found(metric="attribution", sensitive="sex", evidence={"columns": [part]})
    assert verdict(Rule("attribution:sex.age", min=0.01), whole)[0] == "inconclusive"
    above = found(metric="attribution", sensitive="sex", evidence={"columns": [PART | {"interval": (0.3, 1.5)}]})
    assert verdict(Rule("attribution:sex.age", min=0.2), above)[0] == "pass"


def test_a_rule_on_the_whole_gap_is_about_the_whole():
    whole = found(0.2, 0.3, metric="attribution", sensitive="sex", evidence={"columns": [PART]})
    assert verdict(Rule("attribution:sex", max=0.1), whole)[0] == "fail"
    assert verdict(Rule("attribution", max=0.1), whole)[0] == "fail"


# what could turn it


def unknown(low: float | None, high: float | None, *, binding: bool = True, stretch: float = 1.0) -> dict:
    return {"low": low, "high": high, "reason": "Rows lack it", "binding": binding, "stretch": stretch}


@pytest.mark.parametrize("name", UNKNOWNS)
@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (unknown(0.03, 0.07), "pass"),  # .07 + .02
        (unknown(0.03, 0.09), "inconclusive"),  # .09 + .02
        (unknown(0.03, 0.09, stretch=0.4), "pass"),
        (unknown(0.03, 0.09, binding=False), "pass"),
        (unknown(None, None), "inconclusive"),
        (unknown(None, None, binding=False), "pass"),
    ],
)
def test_bounds_with_the_reach_of_the_interval_must_keep_the_limit(name, bounds, expected):
    seen = verdict(MOST, found(evidence={name: bounds}))
    assert seen[0] == expected
    assert ("Rows lack it" in seen[1]) == (expected == "inconclusive")
    assert ("no bound on gap is known" in seen[1]) == (bounds["low"] is None and bounds["binding"])


def test_the_reach_is_taken_from_the_number_also_where_it_is_0():
    seen = found(-0.02, 0.06, value=0.0, evidence={"missing_bounds": unknown(-0.02, 0.03)})
    assert verdict(Rule("gap", min=-0.05), seen)[0] == "pass"
    assert verdict(Rule("gap", min=-0.03), seen)[0] == "inconclusive"


@pytest.mark.parametrize(("low", "expected"), [(0.13, "fail"), (0.11, "inconclusive")])
def test_bounds_turn_a_fail_too(low, expected):
    seen = found(0.2, 0.24, evidence={"missing_bounds": unknown(low, 0.3)})  # its reach is .02
    assert verdict(MOST, seen)[0] == expected
    assert verdict(LEAST, seen)[0] == ("pass" if expected == "fail" else "inconclusive")


def test_the_first_bounds_that_turn_it_are_named():
    evidence = {"missing_bounds": unknown(0.03, 0.05), "label_error_bounds": unknown(0.01, 0.4)}
    reason = verdict(MOST, found(evidence=evidence))[1]
    assert "it lies between 0.01 and 0.4, and that could turn the verdict (limit 0.1)" in reason
    copied = verdict(MOST, found(evidence={"copies_bounds": unknown(0.01, 0.4)}))[1]
    assert "with copies counted once its interval is about [-0.01, 0.42]" in copied


def test_rows_without_a_group_that_are_enough_are_counted():
    groups = tuple(GroupValue(group=name, rows=100, value=0.5, denominator=100.0) for name in "ab")
    gone = GroupValue(group="", rows=60, value=0.5, denominator=60.0)
    finding = found(0.0, 0.02, metric="selection_rate_difference", groups=groups, missing=gone,
                    evidence={"missing_bounds": unknown(0.0, 0.3)})  # fmt: skip
    reason = verdict(Rule("selection_rate_difference", max=0.1), finding)[1]
    assert "the verdict turns if " in reason
    assert " of the 60 rows without a group belong where" in reason
    other = verdict(MOST, found(evidence={"missing_bounds": unknown(0.0, 0.3)}))[1]
    assert "the verdict turns if" not in other


def test_a_number_that_climbs_passes_only_a_rule_that_names_its_support():
    climbing = found(evidence={"climbs": True, "support_values": (0.01, 0.0234, 0.04)}, parameters={"support": 1200})
    reason = verdict(MOST, climbing)[1]
    assert "(0.01, 0.0234, 0.04 with a quarter, half, all of 1,200 people): it does not pass" in reason
    assert reason.endswith("as gap@1200")
    assert verdict(MOST, climbing)[0] == "inconclusive"
    assert verdict(Rule("gap@1200", max=0.1), climbing)[0] == "pass"
    assert verdict(MOST, found(evidence={"climbs": False}, parameters={"support": 1200}))[0] == "pass"
    assert verdict(MOST, found(0.2, 0.3, evidence={"climbs": True}, parameters={"support": 1}))[0] == "fail"
    bare = found(evidence={"climbs": True}, parameters={"support": 1200})
    assert "was not measured" in verdict(MOST, bare)[1]


def test_a_rule_for_another_support_is_not_judged():
    seen = verdict(Rule("gap@500", max=0.1), found(parameters={"support": 1200}))
    assert seen[0] == "inconclusive"
    assert "is meant for 500 people as possible replacements, and this number is about 1,200" in seen[1]
    assert "`group.support=500`" in seen[1]
    with pytest.raises(PolicyError, match="leave @500 out"):
        judge([Rule("gap@500", max=0.1)], [found()])


# which interval


def test_the_one_sided_bound_is_that_of_the_adjusted_confidence():
    def ends(confidence: float) -> tuple[float, float]:
        return (0.02, 0.2)

    told = {"upper_confidence_bound": 0.08}
    assert verdict(MOST, found(0.02, 0.12, evidence=told))[0] == "pass"
    assert verdict(LEAST, found(0.02, 0.12, evidence=told))[0] == "inconclusive"
    both = found(0.02, 0.12, evidence=told, interval_at=ends, upper_at=lambda c: 0.09 if c > 0.96 else 0.5)
    # two findings: each at .975
    assert verdict(MOST, both, both, adjustment="bonferroni")[0] == "pass"
    worse = found(0.02, 0.12, evidence=told, interval_at=ends, upper_at=lambda c: 0.15)
    assert verdict(MOST, worse, worse, adjustment="bonferroni")[0] == "inconclusive"
    lacking = found(0.02, 0.12, evidence=told, interval_at=ends)
    seen = verdict(MOST, lacking, lacking, adjustment="bonferroni")
    assert seen == ("inconclusive", "gap has no interval at the adjusted confidence 0.9750")
    plain = found(0.02, 0.06)
    assert verdict(MOST, plain, plain, adjustment="bonferroni")[1].endswith("adjusted confidence 0.9750")
    assert verdict(MOST, plain, adjustment="bonferroni")[0] == "pass"
    without = found(0.02, 0.06, interval_at=lambda _: None)
    assert verdict(MOST, without, without, adjustment="bonferroni")[1] == "gap has no interval"


def test_a_number_that_is_not_defined_or_forbids_a_verdict():
    assert verdict(MOST, found(value=None)) == ("inconclusive", "gap has no interval")
    assert verdict(MOST, found(interval=None)) == ("inconclusive", "gap has no interval")
    assert verdict(MOST, found(0.2, 0.3, inconclusive="Too few."))[1] == "Too few."


# adjustments


def stepped(*alphas: float, side: float = 0.2) -> list[Finding]:
    """Findings that break the limit at confidences up to 1 less each number."""

    def one(alpha: float) -> Finding:
        def at(confidence: float) -> tuple[float, float]:
            return (0.2, 0.3) if 1 - confidence >= alpha - 1e-9 else (0.0, 0.3)

        return found(*at(0.95), interval_at=at)

    return [one(alpha) for alpha in alphas]


@pytest.mark.parametrize(
    ("alphas", "fails"),
    [
        ((0.0125, 0.0166, 0.025, 0.05), 4),  # .05 / 4, / 3, / 2, / 1
        ((0.0126, 0.001, 0.03, 0.05), 2),
        ((0.0125, 0.017, 0.02, 0.05), 1),
        ((0.013, 0.013, 0.013, 0.013), 0),
    ],
)
def test_holm_fails_step_by_step(alphas, fails):
    findings = stepped(*alphas)
    named = [Rule("gap", max=0.1)]
    parts = [
        judge([Rule(f"gap:{place}", max=0.1) for place in range(len(findings))],
              [_of(finding, str(place)) for place, finding in enumerate(findings)], adjustment="holm")[0]
    ][0]  # fmt: skip
    assert sum(result.verdict == "fail" for result in parts) == fails
    for result in parts:
        if result.verdict != "fail":
            assert result.verdict == "inconclusive"
            assert result.reason.endswith("but not by Holm's steps over 4 comparisons")
    assert judge(named, findings, adjustment="holm")[1] == ("fail" if fails else "inconclusive")


def _of(finding: Finding, sensitive: str) -> Finding:
    from dataclasses import replace

    return replace(finding, sensitive=sensitive)


def test_holm_leaves_a_pass_alone():
    passing = found(interval_at=lambda _: (0.0, 0.5))
    assert verdict(MOST, passing, passing, adjustment="holm")[0] == "pass"


@pytest.mark.parametrize(
    ("alphas", "expected"),
    [
        ((0.0125, 0.025, 0.0375, 0.05), ["fail"] * 4),
        ((0.0125, 0.025, 0.0375, 0.06), ["fail"] * 3 + ["inconclusive"]),
        ((0.026, 0.025, 0.06, 0.06), ["inconclusive"] * 4),
        ((0.0125, 0.06, 0.06, 0.06), ["fail"] + ["inconclusive"] * 3),
    ],
)
def test_benjamini_and_hochberg_decide_as_many_as_their_level_allows(alphas, expected):
    findings = [_of(finding, str(place)) for place, finding in enumerate(stepped(*alphas))]
    rules = [Rule(f"gap:{place}", max=0.1) for place in range(len(findings))]
    results, _ = judge(rules, findings, adjustment="benjamini-hochberg")
    assert [result.verdict for result in results] == expected


def test_where_benjamini_and_hochberg_decide_nothing_intervals_are_bonferronis():
    wide = found(0.02, 0.2, interval_at=lambda confidence: (1 - confidence, 0.3))
    reason = verdict(MOST, wide, wide, adjustment="benjamini-hochberg")[1]
    assert "interval [0.025, 0.3]" in reason


def test_the_confidence_of_an_adjustment_is_the_audits():
    exact = stepped(0.05)[0]
    assert judge([MOST], [exact], confidence=0.95, adjustment="holm")[1] == "fail"
    assert judge([MOST], [exact], confidence=0.99, adjustment="holm")[1] == "inconclusive"
    assert judge([MOST], [exact], confidence=0.99, adjustment="benjamini-hochberg")[1] == "inconclusive"
    assert judge([], [exact], adjustment="holm") == ((), None)
