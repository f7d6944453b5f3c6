"""Disparities from pooled pairs of groups: the largest difference, the smallest ratio, the smallest odds ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit.intervals import Spread, guarded, two_sided

if TYPE_CHECKING:
    from fairkit_group.stratified.pooled import Pair
    from fairkit_group.stratified.tables import Pooled


def quantiles(pairs: int, confidence: float) -> tuple[float, float]:
    """Return the factors for the inner end, joint over all pairs (Šidák), and for the outer end, of a pair alone."""
    inner = two_sided(guarded(confidence) ** (1 / max(pairs, 1)))
    return inner, inner if pairs == 1 else two_sided(confidence)


def joint_quantile(pairs: int, confidence: float) -> float:
    """Return the factor with which all pairs hold at once."""
    return quantiles(pairs, confidence)[0]


def largest_difference(pairs: Sequence[Pair], confidence: float) -> Spread:
    """Return the largest pooled |difference| of a pair, with the interval of `fairkit.intervals`."""
    if not pairs:
        return Spread(math.nan, math.nan, math.nan)
    inner, outer = quantiles(len(pairs), confidence)
    near = [pair.difference_limits(inner) for pair in pairs]
    far = [pair.difference_limits(outer) for pair in pairs]
    return Spread(
        max(abs(pair.difference) for pair in pairs),
        max(max(low, -high, 0.0) for low, high in near),
        max(max(high, -low) for low, high in far),
    )


def smallest_ratio(pairs: Sequence[Pair], confidence: float) -> Spread:
    """Return the smallest pooled ratio of a pair, in [0, 1]; NaN where a number is negative or all are 0."""
    usable = [pair for pair in pairs if pair.values.min() >= 0 and pair.values.max() > 0]
    if not usable or any(pair.values.min() < 0 for pair in pairs):
        return Spread(math.nan, math.nan, math.nan)
    inner, outer = quantiles(len(usable), confidence)
    return Spread(
        min(float(pair.values.min() / pair.values.max()) for pair in usable),
        max(min(float(pair.ratio_limits(outer)[0].min()) for pair in usable), 0.0),
        min(*(float(pair.ratio_limits(inner)[1].min()) for pair in usable), 1.0),
    )


@dataclass(frozen=True, slots=True)
class Odds:
    """A pooled odds ratio of two groups, with the factor that the freedom of its variance asks for."""

    groups: tuple[int, int]
    pooled: Pooled
    stretch: Callable[[float], float]

    @property
    def known(self) -> bool:
        """Whether it is a number above 0 with an error."""
        return math.isfinite(self.pooled.log_error) and 0 < self.pooled.value < math.inf

    def limits(self, z: float) -> tuple[float, float]:
        """Return its limits for a normal quantile."""
        return self.pooled.limits(self.stretch(z))


def smallest_odds(odds: Sequence[Odds], confidence: float) -> Spread:
    """Return the smallest odds ratio, of either order of a pair, in [0, 1]."""
    if not odds:
        return Spread(math.nan, math.nan, math.nan)
    inner, outer = quantiles(len(odds), confidence)
    near = [one.limits(inner) for one in odds]
    far = [one.limits(outer) for one in odds]
    return Spread(
        min(min(one.pooled.value, 1 / one.pooled.value) for one in odds),
        min(min(low, 1 / high) for low, high in far),
        min(1.0, *(min(high, 1 / low) for low, high in near)),
    )


def worst_of(values: Sequence[float]) -> int:
    """Return the place of the largest absolute value; 0 where there is none."""
    return int(np.argmax(np.abs(np.nan_to_num(np.asarray(values))))) if len(values) else 0
