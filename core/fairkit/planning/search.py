"""How many rows: a closed form to begin with, then draws, and a line through the probits of their powers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import spread_quantiles, two_sided
from fairkit.planning.results import MOST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit.planning.draws import Truth
    from fairkit.planning.targets import Target
    from fairkit.results.rules import Rule

    Array = NDArray[np.float64]

_NORMAL = NormalDist()
_ZONE = 0.7
COARSE = (0.8, 0.95, 1.1, 1.25)
FINE = (0.88, 0.92, 0.96, 1.0, 1.04, 1.08, 1.13)


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Rows, and power as a function of rows: Φ(intercept + slope √rows)."""

    rows: float
    intercept: float
    slope: float

    def power(self, rows: float) -> float:
        """Return the chance of a verdict with so many rows."""
        return _NORMAL.cdf(self.intercept + self.slope * math.sqrt(rows))


def variances(target: Target, rates: Array) -> Array:
    """Return p (1 - p), or on the scale of logarithms (1 - p) / p, shape [K, G]; never 0."""
    inner = np.clip(rates, 1e-4, 1 - 1e-4)
    spread = inner * (1 - inner)
    return np.asarray(spread / inner**2 if target.kind == "ratio" else spread)


def unit_error(target: Target, truth: Truth) -> float:
    """Return se √N of the number: the extremes' variances over their shares of the rows."""
    worst = 0.0
    per_row = variances(target, truth.rates) / (truth.shares * truth.bases)
    for rates, each in zip(truth.rates, per_row, strict=True):
        low, high = int(rates.argmin()), int(rates.argmax())
        if low == high:
            low, high = np.argsort(-each)[:2] if len(each) > 1 else (0, 0)
        worst = max(worst, float(each[low] + each[high]) if len(each) > 1 else float(each[0]))
    return math.sqrt(worst)


def distance(target: Target, truth: Truth, rule: Rule) -> float:
    """Return how far the true number is from the limit, on the scale of `unit_error`."""
    value = target.value(truth.rates)
    if target.kind == "ratio":
        return abs(math.log(max(rule.limit, 1e-6)) - math.log(max(value, 1e-6)))
    return abs(rule.limit - value)


def quantile(target: Target, groups: int, confidence: float, *, passing: bool) -> float:
    """Return the normal quantile of the end that decides."""
    if target.kind in ("level", "largest", "smallest"):
        return two_sided(confidence)
    inner, outer = spread_quantiles(groups, confidence)
    return outer if passing else inner


def closed_form(target: Target, truth: Truth, rule: Rule, confidence: float, power: float) -> float:
    """Return N = ((z + z_power) se √N / |limit - number|)²: right for two groups whose rates are not rare."""
    gap = distance(target, truth, rule)
    if gap <= 0:
        return math.inf
    value = target.value(truth.rates)
    passing = rule.kept(value)
    exact = 0.0 if target.kind == "difference" else 1.0 if target.kind == "ratio" else None
    z_power = _NORMAL.inv_cdf((1 + power) / 2 if passing and value == exact else power)
    z = quantile(target, len(truth.names), confidence, passing=passing)
    return ((z + z_power) * unit_error(target, truth) / gap) ** 2


def search(
    power_at: Callable[[float], float],
    start: float,
    power: float,
    draws: int,
    rounds: Sequence[Sequence[float]] = (COARSE, FINE),
) -> PowerCurve | None:
    """Find the rows at which a power is reached; None where `MOST` rows are not enough."""
    wanted = _NORMAL.inv_cdf(power)
    if not start <= MOST:
        return None

    def probit(rows: float) -> float:
        return _NORMAL.inv_cdf(min(max(power_at(rows), 0.5 / draws), 1 - 0.5 / draws))

    rows = start
    for _ in range(40):
        here = probit(rows)
        if abs(here - wanted) < _ZONE:
            break
        factor = 1 + (wanted - here) / (4 + abs(here))
        rows *= min(max(factor, 0.5), 2.2)
        if rows > MOST:
            return None
    curve = None
    for factors in rounds:
        spots = rows * np.array(factors)
        seen = np.array([probit(spot) for spot in spots])
        near = np.abs(seen - wanted) < 2 * _ZONE
        if near.sum() < 2:
            return None
        slope, intercept = (float(part) for part in np.polyfit(np.sqrt(spots[near]), seen[near], 1))
        if slope <= 0:
            return None
        rows = max((wanted - intercept) / slope, 1.0) ** 2
        curve = PowerCurve(rows, intercept, slope)
    return curve
