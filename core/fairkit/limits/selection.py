"""The factor of a pair's limit when the largest of many differences is bounded: noise of other groups counts too."""

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

_NORMAL = NormalDist()
_STEPS = 16
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
    apart, other = tenths / 10, max(twentieths, 1) / 20
    low, high = 0.0, _NORMAL.inv_cdf(1 - tail)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        # in units of one group's error, √2 of which make a pair's
        within = _range_within(math.sqrt(2) * (apart - middle), apart / math.sqrt(2), groups - 2, other)
        low, high = (middle, high) if within > tail else (low, middle)
    return high


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


def turning_odds(keeps: Callable[[float], bool], most: float = 1e3) -> float | None:
    """Return the smallest Γ from which a statement no longer holds, by bisection; None where it never does."""
    if not keeps(1.0):
        return None
    if keeps(most):
        return math.inf
    low, high = 0.0, math.log(most)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(math.exp(middle)) else (low, middle)
    return math.exp(low)
