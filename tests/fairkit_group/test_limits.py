"""Limits of shares, means and largest differences against scipy, closed forms and numerical integrals."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import optimize, stats

from fairkit.intervals import Spread, difference_limits, extreme, ratio_limits, spread_difference, spread_ratio
from fairkit.limits import (
    bounded_mean_limits,
    clopper_pearson,
    heavy,
    mean_limits,
    selected_quantile,
    share_limits,
    student,
    tilted,
    unseen,
    weighted_share_limits,
    widened,
    wilson,
)

Z = NormalDist().inv_cdf(0.975)


def column(*values):
    return np.array(values, dtype=float)


@pytest.mark.parametrize("z", [1.0, Z, 3.1])
def test_exact_limits_are_those_of_the_beta_distribution(z):
    tail = NormalDist().cdf(-z)
    for n in (1, 2, 7, 30, 101, 5_000):
        k = np.unique(np.array([0, 1, n // 3, n // 2, n - 1, n]))
        k = k[k >= 0]
        low, high = clopper_pearson(k / n, np.full(len(k), float(n)), z)
        least, most = stats.beta.ppf(tail, k, n - k + 1), stats.beta.ppf(1 - tail, k + 1, n - k)
        assert low == pytest.approx(np.where(k == 0, 0.0, least), rel=1e-8, abs=1e-14)
        assert high == pytest.approx(np.where(k == n, 1.0, most), rel=1e-8, abs=1e-14)


@pytest.mark.parametrize("n", [13.37, 16.5, 40.0])
def test_a_half_has_the_same_limits_however_it_was_rounded(n):
    """Counts of weighted rows are added up in other orders by other engines."""
    low, high = clopper_pearson(np.array([np.nextafter(0.5, 0), 0.5, np.nextafter(0.5, 1)]), np.full(3, n), Z)
    assert np.ptp(low) < 1e-12
    assert np.ptp(high) < 1e-12


def test_a_fractional_count_has_limits_between_those_of_its_neighbours():
    low, high = clopper_pearson(column(3.25 / 40, 3 / 40, 4 / 40), column(40, 40, 40), Z)
    assert low[0] == pytest.approx(0.75 * low[1] + 0.25 * low[2])
    assert high[0] == pytest.approx(0.75 * high[1] + 0.25 * high[2])
    top = clopper_pearson(column(36.75 / 40), column(40), Z)
    assert top[0][0] == pytest.approx(1 - high[0])
    assert top[1][0] == pytest.approx(1 - low[0])


@pytest.mark.parametrize("k", [0, 1, 24, 25, 50, 75, 76, 99, 100])
def test_wilson_solves_its_equation_and_is_moved_beyond_25_rows(k):
    n, p = 100.0, k / 100
    low, high = (float(one[0]) for one in wilson(column(p), column(n), Z))
    for end in {low, high} - {0.0, 1.0}:
        assert (p - end) ** 2 == pytest.approx(Z**2 * end * (1 - end) / n)
    assert low <= p <= high
    ends = [float(one[0]) for one in share_limits(column(p), column(n), Z)]
    if min(k, 100 - k) < 25:
        assert ends == pytest.approx([float(one[0]) for one in clopper_pearson(column(p), column(n), Z)])
    else:
        shift = (Z**2 - 1) * (1 - 2 * p) / 600
        assert ends == pytest.approx([low - shift - 0.0025, high - shift + 0.0025])


def test_limits_of_no_rows_are_no_numbers_and_of_others_stand_beside_them():
    low, high = share_limits(column(0.5, np.nan, 0.1), column(200, 0, 30), Z)
    assert np.isnan([low[1], high[1]]).all()
    assert low[2] == pytest.approx(stats.beta.ppf(NormalDist().cdf(-Z), 3, 28))


def test_students_quantile_and_what_is_unseen():
    for nu in (20, 60, 500):
        assert student(Z, column(nu + 1))[0] == pytest.approx(stats.t.ppf(0.975, nu), rel=2e-4)
    assert student(Z, column(1))[0] == pytest.approx(student(Z, column(2))[0])
    assert student(Z, column(2))[0] == pytest.approx(Z + (Z**3 + Z) / 4 + (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96)
    share = unseen(column(7, 300), Z)
    assert (1 - share) ** column(7, 300) == pytest.approx(column(0.025, 0.025))
    n = column(80)
    few = n * (Z / student(Z, n)) ** 2
    assert weighted_share_limits(column(0.4), n, Z)[0] == pytest.approx(share_limits(column(0.4), few, Z)[0])


def test_tails_are_heavy_from_the_bound_on():
    for n, bound in (
        (200.0, 0.25),
        (150.0, 0.25),
        (100.0, 0.25),
        (20_000.0, 0.25 * 0.01**0.14),
        (10.0, 0.25 * 0.1**0.07),
    ):
        assert heavy(column(bound * 0.999, bound * 1.001, -bound * 1.001), np.full(3, n)).tolist() == [
            False,
            True,
            True,
        ]
    assert heavy(column(0.1), column(0)).tolist() == [0.1 > 0.25 * 0.01**0.07]


@pytest.mark.parametrize("skewness", [-0.9, -0.2, 0.05, 0.3, 1.0])
def test_limits_are_moved_as_those_of_a_gamma_variable(skewness):
    near, far = (float(one[0]) for one in tilted(column(skewness), column(Z)))
    size, sign = abs(skewness), math.copysign(1, skewness)
    quantiles = [(1 - size**2 / 36 + t * size / 6) ** 3 for t in (-Z, Z)]
    # the estimate is the gamma variable, in units of its mean, whose coefficient of variation is half its skewness
    long, short = (2 / size * (1 / quantiles[0] - 1), 2 / size * (1 - 1 / quantiles[1]))
    assert (near, far) == pytest.approx((short, long) if sign > 0 else (long, short))


def test_an_end_is_widened_by_unseen_rows_as_fourth_powers():
    half, hidden, flat = column(2.0), column(1.0), column(0.0)
    assert widened(half, hidden, flat, column(150))[0] == pytest.approx((2.0**4 + 1) ** 0.25)
    assert widened(column(0.0), flat, flat, column(150))[0] == 0.0
    assert widened(column(0.0), hidden, flat, column(150))[0] == pytest.approx(1.0)
    assert widened(half, hidden, column(-0.4), column(150))[0] == pytest.approx(17**0.25)
    assert widened(half, hidden, column(0.25), column(150))[0] == pytest.approx(4.0)
    assert widened(half, hidden, column(0.7), column(150))[0] == pytest.approx(4.0)
    assert widened(half, hidden, column(0.2), column(150))[0] == pytest.approx(2 + 2 * 0.8**4)


def test_a_mean_has_a_half_on_each_side():
    n, error, skewness = column(60), column(0.3), column(0.1)
    low, high = mean_limits(column(2.0), error, skewness, n, (column(1.0), column(9.0)), Z)
    share, halves = unseen(n, Z), tilted(skewness, student(Z, n))
    assert 2 - low == pytest.approx(widened(error * halves[0], share * 1.0, -skewness, n))
    assert high - 2 == pytest.approx(widened(error * halves[1], share * 7.0, skewness, n))
    outside = mean_limits(column(2.0), error, skewness, n, (column(3.0), column(1.0)), Z)
    assert 2 - outside[0] == pytest.approx(error * halves[0])
    assert outside[1] - 2 == pytest.approx(error * halves[1])


def test_a_bounded_mean_is_within_the_limits_of_a_share():
    n = column(50)
    whole = (column(-1.0), column(3.0))
    share = [-1 + 4 * end for end in share_limits(column(0.5), n, Z)]
    plain = bounded_mean_limits(column(1.0), column(0.0), column(0.0), n, (-1.0, 3.0), whole, Z)
    assert [float(one[0]) for one in plain] == pytest.approx([float(one[0]) for one in share])
    wide = bounded_mean_limits(column(1.0), column(9.0), column(0.0), n, (-1.0, 3.0), whole, Z)
    assert [float(one[0]) for one in wide] == pytest.approx([float(one[0]) for one in share])
    tight = bounded_mean_limits(column(1.0), column(0.05), column(0.0), n, (-1.0, 3.0), whole, Z)
    own = mean_limits(column(1.0), column(0.05), column(0.0), n, whole, Z)
    assert [float(one[0]) for one in tight] == pytest.approx([float(one[0]) for one in own])
    partly = bounded_mean_limits(column(1.0), column(0.05), column(0.9), n, (-1.0, 3.0), (column(-1.0), column(2.0)), Z)
    assert [float(one[0]) for one in partly] == pytest.approx([float(one[0]) for one in share])
    whole_range = bounded_mean_limits(column(1.0), column(0.05), column(0.9), n, (-1.0, 3.0), whole, Z)
    assert whole_range[0][0] > share[0][0]


@pytest.mark.long
@pytest.mark.parametrize(("groups", "apart", "evenness"), [(3, 1.0, 1.0), (5, 2.0, 1.0), (6, 3.0, 0.5), (20, 2.5, 0.5)])
def test_the_factor_of_the_largest_difference_is_that_of_the_integral(groups, apart, evenness):
    """P(range <= θ - c se) by adaptive quadrature, and c by root finding; `apart` is in tenths, as it is rounded."""
    from scipy.integrate import quad

    tail, normal = 0.025, stats.norm

    def within(c):
        width, shift = math.sqrt(2) * (apart - c), apart / math.sqrt(2)
        if width <= 0:
            return 0.0

        def inside(x, at, scale=1.0):
            return normal.cdf((x + width - at) / scale) - normal.cdf((x - at) / scale)

        def lowest(x):
            left, right, middle = inside(x, -shift), inside(x, shift), inside(x, 0, evenness)
            some = normal.pdf(x + shift) * right * middle ** (groups - 2)
            some += normal.pdf(x - shift) * left * middle ** (groups - 2)
            return some + (groups - 2) * normal.pdf(x / evenness) / evenness * left * right * middle ** (groups - 3)

        return quad(lowest, -shift - 9, shift + 9, limit=200)[0]

    factor = selected_quantile(groups, apart, evenness, tail)
    expected = optimize.brentq(lambda c: within(c) - tail, 0, Z) if within(0.0) > tail else 0.0
    assert factor == pytest.approx(expected, abs=2e-3)
    assert factor <= Z


def test_with_two_groups_or_far_apart_the_factor_is_the_normal_quantile():
    assert selected_quantile(2, 1.0, 1.0, 0.025) == pytest.approx(Z)
    assert selected_quantile(20, 4.1 + 2 * Z, 1.0, 0.025) == pytest.approx(Z)
    assert selected_quantile(20, 3.0, 1.0, 0.025) < Z
    assert selected_quantile(5, 1.01, 0.99, 0.025) == selected_quantile(5, 1.1, 0.95, 0.025)
    assert selected_quantile(5, 1.0, 0.0, 0.025) == selected_quantile(5, 1.0, 0.05, 0.025)


# pairs of groups whose numbers are correlated, as those of clusters are

VALUES, ERRORS = np.array([0.5, 0.3, 0.36]), np.array([0.02, 0.03, 0.01])
A, B = np.array([0, 0, 1]), np.array([1, 2, 2])


def _even(z):
    return VALUES - z * ERRORS, VALUES + z * ERRORS


@pytest.mark.parametrize("rho", [0.0, 0.4, -0.7, 1.0])
def test_even_limits_of_correlated_numbers_are_those_of_the_difference(rho):
    together = np.where(np.eye(3) > 0, 1.0, rho)
    low, high = difference_limits(VALUES, _even, Z, A, B, together)
    error = np.sqrt(ERRORS[A] ** 2 + ERRORS[B] ** 2 - 2 * rho * ERRORS[A] * ERRORS[B])
    assert low == pytest.approx(VALUES[A] - VALUES[B] - Z * error)
    assert high == pytest.approx(VALUES[A] - VALUES[B] + Z * error)
    if not rho:
        assert difference_limits(VALUES, _even, Z, A, B) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("rho", [0.0, 0.4, -0.7])
def test_limits_of_a_ratio_are_where_the_difference_may_be_nothing(rho):
    # p - r q has an end at 0 (Donner & Zou 2012)
    together = np.where(np.eye(3) > 0, 1.0, rho)
    found = ratio_limits(VALUES, _even, Z, A, B, None if rho == 0 else together)
    for ratio, side in zip(found, (1, -1), strict=True):
        p, q, e, f = VALUES[A], VALUES[B], Z * ERRORS[A], Z * ERRORS[B]
        reach = np.sqrt(e**2 + (ratio * f) ** 2 - 2 * rho * ratio * e * f)
        assert side * (p - ratio * q) == pytest.approx(reach, rel=1e-9)
    assert (found[0] < VALUES[A] / VALUES[B]).all()
    assert (found[1] > VALUES[A] / VALUES[B]).all()


def test_distances_whose_squares_vanish_and_ends_that_are_not_known():
    tiny = np.array([1e-200, 0.0])

    def near(z):
        del z
        return tiny - 1e-180, tiny + 1e-180

    pair = np.array([0]), np.array([1])
    low, high = difference_limits(tiny, near, Z, *pair)
    assert (low[0], high[0]) == (pytest.approx(-1e-180, rel=1e-9), pytest.approx(1e-180, rel=1e-9))

    def open_ended(z):
        del z
        return np.array([-math.inf, 0.1]), np.array([math.inf, 0.5])

    known = np.array([0.4, 0.3])
    together = np.array([[1.0, 0.5], [0.5, 1.0]])
    low, high = difference_limits(known, open_ended, Z, *pair, together)
    assert (low[0], high[0]) == (-math.inf, math.inf)


def test_fewer_than_two_groups_and_numbers_without_a_ratio_have_no_spread():
    def none(z):
        del z
        return np.zeros(1), np.ones(1)

    for found in (spread_difference(np.array([0.4]), none, 0.95), spread_ratio(np.array([0.4]), none, 0.95)):
        assert np.isnan([found.value, found.low, found.high]).all()
    for values in ((0.0, 0.0), (-0.1, 0.4)):
        assert math.isnan(spread_ratio(np.array(values), _even, 0.95).value)
    assert math.copysign(1, Spread(-0.0, -0.0, -0.0).value) == 1


def test_the_smallest_number_is_the_mirror_image_of_the_largest():
    most, least = (extreme(VALUES, _even, 0.95, largest=largest) for largest in (True, False))
    assert (most.value, least.value) == (0.5, 0.3)
    assert most.low < 0.5 < most.high
    assert least.low < 0.3 < least.high

    def mirrored(z):
        low, high = _even(z)
        return -high, -low

    back = extreme(-VALUES, mirrored, 0.95, largest=True)
    assert (least.low, least.high) == (pytest.approx(-back.high), pytest.approx(-back.low))
