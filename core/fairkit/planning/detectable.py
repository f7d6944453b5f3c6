"""The smallest disparity that an audit of a given size would fail, and the largest that it would pass."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.planning.results import Detectable
from fairkit.planning.search import quantile, variances

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fairkit.planning.draws import Truth
    from fairkit.planning.targets import Target
    from fairkit.results.rules import Rule

    Array = NDArray[np.float64]

_NORMAL = NormalDist()


def detectable(
    target: Target, truth: Truth, denominators: Array, rule: Rule, confidence: float, power: float
) -> Detectable | None:
    """Solve D - limit = (z + z_power) se(D) for D, with all of the disparity in the smallest group."""
    if target.kind not in ("difference", "ratio") or len(truth.names) < 2:
        return None
    z_power = _NORMAL.inv_cdf(power)
    groups = len(truth.names)
    inner = quantile(target, groups, confidence, passing=False) + z_power
    outer = quantile(target, groups, confidence, passing=True)
    sides = [_Side(target, truth.rates[k], denominators[k]) for k in range(len(target.rates))]
    none = 0.0 if target.kind == "difference" else 1.0
    end = 1.0 - none

    def error(value: float) -> float:
        return max(side.error(value) for side in sides)

    def gap(value: float) -> float:
        if target.kind == "ratio":
            return math.log(max(value, 1e-9) / max(rule.limit, 1e-9)) * (1 if rule.upper else -1)
        return (value - rule.limit) * (1 if rule.upper else -1)

    at_none = _NORMAL.inv_cdf((1 + power) / 2)
    fails = _edge(lambda v: gap(v) - inner * error(v), rule.limit, end)
    passes = _edge(lambda v: -gap(v) - (outer + (at_none if v == none else z_power)) * error(v), rule.limit, none)
    return Detectable(fails_from=fails, passes_up_to=passes, power=power)


class _Side:
    """One rate: its error at the numbers that the smallest group could make."""

    def __init__(self, target: Target, rates: Array, denominators: Array) -> None:
        self.target = replace(target, rates=target.rates[:1])
        self.small = int(denominators.argmin())
        self.base = float(np.average(rates, weights=denominators))
        self.inverse = 1 / np.maximum(denominators, 1.0)

    def error(self, value: float) -> float:
        other = self.base
        if self.target.kind == "difference":
            moved = other + value if other + value <= 1 else max(other - value, 0.0)
        else:
            moved = other * value
        small, rest = (float(variances(self.target, np.array([p]))[0]) for p in (moved, other))
        others = np.delete(self.inverse, self.small).max()
        return math.sqrt(small * self.inverse[self.small] + rest * others)


def _edge(holds: Callable[[float], float], limit: float, end: float) -> float | None:
    """Return the number nearest to the limit from which on `holds` is not negative, towards `end`."""
    if holds(end) < 0:
        return None
    bad, good = limit, end
    for _ in range(50):
        middle = (bad + good) / 2
        bad, good = (bad, middle) if holds(middle) >= 0 else (middle, good)
    return good
