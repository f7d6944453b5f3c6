"""Sums of ramps over sorted scores, and the exact point where they reach a value."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FLAT = 1e-12
"""Rates that are nearer to each other than this count as equal."""

_MOST_STEPS = 200
_MASKED_GROUPS = 16


@dataclass(frozen=True, slots=True)
class SortedScores:
    """The scores of one group in increasing order, with running totals of their weights."""

    scores: NDArray[np.float64]  # shape [n], increasing
    weights: NDArray[np.float64] | None = None  # shape [n], positive; None where every row counts 1
    running: NDArray[np.float64] | None = None  # shape [n + 1]: the weight of the first i rows; None where it is i

    @property
    def total(self) -> float:
        """The weight of all rows."""
        return float(len(self.scores) if self.running is None else self.running[-1])

    def ramp(self, threshold: float, gamma: float) -> tuple[float, float]:
        """Return Σ w clip((f - t)/γ, 0, 1) and the weight of the rows on the slope, t < f < t + γ."""
        first = int(np.searchsorted(self.scores, threshold, side="right"))
        last = max(first, int(np.searchsorted(self.scores, threshold + gamma, side="left")))
        piece = self.scores[first:last]
        if self.weights is None or self.running is None:
            sloped, above, moment = float(last - first), float(len(self.scores) - last), float(piece.sum())
        else:
            sloped = float(self.running[last] - self.running[first]) if last > first else 0.0
            above = float(self.running[-1] - self.running[last])
            moment = float(self.weights[first:last] @ piece)
        # rows above t + γ count 1, those on the slope (f - t) / γ
        return above + (moment - threshold * sloped) / gamma, sloped


def sort_groups(
    scores: NDArray[np.floating], codes: NDArray[np.integer], groups: int, weights: NDArray[np.floating] | None = None
) -> list[SortedScores]:
    """Split scores into groups and sort each: O(n log n) time, one copy of the scores."""
    if groups > _MASKED_GROUPS:
        order = np.argsort(codes.astype(np.int32), kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(groups + 1))
        places: list[NDArray[np.integer] | NDArray[np.bool_]] = [order[a:b] for a, b in itertools.pairwise(bounds)]
        return [_sorted(scores, place, weights) for place in places]
    return [_sorted(scores, codes == group, weights) for group in range(groups)]


def _sorted(
    scores: NDArray[np.floating], rows: NDArray[np.integer] | NDArray[np.bool_], weights: NDArray[np.floating] | None
) -> SortedScores:
    values = scores[rows].astype(np.float64, copy=False)
    if weights is None:
        values.sort()
        return SortedScores(values)
    heavy = weights[rows].astype(np.float64, copy=False)
    order = np.argsort(values, kind="stable")
    order = order[heavy[order] > 0]
    heavy = heavy[order]
    return SortedScores(values[order], heavy, np.concatenate(([0.0], np.cumsum(heavy))))


@dataclass(frozen=True, slots=True)
class Term:
    """A part c · Σ w clip((f - s·t)/γ, 0, 1) of a sum that does not increase in t: c and s have one sign."""

    scores: SortedScores
    coefficient: float = 1.0
    scale: float = 1.0


def evaluate(terms: Sequence[Term], threshold: float, gamma: float) -> tuple[float, float]:
    """Return the sum of the terms at t and its derivative there, which is at most 0."""
    value = slope = 0.0
    for term in terms:
        part, sloped = term.scores.ramp(term.scale * threshold, gamma)
        value += term.coefficient * part
        slope -= term.coefficient * term.scale * sloped / gamma
    return value, slope


def crossing(terms: Sequence[Term], gamma: float, target: float, bounds: tuple[float, float], *, start: float) -> float:
    """Return the t within the bounds where the sum of the terms is `target`, or the nearer bound.

    The sum is continuous, piecewise linear and does not increase. Newton's step from a point on the right piece
    ends on the root exactly; a bracket keeps the steps from other pieces in bounds, and where a step leaves it
    or the slope is 0 the bracket is halved. The search begins at `start`.
    """
    low, high = bounds
    threshold = start
    for _ in range(_MOST_STEPS):
        value, slope = evaluate(terms, threshold, gamma)
        if value == target:
            return threshold
        if value > target:
            low = threshold
        else:
            high = threshold
        step = threshold - (value - target) / slope if slope < 0 else math.nan
        following = step if low < step < high else 0.5 * (low + high)
        if not low < following < high or following == threshold:
            return following
        threshold = following
    return threshold


def middle_crossing(terms: Sequence[Term], gamma: float, mean: float, bounds: tuple[float, float]) -> float:
    """Return the t where the sum of the terms is `mean` per row, and the middle where a whole stretch has it.

    The ends of the stretch are where the mean is `FLAT` above and below; off a flat stretch these two lie
    on one line, or next to a kink, and their middle is the root to that accuracy.
    """
    total = sum(term.scores.total for term in terms)
    first = min(max(0.0, bounds[0]), bounds[1])
    left = crossing(terms, gamma, (mean + FLAT) * total, bounds, start=first)
    right = crossing(terms, gamma, (mean - FLAT) * total, (left, bounds[1]), start=left)
    return 0.5 * (left + right)
