"""Numbers for people: one way to write a value, an interval and a size, wherever they are shown."""

from __future__ import annotations

import math

ROUNDING = 1e-15
"""Ends of intervals are sums of numbers near 1: what is below this is rounding."""


def number(value: float | None) -> str:
    """Write a number with three places, more for small ones, fewer for large ones; None is a dash."""
    if value is None:
        return "-"
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    value += 0.0  # no negative zero
    size = abs(value)
    if size == 0 or 0.001 <= size < 100:
        return f"{value:.3f}"
    return f"{value:.3g}"


def interval(pair: tuple[float, float] | None) -> str:
    """Write an interval, or that there is none; what is 0 but for rounding is 0."""
    if pair is None:
        return "none"
    low, high = (0.0 if abs(end) < ROUNDING else end for end in pair)
    return f"[{number(low)}, {number(high)}]"


def size(count: int) -> str:
    """Write a number of bytes."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return ""


def measured(value: float | None, pair: tuple[float, float] | None) -> str:
    """Write a value with its interval beside it, if it has one."""
    return number(value) if pair is None else f"{number(value)} {interval(pair)}"
