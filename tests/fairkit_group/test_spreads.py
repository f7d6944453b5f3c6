"""Largest differences, smallest ratios and extremes of group values against slow twins, scipy and closed forms."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from fairkit.intervals import (
    Spread,
    difference_limits,
    extreme,
    guarded,
    kolmogorov_quantile,
    largest,
    largest_studentised,
    outermost,
    own_quantile,
    pairwise,
    pairwise_quantile,
    possible_difference,
    possible_ratio,
    ratio_limits,
    reach,
    spread_difference,
    spread_quantiles,
    spread_ratio,
    studentised_range,
    two_sided,
)
from fairkit.limits import selected_quantile
from fairkit.results.robustness import _bound

NORMAL = NormalDist()
VALUES = np.array([0.32, 0.1, 0.27])
BELOW, ABOVE = np.array([0.03, 0.02, 0.04]), np.array([0.05, 0.03, 0.02])
TOGETHER = np.array([[1.0, 0.3, -0.2], [0.3, 1.0, 0.5], [-0.2, 0.5, 1.0]])


def ends(z: float):
    """Limits of unlike sides, so many times a standard error away."""
    return VALUES - z * BELOW, VALUES + z * ABOVE


def within(a: int, b: int, z: float, together=None) -> tuple[float, float]:
    """The limits of a difference, as Newcombe and Zou write them."""
    rho = 0.0 if together is None else together[a, b]
    down = (BELOW[a] ** 2 + ABOVE[b] ** 2 - 2 * rho * BELOW[a] * ABOVE[b]) ** 0.5
    up = (ABOVE[a] ** 2 + BELOW[b] ** 2 - 2 * rho * ABOVE[a] * BELOW[b]) ** 0.5
    return VALUES[a] - VALUES[b] - z * down, VALUES[a] - VALUES[b] + z * up


def test_quantiles_are_those_of_scipy():
    assert two_sided(0.95) == pytest.approx(stats.norm.ppf(0.975))
    assert guarded(0.95) == pytest.approx(0.96)
    assert own_quantile(0.95, None) == pytest.approx(stats.norm.ppf(0.975))
    assert own_quantile(0.95, TOGETHER) == pytest.approx(stats.norm.ppf(0.98))
    for groups in (2, 3, 6, 20):
        exact = stats.studentized_range.ppf(0.95, groups, np.inf)
        assert studentised_range(groups, 0.95) == pytest.approx(exact, rel=1e-6)
        assert pairwise_quantile(groups, 0.95) == pytest.approx(exact / math.sqrt(2), rel=1e-6)
    assert pairwise_quantile(1, 0.95) == two_sided(0.95)
    assert pairwise_quantile(2, 0.9) == two_sided(0.9)
    assert spread_quantiles(2, 0.95) == (two_sided(0.96), two_sided(0.96))
    assert spread_quantiles(3, 0.95) == (pairwise_quantile(3, 0.96), two_sided(0.95))
    for confidence in (0.5, 0.95, 0.999):
        assert kolmogorov_quantile(confidence) == pytest.approx(stats.kstwobign.ppf(confidence), rel=1e-9)


def test_a_spread_has_no_negative_zero():
    assert math.copysign(1, Spread(-0.0, -0.0, -0.0).low) == 1.0


@pytest.mark.parametrize("together", [None, TOGETHER])
def test_limits_of_a_difference(together):
    a, b = np.array([0, 1, 2]), np.array([1, 2, 0])
    low, high = difference_limits(VALUES, ends, 1.7, a, b, together)
    for place in range(3):
        expected = within(a[place], b[place], 1.7, together)
        assert (low[place], high[place]) == pytest.approx(expected)
    size, least, most = pairwise(VALUES, ends, 1.7, together)
    for place, (one, two) in enumerate([(0, 1), (0, 2), (1, 2)]):
        below, above = within(one, two, 1.7, together)
        assert size[place] == pytest.approx(abs(VALUES[one] - VALUES[two]))
        assert least[place] == pytest.approx(max(below, -above, 0.0))
        assert most[place] == pytest.approx(max(above, -below))


def test_a_distance_without_end_or_too_small_to_square_stands_alone():
    wild = lambda z: (np.array([-np.inf, 0.0]), np.array([np.inf, 0.2]))  # noqa: E731
    low, high = difference_limits(np.array([0.5, 0.1]), wild, 1.0, np.array([0]), np.array([1]), np.eye(2) + 0.5)
    assert (low[0], high[0]) == (-np.inf, np.inf)
    tiny = lambda z: (np.array([-1e-170, -3e-170]), np.array([2e-170, 4e-170]))  # noqa: E731
    low, high = difference_limits(np.zeros(2), tiny, 1.0, np.array([0]), np.array([1]))
    assert (low[0], high[0]) == (-4e-170, 3e-170)
    # correlated without a remainder: 2 x .1 x .1 is all of the two squares
    same = lambda z: (np.array([0.4, 0.1]), np.array([0.6, 0.3]))  # noqa: E731
    low, high = difference_limits(np.array([0.5, 0.2]), same, 1.0, np.array([0]), np.array([1]), np.ones((2, 2)))
    assert (low[0], high[0]) == pytest.approx((0.3, 0.3))


@pytest.mark.parametrize("together", [None, TOGETHER])
def test_a_largest_difference_of_three(together):
    seen = spread_difference(VALUES, ends, 0.95, together)
    inner = pairwise_quantile(3, 0.96) if together is None else two_sided(0.96 ** (1 / 3))
    near = [within(a, b, inner, together) for a, b in itertools.combinations(range(3), 2)]
    far = [within(a, b, two_sided(0.95), together) for a, b in itertools.combinations(range(3), 2)]
    assert seen.value == pytest.approx(0.22)
    assert seen.low == pytest.approx(max(max(low, -high, 0) for low, high in near))
    assert seen.high == pytest.approx(max(max(high, -low) for low, high in far))


@pytest.mark.parametrize("together", [None, np.eye(2)])
def test_of_two_groups_both_ends_have_one_factor(together):
    limits = lambda z: (ends(z)[0][:2], ends(z)[1][:2])  # noqa: E731
    seen = spread_difference(VALUES[:2], limits, 0.95, together)
    assert (seen.low, seen.high) == pytest.approx(within(0, 1, two_sided(0.96)))
    nothing = spread_difference(VALUES[:1], lambda z: (VALUES[:1], VALUES[:1]), 0.95)
    assert all(math.isnan(part) for part in (nothing.value, nothing.low, nothing.high))


@pytest.mark.parametrize(("errors", "smaller"), [((1.0,) * 6, True), ((1.0,) * 5 + (0.71,), True),
                                                  ((1.0,) * 5 + (0.69,), False), ((1.0,) * 3, False),
                                                  ((0.0,) * 5, False)])  # fmt: skip
def test_the_upper_end_of_even_groups_is_at_a_smaller_factor(errors, smaller):
    values, error = np.zeros(len(errors)), 0.01 * np.array(errors)
    limits = lambda z: (values - z * error, values + z * error)  # noqa: E731
    seen, z = spread_difference(values, limits, 0.95).high, two_sided(0.95)
    plain = z * max(math.hypot(a, b) for a, b in itertools.combinations(error, 2))
    assert (seen < plain * (1 - 1e-9)) == smaller
    if smaller:  # a bound is right where its factor is at least the one that belongs to it
        far, pair = plain, math.sqrt(2) * error.min()
        for _ in range(6):
            factor = selected_quantile(len(error), far / pair, error.min() / error.max(), NORMAL.cdf(-z))
            if factor >= z:
                break
            far = plain * factor / z
        assert seen == pytest.approx(far)
    else:
        assert seen == pytest.approx(plain)


@pytest.mark.parametrize("together", [None, TOGETHER])
def test_limits_of_a_ratio_solve_their_equation(together):
    a, b = np.array([0, 1, 2]), np.array([1, 2, 0])
    low, high = ratio_limits(VALUES, ends, 1.2, a, b, together)
    for place, (one, two) in enumerate(zip(a, b, strict=True)):
        rho = 0.0 if together is None else together[one, two]
        p, q = VALUES[one], VALUES[two]
        # at the lower limit ρ the lower limit of p - ρ q is 0: (p - ρ q)² = d² + (ρ u)² - 2 r d ρ u
        for ratio, d, u in ((low[place], 1.2 * BELOW[one], 1.2 * ABOVE[two]),
                            (high[place], 1.2 * ABOVE[one], 1.2 * BELOW[two])):  # fmt: skip
            assert (p - ratio * q) ** 2 == pytest.approx(d**2 + (ratio * u) ** 2 - 2 * rho * d * ratio * u)
        assert low[place] < p / q < high[place]


@pytest.mark.parametrize("together", [None, TOGETHER])
def test_a_smallest_ratio_of_three(together):
    seen = spread_ratio(VALUES, ends, 0.95, together)
    inner = pairwise_quantile(3, 0.96) if together is None else two_sided(0.96 ** (1 / 3))
    a, b = map(np.array, zip(*itertools.permutations(range(3), 2), strict=True))
    assert seen.value == pytest.approx(0.1 / 0.32)
    assert seen.low == pytest.approx(ratio_limits(VALUES, ends, two_sided(0.95), a, b, together)[0].min())
    assert seen.high == pytest.approx(ratio_limits(VALUES, ends, inner, a, b, together)[1].min())


def test_ratios_at_the_ends():
    def limits(low, high):
        return lambda z: (np.array(low), np.array(high))

    zero = spread_ratio(np.array([0.0, 0.5]), limits([0.0, 0.4], [0.02, 0.6]), 0.95)
    assert (zero.value, zero.low) == (0.0, 0.0)
    assert 0 < zero.high < 0.06
    equal = spread_ratio(np.array([0.5, 0.5]), limits([0.4, 0.4], [0.6, 0.6]), 0.95)
    assert equal.high == equal.value == 1.0
    for values in ([0.5], [0.0, 0.0], [-0.1, 0.5]):
        wide = limits([v - 0.1 for v in values], [v + 0.1 for v in values])
        assert math.isnan(spread_ratio(np.array(values), wide, 0.95).value)
    assert spread_ratio(np.array([1.0, 1.5]), limits([0.9, 1.4], [1.1, 1.6]), 0.95).value == pytest.approx(2 / 3)
    one, two = np.array([0]), np.array([1])
    # the denominator may be 0: no upper limit; its upper limit is more than twice it: the lower over the upper one
    low, high = ratio_limits(np.array([0.4, 0.1]), limits([0.3, 0.0], [0.5, 0.3]), 1.0, one, two)
    assert high[0] == np.inf
    assert low[0] == pytest.approx(0.3 / 0.3)
    low, high = ratio_limits(np.array([0.4, 0.1]), limits([-np.inf, -np.inf], [np.inf, np.inf]), 1.0, one, two)
    assert (low[0], high[0]) == (0.0, np.inf)


def test_the_largest_and_the_smallest_value():
    joint, own = two_sided(0.95 ** (1 / 3)), two_sided(0.95)
    top = extreme(VALUES, ends, 0.95, largest=True)
    assert top.value == 0.32
    assert top.low == pytest.approx((VALUES - joint * BELOW).max())
    assert top.high == pytest.approx((VALUES + own * ABOVE).max())
    least = extreme(VALUES, ends, 0.95, largest=False)
    assert least.value == 0.1
    assert least.low == pytest.approx((VALUES - own * BELOW).min())
    assert least.high == pytest.approx((VALUES + joint * ABOVE).min())


def test_the_upper_end_is_six_steps_down():
    rng, z = np.random.default_rng(0), two_sided(0.95)
    for _ in range(40):
        groups = int(rng.integers(4, 15))
        error, values = rng.uniform(0.72, 1, groups), rng.normal(0, rng.uniform(0, 2), groups)
        limits = lambda z, v=values, e=error: (v - z * e, v + z * e)  # noqa: E731
        far = float(pairwise(values, limits, z)[2].max())
        for _ in range(6):
            pair, evenness = math.sqrt(2) * error.min(), error.min() / error.max()
            factor = selected_quantile(groups, far / pair, evenness, NORMAL.cdf(-z))
            if factor >= z:
                break
            far = float(pairwise(values, limits, factor)[2].max())
        assert spread_difference(values, limits, 0.95).high == pytest.approx(far, rel=1e-10)


def many(groups: int, seed: int, *, open_ended: bool = False):
    """Values of groups of very different precision, some of them equal, and their limits."""
    rng = np.random.default_rng(seed)
    values = np.round(rng.beta(2, 3, groups), 3)
    below, above = rng.exponential(0.02, (2, groups))
    below[:9], above[:9], values[:9] = 0.01, 0.02, 0.9
    if open_ended:
        above[17], below[40] = np.inf, np.inf
    return values, lambda z: (values - z * below, values + z * above)


@pytest.mark.parametrize("open_ended", [False, True])
@pytest.mark.parametrize("correlated", [False, True])
def test_of_many_groups_the_outermost_pair_is_found(correlated, open_ended):
    values, limits = many(300, 5, open_ended=open_ended)
    axes = np.random.default_rng(1).normal(size=(300, 4))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    together = axes @ axes.T if correlated else None
    joint = two_sided(guarded(0.95) ** (2 / (300 * 299))) if correlated else spread_quantiles(300, 0.95)[0]
    point, low, _ = pairwise(values, limits, joint, together)
    seen = spread_difference(values, limits, 0.95, together)
    # what is not bounded from above hides every difference
    assert (seen.value, seen.low) == (point.max(), 0.0 if open_ended else low.max())
    if correlated or open_ended:
        assert seen.high == pairwise(values, limits, two_sided(0.95), together)[2].max()
    a, b = np.nonzero(~np.eye(300, dtype=bool))
    seen = spread_ratio(values, limits, 0.95, together)
    assert seen.low == ratio_limits(values, limits, two_sided(0.95), a, b, together)[0].min()
    assert seen.high == min(ratio_limits(values, limits, joint, a, b, together)[1].min(), 1.0)


def test_of_many_groups_few_pairs_are_looked_at():
    values, limits = many(2_000, 3)
    asked = []

    def counted(pairs):
        asked.append(len(pairs[0]))
        return pairwise(values, limits, 2.0, None, pairs)[2]

    assert largest(reach(values, limits, 2.0, 2), counted) == pairwise(values, limits, 2.0)[2].max()
    assert sum(asked) < 0.05 * 2_000 * 1_999 / 2
    assert math.isnan(largest(np.array([1.0, math.nan, 3.0]), lambda pairs: np.full(len(pairs[0]), math.nan)))


@pytest.mark.parametrize("groups", [2, 5, 33, 200])
def test_few_pairs_say_what_all_pairs_do(groups):
    rng = np.random.default_rng(groups)
    a, b = np.nonzero(~np.eye(groups, dtype=bool))
    for _ in range(20):
        low = np.round(rng.random(groups), 1)
        high = np.round(low + rng.random(groups), 1)
        few = outermost(low, high)
        assert (low[few[0]] - high[few[1]]).max() == (low[a] - high[b]).max()
        assert (few[0] != few[1]).all()
        moved, squares = rng.standard_normal((9, groups)), rng.exponential(1, (9, groups)) * (rng.random(groups) < 0.9)
        moved[:, squares[0] == 0] = 0
        with np.errstate(all="ignore"):
            every = np.nan_to_num(np.abs(moved[:, a] - moved[:, b]) / np.sqrt(squares[:, a] + squares[:, b]), nan=0.0)
        assert (largest_studentised(moved, squares) == every.max(axis=1)).all()


@pytest.mark.parametrize("most", [0.0, 0.4, 1.0])
def test_numbers_between_ends_have_no_disparity_beyond_what_is_possible(most):
    rng = np.random.default_rng(5)
    for _ in range(40):
        low = np.round(most * rng.random(3), 1)
        high = np.maximum(low, np.round(most * rng.random(3), 1))
        corners = np.stack(np.meshgrid(*[np.linspace(a, b, 5) for a, b in zip(low, high, strict=True)]), -1)
        corners = corners.reshape(-1, 3)
        differences = np.ptp(corners, axis=1)
        corners = corners[corners.max(axis=1) > 0]
        ratios = corners.min(axis=1) / corners.max(axis=1)
        least, largest_one = possible_difference(low, high)
        assert differences.max() == pytest.approx(largest_one)
        assert least == pytest.approx(max(0.0, low.max() - high.min()))
        assert least <= differences.min() + 1e-12
        ends = possible_ratio(low, high)
        assert not len(ratios) or (ends[0] <= ratios.min() + 1e-12 and ratios.max() <= ends[1] + 1e-12)
        assert len(ratios) or ends == (0.0, 1.0)


@pytest.mark.parametrize("groups", [2, 7, 90])
@pytest.mark.parametrize("apart", [True, False])
def test_rows_without_a_group_move_the_same_pair_as_among_all(groups, apart):
    rng = np.random.default_rng([groups, apart])
    over = rng.integers(5, 60, groups).astype(float)
    counts = np.floor(over * rng.random(groups)) + 0.5
    k, counting, others = 12, 9.0, 8.0
    x = np.arange(k + 1.0)
    up, down = np.minimum(x, counting), np.minimum(k - x, others)
    if not apart:
        up, down = np.minimum(k - x, counting), np.minimum(x, others)
    raised, lowered = (counts[:, None] + up) / (over[:, None] + up), counts[:, None] / (over[:, None] + down)
    pairs = [(a, b) for a in range(groups) for b in range(groups) if a != b]
    if apart:
        difference = max((raised[a] - lowered[b]).max() for a, b in pairs)
        ratio = min((lowered[b] / raised[a]).min() for a, b in pairs)
    else:
        difference = max(0.0, *((lowered[a] - raised[b]).min() for a, b in pairs))
        ratio = min(1.0, *((raised[b] / lowered[a]).max() for a, b in pairs))
    found = [_bound(counts, over, counting, others, k, apart=apart, ratio=ratio) for ratio in (False, True)]
    assert found == [difference, ratio]
