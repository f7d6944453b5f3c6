"""Differences of ECCE: both groups' numbers are too large on average, so that the difference needs more room."""

from __future__ import annotations

import numpy as np
import pytest

from fairkit.intervals import pairwise, spread_quantiles, two_sided
from fairkit.metrics import Estimate
from fairkit.statistics import Rows, Scores
from fairkit_group.between import comparisons, odds, surely_apart
from fairkit_group.calibration import MEAN, Ecce, brownian_quantile
from fairkit_group.simultaneous import largest_difference
from fairkit_group.strata import Strata


@pytest.mark.parametrize("ratio", [0.2, 1.0, 4.0])
def test_the_upper_limit_covers_a_normal_number_and_the_largest_of_a_brownian_motion(ratio):
    # the first group's true number is far from 0, the second one's is 0: its value is max |W| standard errors
    rng = np.random.default_rng(4)
    draws = 6_000
    largest = np.abs(np.cumsum(rng.standard_normal((draws, 600)), axis=1)).max(axis=1) / np.sqrt(600)
    values = np.concatenate([0.5 + 0.01 * rng.standard_normal(draws), 0.01 * ratio * largest])
    errors = np.repeat([0.01, 0.01 * ratio], draws)
    estimate = Estimate(
        values,
        lambda z: (values - z * errors, values + z * errors),
        inflated=(MEAN, lambda z: brownian_quantile(0.025)),
    )
    one, two = np.arange(draws), np.arange(draws, 2 * draws)
    high = surely_apart(estimate, two_sided(0.95), one, two)
    assert 0.97 <= (high >= 0.5).mean() <= 0.985
    assert largest.mean() == pytest.approx(MEAN, abs=0.06)


def test_an_upper_end_holds_where_one_of_two_groups_is_calibrated():
    # .88 of the intervals held, and one in eight audits passed falsely, while the pair had the limits of other numbers
    grid = np.linspace(0, 1, 20_001)[1:-1]
    density = grid * (1 - grid) ** 3 / (grid * (1 - grid) ** 3).sum()
    truth = float(np.abs(np.cumsum(density * (np.clip(1.4 * grid, 0, 1) - grid))).max())
    rng = np.random.default_rng(8)
    group = np.repeat([0, 1], 1_500)
    passed = held = 0
    for _ in range(250):
        score = rng.beta(2, 4, len(group))
        chance = np.clip(np.where(group == 0, 1.4, 1.0) * score, 0, 1)
        rows = Rows(outcome=(rng.random(len(group)) < chance).astype(float), score=score)
        estimate = Ecce().estimate(Scores().collect(rows, group, 2), rng)
        (found,) = comparisons("ecce", "lower", frozenset({"difference"}), estimate)
        spread = found.spread(0.95)
        passed += spread.high < truth
        held += spread.low <= truth <= spread.high
    assert passed <= 14  # .025 of 250, and 3.2 standard errors
    assert held >= 230


def _inside(strata: int, sizes: tuple[int, int], factors: tuple[float, float], rng: np.random.Generator):
    """The pooled interval of the difference: scores in hundredths, outcome rates so many times the score."""
    stratum, group = np.divmod(np.repeat(np.arange(2 * strata), np.tile(sizes, strata)), 2)
    score = np.round(rng.beta(2, 4, len(group)), 2)
    chance = np.clip(np.array(factors)[group] * score, 0, 1)
    rows = Rows(outcome=(rng.random(len(group)) < chance).astype(float), score=score)
    metric = Ecce()
    totals = metric.statistic.collect(rows, stratum * 2 + group, 2 * strata)
    cells = Strata([str(place) for place in range(strata)], 2, {metric.statistic.key: totals}, {})
    return largest_difference(cells.pairs(metric, cells.cells(metric, rng)), 0.95)


@pytest.mark.long
@pytest.mark.parametrize(
    ("strata", "sizes", "factors", "truth"),
    [
        (1, (300, 300), (1.4, 1.0), 0.1312),
        (8, (400, 60), (1.0, 1.0), 0.0),
        (8, (400, 60), (1.4, 1.0), 0.1312),
        (8, (60, 400), (1.4, 1.0), 0.1312),
        (8, (200, 200), (1.4, 1.4), 0.0),
    ],
)
def test_pooled_over_strata_the_interval_holds(strata, sizes, factors, truth):
    # with the limits of other numbers .16 of those of two calibrated groups of unlike size held, and none in the third
    rng = np.random.default_rng(12)
    found = [_inside(strata, sizes, factors, rng) for _ in range(100)]
    assert sum(one.high < truth for one in found) <= 8  # .025 of 100, and 3.5 standard errors
    assert sum(one.low <= truth <= one.high for one in found) >= 88


def test_no_two_numbers_are_further_apart_than_1():
    values = np.array([0.9, 0.1])
    estimate = Estimate(values, lambda z: (values - z, np.minimum(values + z, 1.0)), inflated=(MEAN, lambda z: 2.24))
    one, two = np.array([0, 1]), np.array([1, 0])
    assert surely_apart(estimate, 1.96, one, two).max() == 1.0


def test_of_many_groups_the_largest_difference_and_gap_are_those_of_all_pairs():
    rng = np.random.default_rng(2)
    values, other = rng.beta(2, 5, (2, 200))
    error = rng.exponential(0.01, 200)
    first = Estimate(values, lambda z: (values - z * error, values + z * error), inflated=(0.4, lambda z: 0.5 * z))
    second = Estimate(other, lambda z: (other - z * error, other + z * error))
    a, b = np.nonzero(~np.eye(200, dtype=bool))
    seen = next(c for c in comparisons("x", "lower", frozenset({"difference"}), first)).spread(0.95)
    assert seen.high == surely_apart(first, two_sided(0.95), a, b).max()
    gap = next(c for c in odds(first, second) if c.metric == "gap_rms").spread(0.95)
    inner, outer = spread_quantiles(200, 0.95**0.5)
    both = {z: [pairwise(e.values, e.limits, z) for e in (first, second)] for z in (inner, outer)}
    rms = [np.sqrt((both[z][0][i] ** 2 + both[z][1][i] ** 2) / 2).max() for i, z in enumerate((inner, inner, outer))]
    assert (gap.value, gap.low, gap.high) == pytest.approx(tuple(rms), rel=1e-13)
