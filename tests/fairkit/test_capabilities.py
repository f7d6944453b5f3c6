"""What methods say that they can do about a policy, and what a search makes of it."""

from __future__ import annotations

import pytest

import fairkit
from fairkit import plugins
from fairkit.capabilities import CONSTRAINTS, Capability, constraint_of, metrics_of


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
