"""How a rule is written, which numbers keep it, and what would decide it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from fairkit import PolicyError
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
