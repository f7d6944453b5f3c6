"""Confidence limits of one number: shares and means, where counts are small or tails are heavy too."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]


# Limits of a share: Wilson's where counts allow it, exact ones where they do not, and both under weights.


FEW = 25
"""Below so many counted or not counted rows the limits are exact."""

_CONTINUITY = 0.25
_STEPS = 12
_NORMAL = NormalDist()


def wilson(rate: Array, n: Array, z: float) -> tuple[Array, Array]:
    """Return Wilson's score interval for a rate (Wilson 1927).

    `rate`: in [0, 1], any shape; `n`: the number of rows that the rate is over, or the effective number under weights;
    same shape; `z`: the normal quantile; returns lower and upper limits in [0, 1]; never of zero width for finite n.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 / (1 + z**2 / n)
        # the roots of (rate - p)² = z² p (1 - p) / n
        centre = (rate + z**2 / (2 * n)) * scale
        half = z * np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2)) * scale
    low = np.where(rate <= 0, 0.0, np.clip(centre - half, 0, 1))
    return low, np.where(rate >= 1, 1.0, np.clip(centre + half, 0, 1))


def clopper_pearson(rate: Array, n: Array, z: float) -> tuple[Array, Array]:
    """Return exact limits for a rate (Clopper & Pearson 1934): each is missed with at most the tail of z.

    `rate`: in [0, 1], any shape. A fractional count, rate * n, has limits between those of its neighbours (Korn &
    Graubard 1998 use the same limits with an effective number of rows); `n`: the number of rows, whole or effective;
    same shape; `z`: the normal quantile of the two-sided interval.
    """
    rate, n = np.broadcast_arrays(np.asarray(rate, dtype=np.float64), np.asarray(n, dtype=np.float64))
    # the rarer outcome is solved for, and mirrored at the end; 0.5 is one side whatever its rounding
    mirrored = rate > 0.5 + 1e-9
    yes = np.where(mirrored, 1 - rate, rate) * n
    whole = np.round(yes)
    yes = np.where(np.abs(yes - whole) < 1e-9 * np.maximum(n, 1), whole, yes)
    low, high = _of_whole(np.floor(yes), n, z)
    part = yes - np.floor(yes)
    if (part > 0).any():
        next_low, next_high = _of_whole(np.minimum(np.floor(yes) + 1, n), n, z)
        low, high = low + part * (next_low - low), high + part * (next_high - high)
    return np.where(mirrored, 1 - high, low), np.where(mirrored, 1 - low, high)


def share_limits(rate: Array, n: Array, z: float) -> tuple[Array, Array]:
    """Return limits for a rate, each of which is missed in at most 3 % of samples at z = 1.96.

    Where fewer than `FEW` rows are counted, or not counted, they are exact: Wilson's interval covers a rate with n p =
    0.18 in 84 % of samples. Beyond, they are Wilson's, moved by the skewness of the count (Cai 2005) and widened by a
    quarter of a row, since counts are discrete.

    `rate`, `n`, `z`: as for `wilson`.
    """
    low, high = wilson(rate, n, z)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Cai's shift (z² - 1) (1 - 2 p) / 6n, and a quarter of a row
        skew, part = (z**2 - 1) * (1 - 2 * rate) / (6 * n), _CONTINUITY / n
    low, high = np.clip(low - skew - part, 0, rate), np.clip(high - skew + part, rate, 1)
    few = np.minimum(rate, 1 - rate) * n < FEW - 1e-9
    few &= n > 0
    if few.any():
        low[few], high[few] = clopper_pearson(rate[few], n[few], z)
    return low, high


def _of_whole(yes: Array, n: Array, z: float) -> tuple[Array, Array]:
    """Return the limits for whole counts of at most about half the rows."""
    tail = _NORMAL.cdf(-abs(z))
    ends = np.full(np.shape(yes), 0.0), np.full(np.shape(yes), 1.0)
    for end, counts, target in ((0, yes - 1, 1 - tail), (1, yes, tail)):
        solvable = (counts >= 0) & (counts < n)
        if solvable.any():
            ends[end][solvable] = _solve(counts[solvable], n[solvable], target)
    return ends


def _solve(k: Array, n: Array, target: float) -> Array:
    """Solve sum_{j <= k} C(n, j) p^j (1-p)^(n-j) = target for p by Newton's method on its logarithm.

    The logarithm is concave and decreasing in p, so that the steps end monotonously. n may be fractional:
    the sum is then the incomplete beta function I_{1-p}(n - k, k + 1).
    """
    top = int(k.max())
    choose = _log_choose(n, k, top)
    z = -_NORMAL.inv_cdf(target)
    start = wilson((k + 0.5) / np.maximum(n, k + 1), np.maximum(n, k + 1), abs(z))[int(z > 0)]
    p = np.clip(start, 1e-12, 1 - 1e-9)
    for _ in range(_STEPS):
        # neighbouring terms of the binomial have the ratio j / ((n - j + 1) odds)
        odds = p / (1 - p)
        term, total = np.ones_like(p), np.ones_like(p)  # relative to the last term: no overflow for any n
        for j in range(top):
            here = np.maximum(k - j, 0)
            term = term * here / ((n - here + 1) * odds)
            total = total + term
        excess = choose + k * np.log(p) + (n - k) * np.log1p(-p) + np.log(total) - math.log(target)
        # Newton: d log P(X <= k) / dp = -(n - k) / ((1 - p) total)
        fresh = p + excess * (1 - p) * total / (n - k)
        fresh = np.where(fresh >= 1, (p + 1) / 2, np.where(fresh <= 0, p / 2, fresh))
        moved = np.abs(fresh - p)
        p = fresh
        if (moved <= 1e-12 * p).all():
            break
    return p


def _log_choose(n: Array, k: Array, top: int) -> Array:
    """Return log C(n, k) for whole k up to `top` and real n."""
    j = np.arange(top)
    factors = np.log(np.maximum(n[:, None] - j, 1e-300)) - np.log(j + 1.0)
    return np.asarray(np.where(j < k[:, None], factors, 0.0).sum(axis=1))


# Limits of a mean: Student's, moved by skewness, and widened by what unseen rows could add.


_HEAVY = 0.25
_MANY, _MANY_POWER = 200, 0.14
_FEW, _FEW_POWER = 100, 0.07


def student(z: float, rows: Array) -> Array:
    """Widen a normal quantile to Student's t with rows - 1 degrees of freedom (Cornish & Fisher 1960)."""
    nu = np.maximum(rows - 1, 1)
    # t = z + (z³ + z) / 4ν + (5 z⁵ + 16 z³ + 3 z) / 96ν² + O(ν⁻³)
    first = (z**3 + z) / (4 * nu)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * nu**2)
    return np.asarray(z + first + second)


def weighted_share_limits(rate: Array, n: Array, z: float) -> tuple[Array, Array]:
    """Return limits for a share whose variance was estimated from weights (Korn & Graubard 1998).

    The effective number of rows is made smaller by the ratio of the normal quantile to Student's, squared.

    `rate`: in [0, 1], shape [G]; `n`: the effective number of rows, which also gives the degrees of freedom, shape [G];
    `z`: the normal quantile.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return share_limits(rate, n * (z / student(z, n)) ** 2, z)


def unseen(n: Array, z: float) -> Array:
    """Return the largest share of the population that n rows miss altogether with the tail probability of z.

    (1 - share)^n = tail: 3.7 / n for z = 1.96 (the "rule of three" at a two-sided level).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(-np.expm1(np.log(_NORMAL.cdf(-abs(z))) / n))


def heavy(skewness: Array, n: Array) -> NDArray[np.bool_]:
    """Return where the tails are too heavy for a mean's limits to be trusted.

    `skewness`: of the mean: the rows' skewness over √n, shape [G]. It is near 1 where one row makes up the whole
    variance; `n`: the number of rows, shape [G]; returns true above 0.25; above 0.25 (200 / n)^0.14 with more than 200
    rows, since light tails fall as 1 / √n and heavy ones do not; above 0.25 (n / 100)^0.07 with fewer than 100, since
    few rows seldom show their tail. Calibrated by simulation on twelve distributions (benchmarks/coverage_study.py).
    """
    return np.asarray(np.abs(skewness) > _bound(n), dtype=np.bool_)


def _bound(n: Array) -> Array:
    rows = np.maximum(n, 1)
    return np.asarray(_HEAVY * np.minimum(1, np.minimum((_MANY / rows) ** _MANY_POWER, (rows / _FEW) ** _FEW_POWER)))


def tilted(skewness: Array, t: Array) -> tuple[Array, Array]:
    """Return how many standard errors the lower and the upper limit lie from the estimate.

    Those of a gamma variable of this skewness (Wilson & Hilferty 1931): the side of the longer tail is longer.

    `skewness`: of the estimate, shape [G]; `t`: the quantile that both are without skewness, shape [G].
    """
    tilt = np.clip(np.abs(skewness), 1e-9, 1.0)
    # quantiles of a gamma are (1 - γ²/36 ± t γ/6)³; the limits divide the estimate by them
    far = 2 / tilt * (np.maximum(1 - tilt**2 / 36 - t * tilt / 6, 0.05) ** -3 - 1)
    near = 2 / tilt * (1 - (1 - tilt**2 / 36 + t * tilt / 6) ** -3)
    return np.where(skewness > 0, near, far), np.where(skewness > 0, far, near)


def mean_limits(
    mean: Array, error: Array, skewness: Array, n: Array, seen: tuple[Array, Array], z: float
) -> tuple[Array, Array]:
    """Return limits for a mean, shapes [G].

    Student's limits are moved as those of a gamma variable of the same skewness (Wilson & Hilferty 1931), and each end
    is `widened` by what a share of unseen rows could add: the share times the distance to the end of the range that was
    seen.

    `mean`, `error`: the mean and its standard error; `skewness`: of the mean: Σ r³ / (Σ r²)^1.5 over the rows' weighted
    residuals r; `n`: the number of rows, or the effective number under weights; `seen`: the smallest and the largest
    value that rows may have; `z`: the normal quantile.
    """
    share = unseen(n, z)
    halves = tilted(skewness, student(z, n))
    ends = []
    for side, end in ((-1, seen[0]), (1, seen[1])):
        hidden = share * np.maximum(side * (end - mean), 0)
        ends.append(mean + side * widened(error * halves[int(side > 0)], hidden, side * skewness, n))
    return ends[0], ends[1]


def widened(half: Array, hidden: Array, skewness: Array, n: Array) -> Array:
    """Add to one half of an interval what unseen rows could add, shape [G].

    The two are added as fourth powers, so that the smaller one hardly counts. Toward a long tail the second is added in
    full besides, up to twice where tails are about as heavy as may be.

    `half`, `hidden`: half the width without unseen rows, and what they could add; `skewness`: of the estimate, positive
    where the long tail is on this side; `n`: the number of rows.
    """
    more = np.where(skewness > 0, 2 * np.minimum(1, (np.abs(skewness) / _bound(n)) ** 4), 0.0)
    large, small = np.maximum(half, hidden), np.minimum(half, hidden)
    with np.errstate(all="ignore"):  # powers of the ratio: those of the halves may vanish or overflow
        both = np.where(large > 0, large * (1 + (small / large) ** 4) ** 0.25, 0.0)
    return np.asarray(np.maximum(both, half + more * hidden))


def bounded_mean_limits(
    mean: Array,
    error: Array,
    skewness: Array,
    n: Array,
    ends: tuple[float, float],
    reach: tuple[Array, Array],
    z: float,
) -> tuple[Array, Array]:
    """Return limits for a mean of values in a known range, shapes [G].

    Those of `mean_limits`, but never wider than the limits of a share: of all variables in [0, 1] with one mean the sum
    of 0s and 1s has the heaviest tails (Hoeffding 1956). Where no two rows differ, or tails are heavy and `reach` is
    less than the range, the limits of the share stand alone.

    `mean`, `error`, `skewness`, `n`, `z`: as for `mean_limits`; `ends`: the range of the values, finite; `reach`: how
    far unseen rows may lie, within the range: the `seen` of `mean_limits`.
    """
    low, high = mean_limits(mean, error, skewness, n, reach, z)
    length = ends[1] - ends[0]
    share = np.clip((mean - ends[0]) / length, 0, 1)
    least, most = (ends[0] + length * end for end in share_limits(share, n, z))
    partly = (reach[0] > ends[0]) | (reach[1] < ends[1])
    plain = (heavy(skewness, n) & partly) | ~(error > 0)
    return np.where(plain, least, np.maximum(low, least)), np.where(plain, most, np.minimum(high, most))


# The factor of a pair's limit when the largest of many differences is bounded: noise of other groups counts too.


_SELECTION_STEPS = 16
_POINTS = np.linspace(-9, 9, 3_601)
_CDF = np.array([_NORMAL.cdf(x) for x in _POINTS.tolist()])


def selected_quantile(groups: int, apart: float, evenness: float, tail: float) -> float:
    """Return the factor c of standard errors that bounds the largest difference between groups from above.

    A bound θ is refuted when every pair's |difference| is at most θ - c standard errors. If one pair differs by θ,
    that has the probability P(range of the estimates ≤ θ - c se). It is largest where the other groups lie in the
    middle: their noise alone then often makes the range wider. With two groups c is the normal quantile; with
    twenty equal ones, whose range is 3.7 standard deviations without any difference, it is smaller while θ is
    (Andrews & Soares 2010 select moments for the same end). Here c is the smallest factor for which the probability
    is at most `tail`.
    """
    z = _NORMAL.inv_cdf(1 - tail)
    if groups <= 2 or apart > 4 + 2 * z:
        return z
    return _solved(groups, math.ceil(apart * 10 - 1e-9), math.floor(evenness * 20 + 1e-9), tail)


@functools.lru_cache(maxsize=4_096)
def _solved(groups: int, tenths: int, twentieths: int, tail: float) -> float:
    apart, rest = tenths / 10, max(twentieths, 1) / 20

    def within(factor: float) -> float:
        # in units of one group's error, √2 of which make a pair's
        return _range_within(math.sqrt(2) * (apart - factor), apart / math.sqrt(2), groups - 2, rest)

    return bisected(lambda factor: within(factor) > tail, 0.0, _NORMAL.inv_cdf(1 - tail), _SELECTION_STEPS)[1]


def bisected(below: Callable[[float], bool], low: float, high: float, steps: int) -> tuple[float, float]:
    """Return the ends between which `below` turns from true to false, after so many halvings."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


def _range_within(width: float, shift: float, others: int, scale: float) -> float:
    """Return P(range ≤ width) of two unit normals at ∓shift and some of standard deviation `scale` at 0."""
    if width <= 0:
        return 0.0
    x = np.linspace(-shift - 6, shift + 6, 301)
    left, right, middle = (_cdf(x + width - m) - _cdf(x - m) for m in (-shift, shift, 0.0))
    if scale != 1:
        middle = _cdf((x + width) / scale) - _cdf(x / scale)
    # density of the smallest estimate, times the chance that all others are within `width` above
    lowest = _density(x + shift) * right * middle**others + _density(x - shift) * left * middle**others
    lowest = lowest + others * _density(x / scale) / scale * left * right * middle ** (others - 1)
    return float(np.trapezoid(lowest, x))


def _cdf(x: Array) -> Array:
    return np.asarray(np.interp(x, _POINTS, _CDF, left=0.0, right=1.0))


def _density(x: Array) -> Array:
    return np.asarray(np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))


def turning_odds(keeps: Callable[[float], bool]) -> float | None:
    """Return the smallest Γ from which a statement no longer holds, by bisection; None where it never does."""
    if not keeps(1.0):
        return None
    if keeps(1e3):
        return math.inf
    return math.exp(bisected(lambda log: keeps(math.exp(log)), 0.0, math.log(1e3), 40)[0])


# The upper tail of the chi-square distribution.


_TINY = 1e-300
_MOST = 10_000


def chi_square_tail(value: float, degrees: float) -> float:
    """Return P(X > value) for X chi-square with some degrees of freedom, in [0, 1].

    The regularised incomplete gamma function Q(degrees / 2, value / 2): its power series below degrees + 2, Lentz's
    continued fraction above.
    """
    if math.isnan(value):
        return math.nan
    if value <= 0:
        return 1.0
    if math.isinf(value):
        return 0.0
    a, x = degrees / 2, value / 2
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        return max(0.0, 1.0 - front * _series(a, x))
    return min(1.0, front * _fraction(a, x))


def _series(a: float, x: float) -> float:
    term = total = 1 / a
    for k in range(1, _MOST):
        term *= x / (a + k)
        total += term
        if term < total * 1e-17:
            break
    return total


def _fraction(a: float, x: float) -> float:
    b = x + 1 - a
    c, d = 1 / _TINY, 1 / b
    result = d
    for k in range(1, _MOST):
        step = -k * (k - a)
        b += 2
        d = 1 / ((step * d + b) or _TINY)
        c = (b + step / c) or _TINY
        result *= c * d
        if abs(c * d - 1) < 1e-16:
            break
    return result


BLOCK = 64
"""All pairs of so few groups are looked at at once."""


@functools.cache
def all_pairs(groups: int) -> Pairs:
    """Return all pairs of groups, the first one before the second."""
    return np.triu_indices(groups, 1)


def largest(bounds: Array, of: Callable[[Pairs], Array]) -> float:
    """Return the largest number of a pair of groups, where no pair with group g has a larger one than bounds[g], [G].

    The groups are taken in the order of their bounds, each with all before it, until no further one can matter.
    """
    if len(bounds) <= BLOCK:
        return float(of(all_pairs(len(bounds))).max(initial=-np.inf))
    bounds = np.where(np.isnan(bounds), np.inf, bounds)
    order, best = np.argsort(-bounds, kind="stable"), -math.inf
    for start in range(0, len(order), BLOCK):
        if bounds[order[start]] <= best:
            break
        a, b = np.tril_indices(min(BLOCK, len(order) - start), start - 1, len(order))
        a, b = order[start + a], order[b]
        best = float(np.maximum(best, of((np.minimum(a, b), np.maximum(a, b))).max(initial=-np.inf)))
    return best
