"""Confidence sequences against brute force, closed forms, and lifetimes of stable and drifting rates."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fairkit.intervals import wilson
from fairkit_watch.sequences import (
    Between,
    Ends,
    deviance_limits,
    difference,
    extreme,
    factor,
    lambda_grid,
    mean_limits,
    pairs,
    rate_limits,
    ratio,
    spending,
)


def evidence(counted, n, p, grid, sign):
    """log of (1/K) Σ exp(±λ S - n log(1 + p (e^±λ - 1))), as it is written."""
    terms = [sign * u * counted - n * math.log1p(p * math.expm1(sign * u)) for u in grid]
    top = max(terms)
    return top + math.log(sum(math.exp(one - top) for one in terms) / len(terms))


def bisected(counted, n, alpha, grid, sign):
    low, high = (0.0, counted / n) if sign > 0 else (counted / n, 1.0)
    target = math.log(2 / alpha)
    for _ in range(200):
        middle = (low + high) / 2
        if (evidence(counted, n, middle, grid, sign) > target) == (sign > 0):
            low = middle
        else:
            high = middle
    return (low + high) / 2


@pytest.mark.parametrize("reference", [None, 0.01, 0.1, 0.5])
@pytest.mark.parametrize(("counted", "n"), [(0, 50), (50, 50), (1, 1000), (137, 1000), (500_000, 10**6), (3, 7)])
def test_the_grid_s_limits_are_those_of_brute_force(reference, counted, n):
    grid = lambda_grid(reference)
    low, high = rate_limits(np.array([counted]), np.array([n]), 0.05, grid)
    assert low[0] == pytest.approx(bisected(counted, n, 0.05, grid, 1), abs=1e-9)
    assert high[0] == pytest.approx(bisected(counted, n, 0.05, grid, -1), abs=1e-9)


def test_deviance_limits_without_counts_have_a_closed_form():
    n, r = np.array([1.0, 20, 1e6]), 2.5
    low, high = deviance_limits(np.zeros(3), n, r)
    assert (low == 0).all()
    np.testing.assert_allclose(high, -np.expm1(-r / n), rtol=1e-9)
    low, high = deviance_limits(np.ones(3), n, r)
    np.testing.assert_allclose(low, np.exp(-r / n), rtol=1e-12)
    assert (high == 1).all()
    assert [float(end[0]) for end in deviance_limits(np.array([0.3]), np.array([0.0]), r)] == [0, 1]


def test_deviance_limits_solve_their_equation():
    rng = np.random.default_rng(0)
    rate, n, r = rng.random(200), rng.integers(1, 10**6, 200).astype(float), rng.uniform(0.1, 30, 200)
    for p in deviance_limits(rate, n, r):
        gap = n * (rate * np.log(rate / p) + (1 - rate) * np.log((1 - rate) / (1 - p)))
        np.testing.assert_allclose(gap, r, rtol=1e-6, atol=1e-6)


def test_the_factor_has_the_published_tuning():
    """Waudby-Smith et al.: ρ² t₀ is 8.21 at 5 %; c / 1.96 by t / t₀."""
    shares = np.array([0.1, 0.3, 1, 3, 10, 100])
    np.testing.assert_allclose(factor(shares, 0.05) / 1.959964, [1.95, 1.63, 1.55, 1.58, 1.66, 1.82], atol=0.006)
    near = factor(np.array([0.8, 1.0, 1.25]) * 1.0, 0.05) / np.sqrt(np.array([0.8, 1.0, 1.25]))
    assert near[0] > near[1] > near[2]
    assert np.isinf(factor(np.array([0.0]), 0.05)[0])


@pytest.mark.parametrize("p", [0.001, 0.01, 0.1, 0.5])
def test_a_rate_s_sequence_is_at_most_1_8_times_as_wide_as_one_look(p):
    n = np.array([100.0, 1e3, 1e4, 1e5, 1e6])
    wide = np.subtract(*reversed(wilson(np.full(5, p), n, 1.959964)))
    for grid in (lambda_grid(p), lambda_grid()):
        low, high = rate_limits(p * n, n, 0.05, grid)
        assert ((high - low) / wide <= 1.8).all()


def lifetimes(chances, count, batch, looks, seed):
    """Counts up to each look of many lifetimes: [count, looks]; chances by look."""
    rng = np.random.default_rng(seed)
    return rng.binomial(batch, np.broadcast_to(chances, (count, looks))).cumsum(axis=1).astype(float)


@pytest.mark.parametrize("p", [0.01, 0.5])
def test_few_of_many_lifetimes_ever_miss_where_fixed_intervals_miss_half(p):
    count, looks = 200, 150
    counted = lifetimes(p, count, 100, looks, 3)
    n = np.broadcast_to(100.0 * np.arange(1, looks + 1), counted.shape)
    low, high = rate_limits(counted, n, 0.05, lambda_grid(p))
    assert ((low > p) | (high < p)).any(axis=1).mean() <= 0.05
    low, high = wilson(counted / n, n, 1.959964)
    assert ((low > p) | (high < p)).any(axis=1).mean() > 0.25


@pytest.mark.parametrize("drift", ["sine", "jump"])
def test_the_running_mean_of_a_drifting_rate_is_covered(drift):
    t = np.arange(100)
    chances = 0.1 + 0.09 * np.sin(t / 9) if drift == "sine" else np.where(t % 20 < 10, 0.02, 0.18)
    counted = lifetimes(chances, 200, 100, len(t), 5)
    n = np.broadcast_to(100.0 * (t + 1), counted.shape)
    low, high = rate_limits(counted, n, 0.05, lambda_grid(0.1))
    mean = np.cumsum(chances) / (t + 1)
    assert ((low > mean) | (high < mean)).any(axis=1).mean() <= 0.05


def test_a_weighted_mean_is_covered_after_its_burn_in():
    rng = np.random.default_rng(1)
    x = rng.exponential(2.0, (150, 4000))
    w = rng.uniform(0.5, 1.5, x.shape)
    terms = np.stack([w, w**2, w * x, w**2 * x, w**2 * x**2], axis=-1)
    moments = terms.cumsum(axis=1)[:, 99::100]
    mean, low, high = mean_limits(moments, 0.05, 3000.0)
    assert np.isnan(low[:, 0]).all()  # fewer than 100 effective rows
    assert ((low > 2) | (high < 2)).any(axis=1).mean() <= 0.06
    assert np.nanmax(np.abs(mean[:, -1] - 2)) < 0.2


def two_groups(difference_, sizes, count, looks, seed, base=0.2):
    rng = np.random.default_rng(seed)
    n = np.cumsum(np.broadcast_to(sizes, (count, looks, len(sizes))), axis=1).astype(float)
    chances = base + np.asarray(difference_)
    counted = rng.binomial(sizes, np.broadcast_to(chances, n.shape)).cumsum(axis=1)
    return counted / n, n


def best(sizes, looks):
    n = np.array(sizes) * looks / 2.0
    return 1 / (1 / n[:, None] + 1 / n[None, :])


@pytest.mark.long
@pytest.mark.parametrize(
    ("gaps", "sizes"),
    [([0, 0], [380, 20]), ([0, 0.05], [200, 200]), ([0, 0, 0, 0, 0.05], [80] * 5), ([0] * 5, [80] * 5)],
)
def test_differences_and_ratios_are_covered_at_all_looks(gaps, sizes):
    rates, n = two_groups(gaps, sizes, 120, 40, 7)
    how = Between(0.05, len(sizes), best(sizes, 40))
    for make, truth in ((difference, max(gaps)), (ratio, 0.2 / (0.2 + max(gaps)))):
        low, high = make(Ends.certain(rates, n), how)
        missed = (low > truth + 1e-12) | (high < truth - 1e-12)
        assert missed.any(axis=1).mean() <= 0.05
        assert np.nanmean(low[:, -1] <= truth) > 0.95


@pytest.mark.parametrize("largest", [True, False])
def test_the_extreme_group_is_covered_at_all_looks(largest):
    rates, n = two_groups([0, 0, 0.03], [100, 100, 100], 120, 30, 2)
    truth = 0.23 if largest else 0.2
    how = Between(0.05, 3, best([100] * 3, 30))
    low, high = extreme(Ends.certain(rates, n), how, lambda_grid(0.2), largest=largest)
    assert ((low > truth) | (high < truth)).any(axis=1).mean() <= 0.05


def test_shares_of_alpha_never_add_up_to_more_than_all():
    for declared in range(6):
        assert spending(np.arange(2000), declared).sum() <= 1 + 1e-9
        a, b, shares = pairs(30, declared)
        assert shares.sum() <= 1 + 1e-9
        assert len(a) == 435
        assert (a < b).all()
    before = pairs(4, 3)
    after = pairs(7, 3)
    for x, y in zip(before, after, strict=True):  # a new group changes nothing for those before it
        np.testing.assert_array_equal(x, y[:6])


def test_an_interval_needs_two_groups_with_rows_and_passes_over_those_without():
    how = Between(0.05, 2, best([50, 50, 50], 10))
    nothing = difference(Ends.certain(np.array([0.1, np.nan]), np.array([10.0, 0])), how)
    assert all(np.isnan(end) for end in nothing)
    two = Ends.certain(np.array([0.1, 0.3]), np.array([400.0, 300]))
    three = Ends.certain(np.array([0.1, 0.3, np.nan]), np.array([400.0, 300, 0]))
    for make in (difference, ratio):
        low, high = make(two, how)
        wide_low, wide_high = make(three, how)
        assert wide_low <= low + 1e-12
        assert wide_high >= high - 1e-12


def test_unresolved_rows_widen_an_interval_to_the_union_of_what_they_could_be():
    how = Between(0.05, 2, best([500, 500], 2))
    rates, n = np.array([0.2, 0.3]), np.array([500.0, 500])
    certain = difference(Ends.certain(rates, n), how)
    open_ = Ends(np.array([0.18, 0.28]), n, np.array([0.22, 0.33]), n)
    low, high = difference(open_, how)
    for a in (0.18, 0.22):
        for b in (0.28, 0.33):
            inside = difference(Ends.certain(np.array([a, b]), n), how)
            assert low <= inside[0] + 1e-12
            assert high >= inside[1] - 1e-12
    assert low < certain[0]
    assert high > certain[1]
