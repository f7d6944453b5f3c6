"""Intervals of a few groups from their counts, without arrays: a verifier's arithmetic, apart from the audit's.

An audit computes these numbers with `fairkit.intervals`, on arrays; who checks a certificate computes them here, from
the formulas alone and without numpy. The two share no code, so that an error of the one is seen by the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

Limits = tuple[float, float]
Shares = Sequence[tuple[float, float]]
"""A rate of each group, and how many rows it is over."""

_NORMAL = NormalDist()
_FEW = 25
_CONTINUITY = 0.25
_MANY, _EVEN = 4, 0.7
_NEWTON = 40
_GUARD = 0.8


def two_sided(confidence: float) -> float:
    """Return the normal quantile of a two-sided interval: 1.96 for 0.95."""
    return _NORMAL.inv_cdf(0.5 + confidence / 2)


def guarded(confidence: float) -> float:
    """Return the confidence with α a fifth smaller, for limits that nothing else makes conservative."""
    return 1 - _GUARD * (1 - confidence)


@functools.lru_cache(maxsize=65_536)
def share_limits(rate: float, n: float, z: float) -> Limits:
    """Return limits for a share: exact ones where fewer than 25 rows count or do not, else Wilson's, corrected."""
    if min(rate, 1 - rate) * n < _FEW - 1e-9:
        return _exact(rate, n, z)
    scale = 1 / (1 + z * z / n)
    centre = (rate + z * z / (2 * n)) * scale
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) * scale
    skew = (z * z - 1) * (1 - 2 * rate) / (6 * n)  # Cai 2005
    low, high = centre - half - skew - _CONTINUITY / n, centre + half - skew + _CONTINUITY / n
    return min(max(low, 0.0), rate), max(min(high, 1.0), rate)


def _exact(rate: float, n: float, z: float) -> Limits:
    """Return Clopper and Pearson's limits; of a fractional count those between its neighbours'."""
    rare = min(rate, 1 - rate)
    count = rare * n
    whole = float(round(count))
    if abs(count - whole) < 1e-9 * max(n, 1.0):
        count = whole
    below = math.floor(count)
    part = count - below
    low, high = _of_whole(below, n, z)
    if part > 0:
        more = _of_whole(min(below + 1.0, n), n, z)
        low, high = low + part * (more[0] - low), high + part * (more[1] - high)
    return (1 - high, 1 - low) if rate > 0.5 else (low, high)


def _of_whole(count: float, n: float, z: float) -> Limits:
    tail = _NORMAL.cdf(-abs(z))
    low = 0.0 if count < 1 else _solve(count - 1, n, 1 - tail)
    return low, 1.0 if count >= n else _solve(count, n, tail)


def _solve(k: float, n: float, target: float) -> float:
    """Solve P(at most k of n) = target for the rate: Newton's steps on the logarithm, which is concave in it."""
    choose = math.fsum(math.log((n - j) / (j + 1)) for j in range(int(k)))
    p = min(max((k + 0.5) / n, 1e-9), 1 - 1e-9)
    least, most = 0.0, 1.0
    for _ in range(_NEWTON):
        odds, term, total = p / (1 - p), 1.0, 1.0  # relative to the last term of the sum
        for j in range(int(k)):
            term *= (k - j) / ((n - k + j + 1) * odds)
            total += term
        excess = choose + k * math.log(p) + (n - k) * math.log1p(-p) + math.log(total) - math.log(target)
        least, most = (p, most) if excess > 0 else (least, p)
        fresh = p + excess * (1 - p) * total / (n - k)
        fresh = fresh if least < fresh < most else (least + most) / 2
        if abs(fresh - p) <= 1e-14 * p:
            return fresh
        p = fresh
    return p


@functools.lru_cache(maxsize=256)
def _table(low: float, high: float, points: int) -> tuple[float, ...]:
    """Return the normal distribution function on a grid, as the audit's factors are computed on it."""
    step = (high - low) / (points - 1)
    return tuple(_NORMAL.cdf(low + step * place) for place in range(points))


def _interpolated(x: float, low: float, high: float, points: int) -> float:
    if x <= low:
        return 0.0
    if x >= high:
        return 1.0
    step = (high - low) / (points - 1)
    place = min(int((x - low) / step), points - 2)
    table = _table(low, high, points)
    part = (x - (low + step * place)) / step
    return table[place] + part * (table[place + 1] - table[place])


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _trapezoid(heights: Sequence[float], step: float) -> float:
    return step * (math.fsum(heights) - (heights[0] + heights[-1]) / 2)


@functools.cache
def studentised_range(groups: int, confidence: float) -> float:
    """Return the quantile of the range of `groups` standard normals: k ∫ φ(x) [Φ(x) - Φ(x - q)]^(k-1) dx."""
    points = [-9 + 0.01 * place for place in range(1_801)]
    phi, cdf = [_density(x) for x in points], [_NORMAL.cdf(x) for x in points]
    table, power = _table(-9.0, 9.0, 7_201), groups - 1

    def excess(q: float) -> float:
        # x - q lies between the same two of four places of the finer table for every x
        whole, part = divmod(q / 0.0025, 1.0)
        below, share = int(whole) + (part > 0), (1 - part) % 1.0
        first = -(-below // 4)  # where x - q comes to the table's beginning
        at = 4 * first - below
        pairs = zip(phi[first:], cdf[first:], table[at::4], (*table[at + 1 :: 4], 1.0), strict=False)
        heights = [d * max(own - low - share * (high - low), 0.0) ** power for d, own, low, high in pairs]
        before = [d * own**power for d, own in zip(phi[:first], cdf[:first], strict=True)]
        return groups * _trapezoid(before + heights, 0.01) - confidence

    # a range is beyond q no more often than one of its k (k - 1) / 2 differences is (Bonferroni)
    alone = two_sided(1 - (1 - confidence) / (groups * power / 2))
    return _root(excess, two_sided(confidence), math.sqrt(2) * alone + 1e-6)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where an increasing function is 0: the Illinois form of false position, which ends in about ten steps."""
    below, above = function(low), function(high)
    side = 0
    for _ in range(200):
        middle = (low * above - high * below) / (above - below)
        value = function(middle)
        if value == 0 or high - low <= 1e-13 * high:
            return middle
        if value < 0:
            above = above / 2 if side < 0 else above
            low, below, side = middle, value, -1
        else:
            below = below / 2 if side > 0 else below
            high, above, side = middle, value, 1
        if abs(value) < 1e-15:
            return middle
    return (low + high) / 2


def pairwise_quantile(groups: int, confidence: float) -> float:
    """Return the factor with which all differences between so many groups hold at once (Tukey 1953)."""
    return two_sided(confidence) if groups <= 2 else studentised_range(groups, confidence) / math.sqrt(2)


def selected_quantile(groups: int, apart: float, evenness: float, tail: float) -> float:
    """Return the factor that bounds the largest of many differences; `fairkit.limits.selection` derives it."""
    z = _NORMAL.inv_cdf(1 - tail)
    if groups <= 2 or apart > 4 + 2 * z:
        return z
    return _selected(groups, math.ceil(apart * 10 - 1e-9), math.floor(evenness * 20 + 1e-9), tail)


@functools.lru_cache(maxsize=4_096)
def _selected(groups: int, tenths: int, twentieths: int, tail: float) -> float:
    apart, scale = tenths / 10, max(twentieths, 1) / 20
    low, high = 0.0, _NORMAL.inv_cdf(1 - tail)
    for _ in range(16):
        middle = (low + high) / 2
        inside = _range_within(math.sqrt(2) * (apart - middle), apart / math.sqrt(2), groups - 2, scale)
        low, high = (middle, high) if inside > tail else (low, middle)
    return high


def _range_within(width: float, shift: float, others: int, scale: float) -> float:
    """Return P(range ≤ width) of two unit normals at ∓shift and others of standard deviation `scale` at 0."""
    if width <= 0:
        return 0.0
    first, step = -shift - 6, (2 * shift + 12) / 300

    def cdf(x: float) -> float:
        return _interpolated(x, -9.0, 9.0, 3_601)

    heights = []
    for place in range(301):
        x = first + step * place
        left = cdf(x + width + shift) - cdf(x + shift)
        right = cdf(x + width - shift) - cdf(x - shift)
        middle = cdf((x + width) / scale) - cdf(x / scale)
        ends = _density(x + shift) * right + _density(x - shift) * left
        between = others * _density(x / scale) / scale * left * right
        heights.append(ends * middle**others + between * middle ** (others - 1))
    return _trapezoid(heights, step)


def _factors(groups: int, confidence: float) -> tuple[float, float]:
    """Return the factor of the inner end, joint over all pairs, and that of the outer end, of a pair alone."""
    inner = pairwise_quantile(groups, guarded(confidence))
    return inner, inner if groups <= 2 else two_sided(confidence)


def _ends(shares: Shares, z: float) -> list[tuple[float, float, float]]:
    return [(rate, *share_limits(rate, n, z)) for rate, n in shares]


def _difference_end(shares: Shares, z: float, *, upper: bool) -> float:
    """Return the largest limit of |difference| over the pairs of groups (Newcombe's method 10)."""
    groups, most = _ends(shares, z), 0.0
    for place, (rate, low, high) in enumerate(groups):
        for other_rate, other_low, other_high in groups[place + 1 :]:
            gap = rate - other_rate
            down = math.hypot(rate - low, other_high - other_rate)
            up = math.hypot(high - rate, other_rate - other_low)
            most = max(most, gap + up, down - gap) if upper else max(most, gap - down, -gap - up)
    return most


def spread_difference(shares: Shares, confidence: float) -> tuple[float, float, float]:
    """Return largest minus smallest rate of two or more groups, and its limits (`fairkit.intervals` derives them)."""
    rates = [rate for rate, _ in shares]
    inner, outer = _factors(len(shares), confidence)
    high = _difference_end(shares, outer, upper=True)
    if len(shares) >= _MANY:
        errors = [(most - low) / (2 * outer) for _, low, most in _ends(shares, outer)]
        evenness = min(errors) / max(errors) if max(errors) > 0 else 0.0
        pair, tail = math.sqrt(2) * min(errors), _NORMAL.cdf(-outer)
        for _ in range(6 if evenness >= _EVEN else 0):
            factor = selected_quantile(len(shares), high / pair, evenness, tail)
            if factor >= outer:
                break
            high = _difference_end(shares, factor, upper=True)
    return max(rates) - min(rates), _difference_end(shares, inner, upper=False), high


def spread_ratio(shares: Shares, confidence: float) -> tuple[float, float, float] | None:
    """Return the smallest rate over the largest, and its limits (Donner & Zou 2012); None where all rates are 0."""
    rates = [rate for rate, _ in shares]
    if max(rates) <= 0:
        return None
    inner, outer = _factors(len(shares), confidence)
    low = min(_ratio_low(*pair) for pair in _ordered(_ends(shares, outer)))
    high = min(_ratio_high(*pair) for pair in _ordered(_ends(shares, inner)))
    return min(rates) / max(rates), max(low, 0.0), min(high, 1.0)


def _ordered(
    ends: list[tuple[float, float, float]],
) -> list[tuple[tuple[float, float, float], tuple[float, float, float]]]:
    return [(a, b) for place, a in enumerate(ends) for other, b in enumerate(ends) if place != other]


def _ratio_low(a: tuple[float, float, float], b: tuple[float, float, float]) -> float:
    (p, low, _), (q, _, high) = a, b
    bottom = high * (2 * q - high)
    if bottom > 0:
        root = (p * q) ** 2 - low * high * (2 * p - low) * (2 * q - high)
        return max((p * q - math.sqrt(max(root, 0.0))) / bottom, 0.0)
    return low / max(high, 1e-300)


def _ratio_high(a: tuple[float, float, float], b: tuple[float, float, float]) -> float:
    (p, _, high), (q, low, _) = a, b
    bottom = low * (2 * q - low)
    if bottom <= 0:
        return math.inf
    root = (p * q) ** 2 - high * low * (2 * p - high) * (2 * q - low)
    return (p * q + math.sqrt(max(root, 0.0))) / bottom


def extreme(shares: Shares, confidence: float, *, largest: bool) -> tuple[float, float, float]:
    """Return the largest (or smallest) rate, and its limits: joint ones inside (Šidák), the groups' own outside."""
    rates = [rate for rate, _ in shares]
    joint, single = (_ends(shares, two_sided(confidence ** (1 / len(shares)))), _ends(shares, two_sided(confidence)))
    if largest:
        return max(rates), max(low for _, low, _ in joint), max(high for _, _, high in single)
    return min(rates), min(low for _, low, _ in single), min(high for _, _, high in joint)
