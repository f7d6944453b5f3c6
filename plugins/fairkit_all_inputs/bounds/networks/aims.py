"""The three objectives of two outputs f and g, each below a · f - b · g + c for weights that a bound may choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fairkit_all_inputs.bounds.problem import CHANCE, FLIP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Aim:
    """An objective: f - g; min(f - t, t' - g); or the difference of the logistic functions of f and g."""

    kind: int  # which
    thresholds: tuple[Floats | float, Floats | float]  # the numbers t and t'
    ends: tuple[Floats, Floats, Floats, Floats] | None = None

    @property
    def _finite(self) -> bool:
        return bool(np.isfinite(self.thresholds[0]).all() and np.isfinite(self.thresholds[1]).all())

    def first(self, count: int) -> tuple[Floats, Floats]:
        """Return weights to begin with."""
        start = {FLIP: 0.5, CHANCE: 0.25}.get(self.kind, 1.0)
        return np.full(count, start), np.full(count, start)

    def next(self, rates: tuple[Floats, Floats], f: Floats, g: Floats, step: int) -> tuple[Floats, Floats]:
        """Return weights for outputs f and g that an input has at which the bound is reached."""
        share = 2.0 / (step + 3.0)
        if self.kind == FLIP and self._finite:
            # Frank-Wolfe over a in [0, 1]: min(f - t, u - g) <= a (f - t) + (1 - a) (u - g)
            first = (1.0 - share) * rates[0] + share * (f - self.thresholds[0] < self.thresholds[1] - g)
            return np.asarray(first), np.asarray(1.0 - first)
        if self.kind == CHANCE:
            # σ'(x) = (1 - tanh²(x / 2)) / 4
            steep = [0.25 * (1.0 - np.tanh(0.5 * x) ** 2) for x in (f, g)]
            first, second = ((1.0 - share) * rate + share * s for rate, s in zip(rates, steep, strict=True))
            return np.asarray(first), np.asarray(second)
        return rates

    def added(self, rates: tuple[Floats, Floats]) -> Floats:
        """Return the constant c of weights, shape [B]."""
        if self.kind == FLIP and self._finite:
            return np.asarray(rates[1] * self.thresholds[1] - rates[0] * self.thresholds[0])
        if self.kind == CHANCE:
            assert self.ends is not None  # noqa: S101 -- made with them
            low_f, high_f, low_g, high_g = self.ends
            return _above(rates[0], low_f, high_f) + _above(rates[1], -high_g, -low_g) - 1.0
        return np.zeros(len(rates[0]))


def logistic(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-x))."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))


def chance(first: Floats, least: Floats, most: Floats, gap: Floats) -> Floats:
    """Bound the difference of two logistic functions, of sums f <= first, least <= g <= most, f - g <= gap.

    As a function of g it is best at one of its ends, where g + gap is `first`, or where g and g + gap are opposite.
    """
    most = np.maximum(least, most)
    some = (least, most, np.clip(first - gap, least, most), np.clip(-gap / 2.0, least, most))
    found = [logistic(np.minimum(first, g + gap)) - logistic(g) for g in some]
    return np.asarray(np.maximum.reduce(found))


def objective(kind: int, first: Floats, second: Floats, thresholds: tuple[Floats | float, Floats | float]) -> Floats:
    """Return an objective of known sums."""
    if kind == FLIP:
        return np.minimum(first - thresholds[0], thresholds[1] - second)
    if kind == CHANCE:
        return logistic(first) - logistic(second)
    return first - second


def weights_of(
    kind: int, first: Floats, second: Floats, thresholds: tuple[Floats | float, Floats | float]
) -> tuple[Floats, Floats]:
    """Return by how much an objective rises with the first sum, and falls with the second, shape [n] each."""
    if kind == FLIP:  # the lesser of two rises; both where they are close
        apart = (first - thresholds[0]) - (thresholds[1] - second)
        share = 1.0 - logistic(8.0 * apart)
        return share, 1.0 - share
    if kind == CHANCE:
        one, other = (0.25 * (1.0 - np.tanh(0.5 * x) ** 2) + 1e-3 for x in (first, second))
        return one, other
    return np.ones(len(first)), np.ones(len(second))


def _above(rate: Floats, low: Floats, high: Floats) -> Floats:
    """Return the largest logistic(x) - rate · x between two ends: at one of them, or where the slope is the rate.

    Of the second output it is taken at x = -g, where -logistic(g) + rate · g is logistic(x) - rate · x - 1.
    """
    # σ' = σ (1 - σ) = rate on the concave side at σ = (1 + √(1 - 4 rate)) / 2
    share = 0.5 * (1.0 + np.sqrt(np.maximum(1.0 - 4.0 * rate, 0.0)))
    flat = np.log(share / np.maximum(1.0 - share, 1e-300))
    some = (low, high, np.clip(flat, low, high))
    return np.asarray(np.maximum.reduce([logistic(x) - rate * x for x in some]))
