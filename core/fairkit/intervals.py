"""Confidence intervals: for one rate, for a mean, and for the spread between groups.

Spread between groups. The percentile interval of max - min over groups never contains 0, so it would find
a disparity in pure noise. Here the interval is made from the pairs of groups. Write D_ab for the true
difference of a pair, θ = max |D_ab| for the true spread.

* Upper end: the largest of the pairs' own upper limits for |D_ab|, each one-sided at α/2 and without any
  correction. It is at least the limit of the pair that attains θ, so it misses θ with probability at most
  α/2 (an intersection-union test; Berger 1982). With four or more groups of similar precision the pairs' factor
  is smaller where θ is: the noise of the other groups alone makes the largest difference large
  (`selected_quantile`).
* Lower end: the largest of the pairs' lower limits for |D_ab|, where all pairs' limits hold at once with
  probability 1-α. With the studentised range for the critical value this is exact for groups of equal
  precision and conservative otherwise (Tukey 1953; Kramer 1956; Hayter 1984). It is 0 where every pair's
  interval holds 0.

A pair's limits come from the two groups' own limits (MOVER: Newcombe 1998; Donner & Zou 2012), so that
they stay right for rates near 0 or 1 and for empty cells.

Where nothing else makes the interval conservative (the lower end, and both ends between two groups) α is taken
a fifth smaller, 0.04 for 95 %: these limits are approximations, and counts are discrete, so that the coverage
would swing around the nominal one instead of staying above it. It costs 5 % of the width.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.limits import (
    BLOCK,
    all_pairs,
    bisected,
    clopper_pearson,
    largest,
    selected_quantile,
    share_limits,
    student,
    wilson,
)
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Limits = Callable[[float], tuple[Array, Array]]
    Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]

__all__ = [
    "Spread", "clopper_pearson", "difference_limits", "extreme", "guarded", "kolmogorov_quantile", "largest",
    "own_quantile", "pairwise", "pairwise_quantile", "ratio_limits", "reach", "share_limits", "spread_difference",
    "spread_quantiles", "spread_ratio", "student", "studentised_range", "two_sided", "wilson",
]  # fmt: skip

_NORMAL = NormalDist()
MANY, _EVEN = 4, 0.7


def two_sided(confidence: float) -> float:
    """Return the normal quantile of a two-sided interval: 1.96 for 0.95."""
    return _NORMAL.inv_cdf(0.5 + confidence / 2)


@functools.cache
def studentised_range(groups: int, confidence: float) -> float:
    """Return the quantile of the range of `groups` standard normals, infinite degrees of freedom.

    Solves P(range ≤ q) = k ∫ φ(x) [Φ(x) - Φ(x - q)]^(k-1) dx = confidence by bisection.
    """
    x = np.linspace(-9, 9, 1801)
    phi = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    cdf = np.array([_NORMAL.cdf(value) for value in x])
    fine = np.linspace(-60, 9, 27601)
    fine_cdf = np.zeros(len(fine))  # as `NormalDist` has it below -9
    reached = np.flatnonzero(fine > -9)
    fine_cdf[reached] = [_NORMAL.cdf(value) for value in fine[reached]]

    def probability(q: float) -> float:
        inner = np.clip(cdf - np.interp(x - q, fine, fine_cdf), 0, 1) ** (groups - 1)
        return float(groups * np.trapezoid(phi * inner, x))

    return sum(bisected(lambda q: probability(q) < confidence, 0.0, 50.0, 60)) / 2


def pairwise_quantile(groups: int, confidence: float) -> float:
    """Return the factor that makes all pairwise differences of `groups` estimates hold at once.

    It multiplies the standard error of a difference; for two groups it is the usual normal quantile.
    """
    if groups <= 2:
        return two_sided(confidence)
    return studentised_range(groups, confidence) / math.sqrt(2)


def guarded(confidence: float) -> float:
    """Return the confidence with α a fifth smaller (see the module's derivation)."""
    return 1 - 0.8 * (1 - confidence)


def own_quantile(confidence: float, correlation: Array | None) -> float:
    """Return the factor for one group's own limits; `correlation` is None where rows are independent.

    Limits from buckets of clusters take their variance from fewer numbers, and numbers that are ratios of sums are
    skewed: by themselves they would cover in 93 to 95 % of samples (benchmarks/dependent_coverage.py), hence `guarded`.
    """
    return two_sided(confidence if correlation is None else guarded(confidence))


def spread_quantiles(groups: int, confidence: float) -> tuple[float, float]:
    """Return the factors for the inner end, joint over all pairs, and for the outer end, of a pair alone."""
    inner = pairwise_quantile(groups, guarded(confidence))
    return inner, inner if groups <= 2 else two_sided(confidence)


@dataclass(frozen=True, slots=True)
class Spread:
    """A largest difference, or a smallest ratio, between groups, with its interval."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("value", "low", "high"):
            object.__setattr__(self, name, getattr(self, name) + 0.0)  # never -0


def _quantiles(groups: int, confidence: float, correlation: Array | None) -> tuple[float, float]:
    """Return the factors of `spread_quantiles`; of dependent estimates the inner one is Šidák's over all pairs."""
    inner, outer = spread_quantiles(groups, confidence)
    if correlation is None or groups <= 2:
        return inner, outer
    # Šidák (1967) holds for normal estimates of any correlation
    return two_sided(guarded(confidence) ** (2 / (groups * (groups - 1)))), outer


NOISE = 1e-12
"""What is smaller, as a part of an interval's upper end, is rounding."""


def spread_difference(values: Array, limits: Limits, confidence: float, correlation: Array | None = None) -> Spread:
    """Estimate max - min of group values, with the interval of the module's derivation.

    `values`: shape [G], finite; `limits`: gives the groups' lower and upper limits, each [G], for a normal quantile;
    `confidence`: in (0, 1); `correlation`: of the values, shape [G, G]; None: independent.
    """
    if len(values) < 2:
        return Spread(math.nan, math.nan, math.nan)
    inner, outer = _quantiles(len(values), confidence, correlation)
    least = _largest_difference(values, limits, inner, 1, correlation)
    if correlation is not None:  # what is known about the noise of other groups supposes independence
        high = _largest_difference(values, limits, outer, 2, correlation)
    else:
        high = _upper_end(values, limits, outer)
    least = 0.0 if least < NOISE * max(high, 0.0) else least  # else rounding excludes 0
    return Spread(float(values.max() - values.min()), least, high)


def differences(values: Array, limits: Limits, confidence: float) -> tuple[Array, Array]:
    """Return the ends of `spread_difference` for many draws at once, [D] each: values and limits are [D, G]."""
    inner, outer = _quantiles(values.shape[-1], confidence, None)
    low, high = pairwise(values, limits, inner)[1].max(axis=-1), pairwise(values, limits, outer)[2].max(axis=-1)
    return np.where(low < NOISE * np.maximum(high, 0.0), 0.0, low), high


def _upper_end(values: Array, limits: Limits, z: float) -> float:
    """Return the upper end for the largest difference: at the factor that the noise of many groups leaves.

    The factor is z unless there are four or more groups of similar precision (`selected_quantile`). A bound at a factor
    c is right where c is at least the factor that belongs to the bound; smaller bounds need smaller factors, so
    that a few steps down from z stay right.
    """
    high = _largest_difference(values, limits, z, 2)
    if len(values) < MANY:
        return high
    ends = limits(z)
    errors = (ends[1] - ends[0]) / (2 * z)
    evenness = float(errors.min() / errors.max()) if errors.max() > 0 else 0.0
    if not evenness >= _EVEN:
        return high
    pair, tail = math.sqrt(2) * float(errors.min()), _NORMAL.cdf(-z)
    for _ in range(6):
        factor = selected_quantile(len(values), high / pair, evenness, tail)
        if factor >= z:
            break
        high = _largest_difference(values, limits, factor, 2)
    return high


def pairwise(
    values: Array, limits: Limits, z: float, correlation: Array | None = None, pairs: Pairs | None = None
) -> tuple[Array, Array, Array]:
    """Return |difference|, its lower and its upper limit for every pair of groups, or for some: each [..., pairs]."""
    a, b = all_pairs(values.shape[-1]) if pairs is None else pairs
    difference = values[..., a] - values[..., b]
    low, high = difference_limits(values, limits, z, a, b, correlation)
    return np.abs(difference), np.maximum(np.maximum(low, -high), 0), np.maximum(high, -low)


def reach(values: Array, limits: Limits, z: float, end: int, correlation: Array | None = None) -> Array:
    """Return for each group a bound on what `pairwise` has for its pairs, [G]: `end` 0, 1 or 2 as its three results."""
    if len(values) <= BLOCK:  # `largest` looks at all pairs of so few
        return np.full(len(values), np.inf)
    low, high = limits(z)
    top, bottom = {0: (values, values), 2: (high, low)}.get(end) or _half_way(values, low, high, correlation)
    room = np.abs([top, bottom])
    bounds = np.maximum(top - bottom.min(), top.max() - bottom)
    if end == 2 and correlation is None:  # √(x² + y²) ≤ (x² + y²) / 2c + c / 2
        above, below = high - values, values - low
        with np.errstate(all="ignore"):
            c = np.hypot(above[np.argmax(high)], below[np.argmin(low)])
            top, bottom = values + above**2 / (2 * c) + c / 4, values - below**2 / (2 * c) - c / 4
            bounds = np.fmin(bounds, np.maximum(top - bottom.min(), top.max() - bottom))
    return np.asarray(bounds + NOISE * room[np.isfinite(room)].max(initial=0.0))


def _half_way(values: Array, low: Array, high: Array, correlation: Array | None) -> tuple[Array, Array]:
    """Return points on the way to the limits: √(x² + y²) ≥ (x + y) / √2, and ≥ 0 where estimates are correlated."""
    if correlation is not None:
        return values, values
    return values + math.sqrt(0.5) * (low - values), values + math.sqrt(0.5) * (high - values)


def outermost(first: Array, second: Array) -> Pairs:
    """Return ordered pairs of different groups, at most four, one of which has the largest first[a] - second[b]."""
    a, b = np.repeat(np.argsort(-first)[:2], 2), np.tile(np.argsort(second)[:2], 2)
    return a[a != b], b[a != b]


def possible_difference(low: Array, high: Array) -> tuple[float, float]:
    """Return the smallest and largest that the largest difference of numbers can be, each between its ends, [G]."""
    if len(low) < 2:
        return 0.0, 0.0
    (a, b), (c, d) = outermost(low, high), outermost(high, low)
    return float(max((low[a] - high[b]).max(), 0.0)), float((high[c] - low[d]).max())


def possible_ratio(low: Array, high: Array) -> tuple[float, float]:
    """Return the ends of the smallest ratio in the same way; of numbers that are all 0 it can be anything in [0, 1]."""
    if len(low) < 2:
        return 1.0, 1.0
    (a, b), (c, d) = outermost(-low, -high), outermost(-high, -low)
    with np.errstate(divide="ignore", invalid="ignore"):
        least, most = np.nan_to_num(low[a] / high[b], nan=0.0), np.nan_to_num(high[c] / low[d], nan=1.0)
    return float(least.min()), float(min(most.min(), 1.0))


def largest_studentised(moved: Array, squares: Array, count: int = 32) -> Array:
    """Return the largest |m_a - m_b| / √(e_a + e_b) of two groups for each row of m, e = `squares`, shapes [n, G]."""
    with np.errstate(all="ignore"):
        alone = np.nan_to_num(moved**2 / squares, nan=0.0, posinf=0.0)
    count = min(count, moved.shape[1])
    order = np.argpartition(-alone, count - 1, axis=1)
    m, e = (np.take_along_axis(part, order[:, :count], axis=1) for part in (moved, squares))
    a, b = all_pairs(count)
    both = np.sqrt(e[:, a] + e[:, b])
    best = (np.abs(m[:, a] - m[:, b]) / np.where(np.isfinite(both) & (both > 0), both, np.inf)).max(axis=1)
    if count < moved.shape[1]:  # (m_a - m_b)² / (e_a + e_b) ≤ m_a² / e_a + m_b² / e_b
        most = alone.max(axis=1) + np.take_along_axis(alone, order[:, count:], axis=1).max(axis=1)
        again = np.flatnonzero(most > best**2 * (1 - NOISE))
        best[again] = largest_studentised(moved[again], squares[again], 4 * count) if len(again) else 0.0
    return np.asarray(best)


def _largest_difference(values: Array, limits: Limits, z: float, end: int, correlation: Array | None = None) -> float:
    """Return the largest lower (`end` 1) or upper (2) limit of |difference| among all pairs of groups."""
    ends = limits(z)
    if end == 2 and np.isinf(ends).any():
        return math.inf
    bounds = reach(values, lambda _: ends, z, end, correlation)
    return largest(bounds, lambda pairs: pairwise(values, lambda _: ends, z, correlation, pairs)[end])


def _smallest_ratio(values: Array, limits: Limits, z: float, end: int, correlation: Array | None) -> float:
    """Return the smallest lower (`end` 0) or upper (1) limit of values[a] / values[b] among all pairs of groups."""
    low, high = ends = limits(z)
    if end == 1:
        high, low = _half_way(values, low, high, correlation)
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.minimum(NOISE - np.minimum(low / high.max(), low.min() / high), 0.0)

    def of(pairs: Pairs) -> Array:
        both = (ratio_limits(values, lambda _: ends, z, a, b, correlation)[end] for a, b in (pairs, pairs[::-1]))
        return -np.minimum(*both)

    return -largest(bounds, of)


def difference_limits(
    values: Array, limits: Limits, z: float, a: NDArray[np.intp], b: NDArray[np.intp], correlation: Array | None = None
) -> tuple[Array, Array]:
    """Return limits of values[a] - values[b] from the limits of the two (Newcombe's method 10, generalised).

    Estimates that are correlated take off twice the product of their distances (Zou 2007, eq. 4).

    `values`, `limits`, `z`: as for `spread_difference`; a normal quantile; `a`, `b`: places of the groups that are
    compared, shape [P]; values may be those of many draws, [D, G]; `correlation`: of the values, shape [G, G]; None:
    independent.
    """
    low, high = limits(z)
    p, q = values[..., a], values[..., b]
    below_a, above_b, above, below = p - low[..., a], high[..., b] - q, high[..., a] - p, q - low[..., b]
    # D - √((p - l)² + (u' - q)²) and D + √((u - p)² + (q - l')²)
    down, up = below_a**2 + above_b**2, above**2 + below**2
    if correlation is not None:
        with np.errstate(invalid="ignore"):
            down = np.maximum(down - 2 * correlation[a, b] * _product(below_a, above_b), 0)
            up = np.maximum(up - 2 * correlation[a, b] * _product(above, below), 0)
    return p - q - _root(down, below_a, above_b), p - q + _root(up, above, below)


def _root(square: Array, one: Array, other: Array) -> Array:
    """Return the root of the sum of two squares; of distances whose squares no number holds the larger distance."""
    larger = np.maximum(one, other)
    return np.where((square == 0) & (larger < 1e-150), larger, np.sqrt(square))


def _product(one: Array, other: Array) -> Array:
    """Multiply; 0 where either is not finite, which then stands alone."""
    return np.where(np.isfinite(one) & np.isfinite(other), one * other, 0.0)


def spread_ratio(values: Array, limits: Limits, confidence: float, correlation: Array | None = None) -> Spread:
    """Estimate min / max of nonnegative group values, with its interval.

    The pairs' ratios have Donner & Zou's limits. NaN where all values are 0, and where one is negative: means of
    a number of either sign have no ratio.
    """
    if len(values) < 2 or values.max() <= 0 or values.min() < 0:
        return Spread(math.nan, math.nan, math.nan)
    inner, outer = _quantiles(len(values), confidence, correlation)
    low, high = (_smallest_ratio(values, limits, z, end, correlation) for end, z in enumerate((outer, inner)))
    return Spread(float(values.min() / values.max()), max(low, 0.0), min(high, 1.0))


def ratio_limits(
    values: Array, limits: Limits, z: float, a: NDArray[np.intp], b: NDArray[np.intp], correlation: Array | None = None
) -> tuple[Array, Array]:
    """Return limits of values[a] / values[b] from the limits of the two (Donner & Zou 2012; arguments as above)."""
    low, high = limits(z)
    p, q = values[a], values[b]
    with np.errstate(divide="ignore", invalid="ignore"):
        product = p * q
        down = up = product
        if correlation is not None:
            down = product - correlation[a, b] * _product(p - low[a], high[b] - q)
            up = product - correlation[a, b] * _product(high[a] - p, q - low[b])
        # MOVER for p - ρ q = 0: a quadratic in ρ, as in Fieller's theorem
        root = down**2 - low[a] * high[b] * (2 * p - low[a]) * (2 * q - high[b])
        lower = (down - np.sqrt(np.maximum(root, 0))) / (high[b] * (2 * q - high[b]))
        root = up**2 - high[a] * low[b] * (2 * p - high[a]) * (2 * q - low[b])
        upper = (up + np.sqrt(np.maximum(root, 0))) / (low[b] * (2 * q - low[b]))
        coarse = low[a] / np.maximum(high[b], 1e-300)  # NaN where neither limit is finite: nothing is known
    # without a root: the lower limit over the upper one, which is always valid
    lower = np.where((2 * q - high[b] <= 0) | ~np.isfinite(lower), np.nan_to_num(coarse, nan=0.0), lower)
    upper = np.where((low[b] <= 0) | ~np.isfinite(upper), np.inf, upper)
    return np.maximum(lower, 0), upper


def extreme(values: Array, limits: Limits, confidence: float, *, largest: bool) -> Spread:
    """Estimate the largest (or smallest) of independent group values, with its interval.

    The outer end is the outermost of the groups' own limits, each one-sided at α/2; the inner end is made
    from limits that hold for all groups at once (Šidák).
    """
    if not largest:

        def mirrored(z: float) -> tuple[Array, Array]:
            low, high = limits(z)
            return -high, -low

        flipped = extreme(-values, mirrored, confidence, largest=True)
        return Spread(-flipped.value, -flipped.high, -flipped.low)
    # independent groups hold at once with the product of their confidences
    joint = two_sided(confidence ** (1 / len(values)))
    return Spread(float(values.max()), float(limits(joint)[0].max()), float(limits(two_sided(confidence))[1].max()))


@functools.cache
def kolmogorov_quantile(confidence: float) -> float:
    """Return the quantile of Kolmogorov's distribution: 1.358 for 0.95."""

    def survival(x: float) -> float:
        return float(2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * x) ** 2) for k in range(1, 40)))

    return sum(bisected(lambda x: survival(x) > 1 - confidence, 0.3, 5.0, 60)) / 2
