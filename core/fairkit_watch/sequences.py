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
        own = rate * np.log(rate)
        own = np.where(rate > 0, own, 0.0) + np.where(rate < 1, (1 - rate) * np.log1p(-rate), 0.0)

        def value(p: Array) -> tuple[Array, Array]:
            far = np.where(rate < 1, (1 - rate) * np.log1p(-p), 0.0)
            gap = n * (own - rate * np.log(p) - far) - r
            return np.where(p > 0, gap, np.where(rate > 0, np.inf, -r)), n * (p - rate) / (p * (1 - p))

        # the quadratic with the largest variance between p and the rate is below n·kl: its root is to the left
        variance = np.where(rate <= 0.5, rate * (1 - rate), 0.25)
        left = np.where(n > 0, rate - np.sqrt(2 * np.maximum(variance, 0) * r / n), 0.0)
        edge = np.where(rate >= 1, np.exp(-r / np.maximum(n, 1e-300)), 0.0)
        found = _root(value, np.clip(left, 0, 1), np.where(n > 0, np.where(rate > 0, rate, 0.0), 0.0))
    return np.where(n > 0, np.where(rate >= 1, edge, found), 0.0)


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
        tuned = np.array([_tuning(one) for one in alpha.ravel().tolist()]).reshape(alpha.shape)
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
