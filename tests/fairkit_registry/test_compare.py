from __future__ import annotations

import math

import numpy as np
import pytest

from fairkit_registry.promotion.case import difference_interval, worse_findings


def test_two_symmetric_intervals_add_in_squares(make):
    before, after = make.finding("m", 0.5, 0.03), make.finding("m", 0.6, 0.04)
    assert difference_interval(before, after, 0.95) == pytest.approx((0.05, 0.15))
    # at another confidence, by the ratio of normal quantiles: 1.6449 / 1.9600
    low, high = difference_interval(before, after, 0.90)
    assert (high - low) / 2 == pytest.approx(0.05 * 1.6448536 / 1.9599640)


def test_lopsided_intervals_use_the_near_bounds(make):
    before = make.finding("m", 0.0, interval=(0.0, 0.02))
    after = make.finding("m", 0.1, interval=(0.07, 0.2))
    assert difference_interval(before, after, 0.95) == pytest.approx(
        (0.1 - math.hypot(0.03, 0.02), 0.1 + math.hypot(0.1, 0.0))
    )


def test_the_interval_covers_the_difference_of_two_independent_rates(make):
    rng = np.random.default_rng(5)
    n, p, q, z, covered, rounds = 400, 0.3, 0.35, 1.959964, 0, 2000
    for a, b in zip(rng.binomial(n, p, rounds) / n, rng.binomial(n, q, rounds) / n, strict=True):
        one = make.finding("m", a, z * math.sqrt(a * (1 - a) / n))
        other = make.finding("m", b, z * math.sqrt(b * (1 - b) / n))
        low, high = difference_interval(one, other, 0.95)
        covered += low <= q - p <= high
    assert 0.935 <= covered / rounds <= 0.965


@pytest.mark.parametrize(
    ("before", "after", "better", "is_worse"),
    [
        (0.5, 0.6, "lower", True),
        (0.5, 0.6, "higher", False),
        (0.5, 0.4, "lower", False),
        (0.5, 0.4, "higher", True),
        (0.5, 0.4, "none", False),
        (0.5, 0.505, "lower", False),
    ],
)
def test_what_is_significantly_worse_is_named(make, model, before, after, better, is_worse):
    sides = [make.report(model(), [make.finding("m", value, better=better)]) for value in (before, after)]
    worse, unknown = worse_findings(*sides)
    assert [one.title for one in worse] == ["m:sex"] * is_worse
    assert unknown == []


def test_findings_pair_by_auditor_metric_column_and_parameters(make, model):
    one = make.report(model(), [make.finding("m", 0.1), make.finding("gap", 0.2, parameters={"epsilon": 0.1})])
    other = make.report(model(), [make.finding("gap", 0.9, parameters={"epsilon": 0.5}), make.finding("m", 0.1)])
    worse, unknown = worse_findings(one, other)
    assert worse == []
    assert [(pair.title, pair.before, pair.after) for pair in unknown] == [("gap:sex", 0.2, None)]


@pytest.mark.long
def test_many_comparisons_of_equal_models_seldom_name_anything(make, model):
    """Without care for their number, 20 comparisons name something in about half of all cases."""
    rng = np.random.default_rng(1)
    alarms = 0
    rounds, half = 300, 1.959964 * 0.01
    for _ in range(rounds):
        sides = [
            make.report(
                model(), [make.finding(f"m{k}", value, half) for k, value in enumerate(rng.normal(0.5, 0.01, 20))]
            )
            for _ in range(2)
        ]
        alarms += bool(worse_findings(*sides)[0])
    assert alarms / rounds <= 0.06  # one direction of two: about .025 is expected


def test_what_cannot_be_compared_any_more_is_told(make, model):
    before = make.report(model(), [make.finding("m", 0.1), make.finding("n", 0.1, interval=None)])
    after = make.report(model(), [make.finding("n", 0.9, interval=None)])
    worse, unknown = worse_findings(before, after)
    assert worse == []
    assert [pair.title for pair in unknown] == ["m:sex"]
    assert [pair.title for pair in worse_findings(before, after, ["n"])[1]] == ["n:sex"]
