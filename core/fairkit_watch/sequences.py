"""Confidence sequences of one rate or mean: intervals that cover at every look at once.

All are functions of totals: S counted of n rows, or sums of powers. Write kl(q, p) = q log(q/p) + (1-q)
log((1-q)/(1-p)).

* λ-grid (Howard, Ramdas, McAuliffe & Sekhon 2021, sub-Bernoulli case, mixed over a grid):
  M⁺(p) = Σ w_k exp(λ_k S - n log(1 + p(exp(λ_k) - 1))) stays below a martingale that starts at 1 where p is the running
  mean of the rows' chances, also if these drift (Jensen). By Ville's inequality {p : M⁺(p) < 2/α} holds at all times
  at once with probability 1 - α/2; the other side mirrors it.
* Beta mixture (Robbins 1970): for one constant chance; the reference that the tests compare with.
* Asymptotic sequence (Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas 2024): the normal quantile is replaced by a factor
  c(t) that grows like the root of log t.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import difference_limits, guarded, ratio_limits
from fairkit.support.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


GRID = 12
"""Values of λ where a reference rate scales them."""

_LEAST, _MOST = 0.003, 0.7
_STEPS = 60
_CLOSE = 1e-14
BURN_IN_ROWS = 100
"""An asymptotic interval needs so many effective rows."""


@functools.lru_cache(maxsize=256)
def _grid(variance: float | None) -> tuple[float, ...]:
    if variance is None:  # unknown: from u of p = 0.5 to u of p = 0.01, in the same steps
        low, high = _LEAST / 0.5, _MOST / 0.1
        count = math.ceil((GRID - 1) * math.log(high / low) / math.log(_MOST / _LEAST)) + 1
        return tuple(np.geomspace(low, high, count).tolist())
    return tuple((np.geomspace(_LEAST, _MOST, GRID) / math.sqrt(variance)).tolist())


def lambda_grid(reference: float | None = None) -> Array:
    """Return the exponents λ of the grid."""
    if reference is None:
        return np.array(_grid(None))
    p = min(max(reference, 1e-4), 1 - 1e-4)
    return np.array(_grid(p * (1 - p)))


def rate_limits(counted: Array, n: Array, alpha: float | Array, grid: Array) -> tuple[Array, Array]:
    """Return the λ-grid confidence sequence of a rate from counts."""
    counted, n, alpha = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (counted, n, alpha)))
    # Ville's inequality, α / 2 on either side
    target = np.log(2 / alpha)
    both = _lower(np.stack([counted, n - counted]), np.stack([n, n]), np.stack([target, target]), grid)
    return both[0], 1 - both[1]


def _lower(counted: Array, n: Array, target: Array, grid: Array) -> Array:
    """Solve log M⁺(p) = target for p; it is convex and falls, and the deviance limit is to the right of the root."""
    grown = np.expm1(grid)

    def value(p: Array) -> tuple[Array, Array]:
        inside = 1 + p[..., None] * grown
        exponents = grid * counted[..., None] - n[..., None] * np.log(inside)
        top = exponents.max(axis=-1, keepdims=True)
        parts = np.exp(exponents - top)
        total = parts.sum(axis=-1)
        # d/dp log(1 + p (e^λ - 1)) = (e^λ - 1) / (1 + p (e^λ - 1))
        slope = -(parts * (n[..., None] * grown / inside)).sum(axis=-1) / total
        return top[..., 0] + np.log(total / len(grid)) - target, slope

    with np.errstate(all="ignore"):
        right = deviance_lower(counted / n, n, target)
        right = np.where(n > 0, right, 0.0)
        return _root(value, np.zeros_like(right), right)


def deviance_lower(rate: Array, n: Array, r: Array) -> Array:
    """Return the smallest p with n·kl(rate, p) ≤ r, shapes alike; 0 for n = 0."""
    rate, n, r = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (rate, n, r)))
    with np.errstate(all="ignore"):
        deviance = rate * np.log(rate)
        deviance = np.where(rate > 0, deviance, 0.0) + np.where(rate < 1, (1 - rate) * np.log1p(-rate), 0.0)

        def value(p: Array) -> tuple[Array, Array]:
            far = np.where(rate < 1, (1 - rate) * np.log1p(-p), 0.0)
            gap = n * (deviance - rate * np.log(p) - far) - r
            return np.where(p > 0, gap, np.where(rate > 0, np.inf, -r)), n * (p - rate) / (p * (1 - p))

        # the quadratic with the largest variance between p and the rate is below n·kl: its root is to the left
        variance = np.where(rate <= 0.5, rate * (1 - rate), 0.25)
        left = np.where(n > 0, rate - np.sqrt(2 * np.maximum(variance, 0) * r / n), 0.0)
        edge = np.where(rate >= 1, np.exp(-r / np.maximum(n, 1e-300)), 0.0)
        root = _root(value, np.clip(left, 0, 1), np.where(n > 0, np.where(rate > 0, rate, 0.0), 0.0))
    return np.where(n > 0, np.where(rate >= 1, edge, root), 0.0)


def deviance_limits(rate: Array, n: Array, r: float | Array) -> tuple[Array, Array]:
    """Return {p : n·kl(rate, p) ≤ r} as limits in [0, 1]; they need no care at rates 0 and 1."""
    rate, n, r = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (rate, n, r)))
    both = deviance_lower(np.stack([rate, 1 - rate]), np.stack([n, n]), np.stack([r, r]))
    return both[0], 1 - both[1]


def _root(function: Callable[[Array], tuple[Array, Array]], left: Array, right: Array) -> Array:
    """Find the root of a falling convex function in [left, right]; the left end where it is not above 0 there."""
    low, high = np.array(left, np.float64), np.array(right, np.float64)
    p = high.copy()
    start, _ = function(low)
    done = ~(start > 0)
    high = np.where(done, low, high)
    p = np.where(done, low, 0.5 * (low + high))
    for _ in range(_STEPS):
        value, slope = function(p)
        above = value > 0
        low, high = np.where(above, p, low), np.where(above, high, p)
        # Newton's step; bisection where it leaves the bracket
        fresh = p - value / slope
        inside = (fresh >= low) & (fresh <= high) & np.isfinite(fresh)
        fresh = np.where(inside, fresh, 0.5 * (low + high))
        fresh = np.where(done, p, fresh)
        moved = np.abs(fresh - p)
        p = fresh
        if bool((moved <= _CLOSE + 4e-16 * p).all()):
            break
    return p


@functools.lru_cache(maxsize=4_096)
def _tuning(alpha: float) -> float:
    """Return -W₋₁(-α²/e) - 1, the root g of g - log(1+g) = 2 log(1/α): 8.21 at 5 %."""
    target = 2 * math.log(1 / alpha)
    g = target + math.log1p(target) + 1
    for _ in range(50):
        step = (g - math.log1p(g) - target) / (1 - 1 / (1 + g))
        g -= step
        if abs(step) < 1e-13 * g:
            break
    return g


def factor(share: Array, alpha: float | Array) -> Array:
    """Return the sequence's quantile: c(t) = sqrt((tρ²+1)/(tρ²) (log(tρ²+1) + 2 log(1/α)))."""
    alpha = np.asarray(alpha, np.float64)
    if alpha.ndim == 0:
        tuned = np.asarray(_tuning(float(alpha)))
    else:
        tuned = np.array([_tuning(level) for level in alpha.ravel().tolist()]).reshape(alpha.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Robbins (1970): ρ² = g / t₀ makes the boundary narrowest at t₀
        t = np.asarray(share, np.float64) * tuned
        return np.where(t > 0, np.sqrt((t + 1) / t * (np.log1p(t) + 2 * np.log(1 / alpha))), np.inf)


def mean_limits(moments: Array, alpha: float | Array, rows_best: float) -> tuple[Array, Array, Array]:
    """Return the asymptotic sequence of a weighted mean from its moments."""
    mass, squares, first, cross, second = (moments[..., i] for i in range(5))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = first / mass
        effective = mass**2 / squares
        spread = np.maximum(second - 2 * mean * cross + mean**2 * squares, 0)
        error = np.sqrt(spread) / mass
        # an asymptotic confidence sequence (Waudby-Smith et al. 2024)
        half = factor(effective / rows_best, alpha) * error
    half = np.where((effective >= BURN_IN_ROWS) & (error > 0), half, np.nan)
    return mean, mean - half, mean + half


# Confidence sequences of differences and ratios between groups.


@dataclass(frozen=True, slots=True)
class Ends:
    """Rates of groups at the two ends of what unresolved rows could make of them; one array where all are resolved."""

    least: Array  # the smallest possible rate, shape [..., G]
    least_n: Array  # the rows that it is over
    most: Array  # the largest; the same array where every row is resolved
    most_n: Array  # the rows that it is over

    @classmethod
    def certain(cls, rate: Array, n: Array) -> Ends:
        """Return the ends where nothing is unresolved."""
        return cls(rate, n, rate, n)

    def take(self, groups: NDArray[np.intp]) -> Ends:
        """Return some groups, in this order."""
        if self.least is self.most:
            return Ends.certain(self.least[..., groups], self.least_n[..., groups])
        return Ends(*(part[..., groups] for part in (self.least, self.least_n, self.most, self.most_n)))


HELD_BACK = 0.05
"""The part of the error probability for groups and pairs that were not declared at the start."""


def spending(position: NDArray[np.intp], declared: int) -> Array:
    """Return the share of α of the group, or pair, at a position in the order of appearance.

    The declared ones share all but `HELD_BACK` equally; the later ones take 6 / (π² j²) of that, j = 1, 2, ..., so
    that all of them, however many come, add up to at most 1. Where none is declared, they take of the whole.
    """
    j = np.maximum(position - declared + 1, 1)
    late = 6 / (np.pi**2 * j**2)
    if declared == 0:
        return np.asarray(late)
    return np.where(position < declared, (1 - HELD_BACK) / declared, HELD_BACK * late)


def pairs(groups: int, declared: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Return the pairs of groups and the share of α of each at the lower end.

    A pair is declared if both its groups are; later pairs come in the order of their later group.
    """
    b, a = np.tril_indices(groups, -1)  # ordered by the later group
    return a, b, spending(np.arange(len(a)), declared * (declared - 1) // 2)


@dataclass(frozen=True, slots=True)
class Between:
    """What an interval between groups is made with."""

    alpha: float  # the chance of ever being wrong, both ends together
    declared: int  # how many groups were declared at the start; the first of the groups
    best: Array  # information₀ of a pair of the groups, shape [G, G]: where its interval is to be narrowest


def difference(ends: Ends, how: Between) -> tuple[Array, Array]:
    """Return the sequence of the largest difference between groups: its lower and upper end, shape [...].

    NaN where fewer than two groups have rows.
    """
    a, b, c, finite = _prepared(ends, how)
    low, high = _signed(ends, a, b, c)  # at the joint and at the lone factor
    least = np.where(finite, np.maximum(np.maximum(low[0], -high[0]), 0), -np.inf).max(axis=-1, initial=-np.inf)
    most = np.where(finite, np.maximum(high[1], -low[1]), -np.inf).max(axis=-1, initial=-np.inf)
    return _or_nan(least), _or_nan(np.minimum(most, 1))


def ratio(ends: Ends, how: Between) -> tuple[Array, Array]:
    """Return the sequence of the smallest ratio between groups: its lower and upper end, shape [...]."""
    a, b, c, finite = _prepared(ends, how)
    low = np.where(finite, _ratio_side(ends, a, b, c[1], 0), np.inf).min(axis=-1, initial=np.inf)
    high = np.where(finite, _ratio_side(ends, a, b, c[0], 1), np.inf).min(axis=-1, initial=np.inf)
    return _or_nan(np.clip(low, 0, None)), _or_nan(np.where(np.isfinite(high), np.minimum(high, 1), high))


def extreme(ends: Ends, how: Between, grid: Array, *, largest: bool) -> tuple[Array, Array]:
    """Return the sequence of the largest, or smallest, rate of a group: inner end for all at once, outer end alone."""
    groups = ends.least.shape[-1]
    shares = spending(np.arange(groups), how.declared) if groups > 1 else np.ones(groups)
    counted = np.nan_to_num(ends.least * ends.least_n), np.nan_to_num(ends.most * ends.most_n)
    alphas = how.alpha * np.stack([shares, np.ones_like(shares)])  # all groups at once, and each alone
    alphas = alphas.reshape(2, *(1,) * (ends.least.ndim - 1), groups)
    lows, highs = rate_limits(counted[0], ends.least_n, alphas, grid)
    if ends.least is not ends.most:
        highs = rate_limits(counted[1], ends.most_n, alphas, grid)[1]
    joint, alone = (lows[0], highs[0]), (lows[1], highs[1])
    has_rows = (ends.least_n > 0) & (ends.most_n > 0)
    if largest:
        low = np.where(has_rows, joint[0], -np.inf).max(axis=-1, initial=-np.inf)
        high = np.where(has_rows, alone[1], -np.inf).max(axis=-1, initial=-np.inf)
    else:
        low = np.where(has_rows, alone[0], np.inf).min(axis=-1, initial=np.inf)
        high = np.where(has_rows, joint[1], np.inf).min(axis=-1, initial=np.inf)
    return _or_nan(low), _or_nan(high)


def _prepared(ends: Ends, how: Between) -> tuple[NDArray[np.intp], NDArray[np.intp], Array, NDArray[np.bool_]]:
    """Return the pairs, their factors (joint end, lone end), shape [2, ..., P], and which have rows in both groups."""
    a, b, shares = pairs(ends.least.shape[-1], how.declared)
    n = np.minimum(ends.least_n, ends.most_n)
    with np.errstate(divide="ignore", invalid="ignore"):
        # 1 / (1/n_a + 1/n_b)
        information = np.where((n[..., a] > 0) & (n[..., b] > 0), 1 / (1 / n[..., a] + 1 / n[..., b]), 0.0)
    share = information / how.best[a, b]
    guard = 1 - guarded(1 - how.alpha)
    alone = np.where((information > 0).sum(axis=-1, keepdims=True) <= 1, guard, how.alpha)
    inner = factor(share, guard * shares)
    return a, b, np.stack([inner, factor(share, alone)]), information > 0


def _signed(ends: Ends, a: NDArray[np.intp], b: NDArray[np.intp], c: Array) -> tuple[Array, Array]:
    """Return limits of p_a - p_b, shape [..., P]: the union over what unresolved rows could be."""
    first, second = ends.take(a), ends.take(b)
    low, high = _flat(difference_limits, first.least, first.least_n, second.most, second.most_n, c)
    if ends.least is ends.most:
        return low, high
    return low, _flat(difference_limits, first.most, first.most_n, second.least, second.least_n, c)[1]


def _ratio_side(ends: Ends, a: NDArray[np.intp], b: NDArray[np.intp], c: Array, side: int) -> Array:
    """Return the smaller of the lower (0) or upper (1) limits of p_a / p_b and p_b / p_a, shape [..., P]."""
    sides = []
    for over, under in ((ends.take(a), ends.take(b)), (ends.take(b), ends.take(a))):
        top = (over.least, over.least_n) if side == 0 else (over.most, over.most_n)
        base = (under.most, under.most_n) if side == 0 else (under.least, under.least_n)
        sides.append(_flat(ratio_limits, *top, *base, c)[side])
    return np.minimum(*sides)


def _flat(make: object, p: Array, n_p: Array, q: Array, n_q: Array, c: Array) -> tuple[Array, Array]:
    """Call a function of `fairkit.intervals` for pairs of rates of any shape, each with its own factor."""
    shape = np.shape(c)
    values = np.concatenate([np.broadcast_to(rate, shape).ravel() for rate in (p, q)])
    sizes = np.concatenate([np.broadcast_to(size, shape).ravel() for size in (n_p, n_q)])
    r = np.concatenate([np.ravel(c), np.ravel(c)]) ** 2 / 2
    sizes = np.where(np.isfinite(r), sizes, 0.0)
    values = np.nan_to_num(values, nan=0.5)
    bounds = deviance_limits(values, sizes, np.where(np.isfinite(r), r, 1.0))
    half = np.arange(values.size // 2)
    low, high = make(values, lambda _: bounds, 0.0, half, half + half.size)  # type: ignore[operator]
    return low.reshape(shape), high.reshape(shape)


def _or_nan(values: Array) -> Array:
    return np.where(np.isfinite(values), values, np.nan)
