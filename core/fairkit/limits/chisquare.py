"""The upper tail of the chi-square distribution."""

from __future__ import annotations

import math

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
