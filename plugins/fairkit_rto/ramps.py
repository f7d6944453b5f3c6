"""Sums of ramps over sorted scores, and the exact point where they reach a value."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

FLAT = 1e-12
"""Rates that are nearer to each other than this count as equal."""

_MOST_STEPS = 200
_MASKED_GROUPS = 16


@dataclass(frozen=True, slots=True)
class SortedScores:
    """The scores of one group in increasing order, with running totals of weights, and of weights times scores."""

    scores: Array  # shape [n], increasing
    running: Array  # shape [n + 1]: the weight of the first i rows
    moments: Array  # shape [n + 1]: Σ w f of the first i rows

    @property
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.running[-1])

    def ramp(self, thresholds: Array, gamma: float) -> tuple[Array, Array]:
        """Return Σ w clip((f - t)/γ, 0, 1) and the weight of the rows on the slope, t < f < t + γ, for every t."""
        first = np.searchsorted(self.scores, thresholds, side="right")
        last = np.maximum(first, np.searchsorted(self.scores, thresholds + gamma, side="left"))
        sloped = self.running[last] - self.running[first]
        # rows above t + γ count 1, those on the slope (f - t) / γ
        above, moment = self.running[-1] - self.running[last], self.moments[last] - self.moments[first]
        return above + (moment - thresholds * sloped) / gamma, sloped


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
        return SortedScores(values, np.arange(len(values) + 1.0), _running(values))
    heavy = weights[rows].astype(np.float64, copy=False)
    order = np.argsort(values, kind="stable")
    order = order[heavy[order] > 0]
    heavy, values = heavy[order], values[order]
    return SortedScores(values, _running(heavy), _running(heavy * values))


def _running(values: Array) -> Array:
    return np.concatenate(([0.0], np.cumsum(values)))


@dataclass(frozen=True, slots=True)
class Term:
    """A part c · Σ w clip((f - s·t)/γ, 0, 1) of a sum that does not increase in t: c and s have one sign."""

    scores: SortedScores
    coefficient: float = 1.0
    scale: float = 1.0


def evaluate(terms: Sequence[Term], thresholds: Array, gamma: float) -> tuple[Array, Array]:
    """Return the sum of the terms at every t and its derivatives there, which are at most 0."""
    value, slope = np.zeros_like(thresholds), np.zeros_like(thresholds)
    for term in terms:
        part, sloped = term.scores.ramp(term.scale * thresholds, gamma)
        value += term.coefficient * part
        slope -= term.coefficient * term.scale * sloped / gamma
    return value, slope


def crossing(terms: Sequence[Term], gamma: float, targets: Array, low: Array, high: Array, *, start: Array) -> Array:
    """Return for every target the t from `low` to `high` where the sum of the terms is it, or the nearer bound.

    The sum is continuous, piecewise linear and does not increase. Newton's step from a point on the right piece
    ends on the root exactly; a bracket keeps the steps from other pieces in bounds, and where a step leaves it
    or the slope is 0 the bracket is halved. The search begins at `start`.
    """
    found, low, high = start.copy(), low.copy(), high.copy()
    left = np.arange(len(targets))  # those that are still searched
    for _ in range(_MOST_STEPS):
        at = found[left]
        value, slope = evaluate(terms, at, gamma)
        above = value > targets[left]
        low[left[above]], high[left[~above]] = at[above], at[~above]
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(slope < 0, at - (value - targets[left]) / slope, np.nan)
        bottom, top = low[left], high[left]
        following = np.where((bottom < step) & (step < top), step, 0.5 * (bottom + top))
        exact = value == targets[left]
        found[left] = np.where(exact, at, following)
        left = left[~exact & (bottom < following) & (following < top) & (following != at)]
        if not len(left):
            break
    return found


def middle_crossing(terms: Sequence[Term], gamma: float, means: Array, bounds: tuple[float, float]) -> Array:
    """Return the t where the sum of the terms is the mean per row, and the middle where a whole stretch has it.

    The ends of the stretch are where the mean is `FLAT` above and below; off a flat stretch these two lie
    on one line, or next to a kink, and their middle is the root to that accuracy.
    """
    total = sum(term.scores.total for term in terms)
    lowest, highest = np.full_like(means, bounds[0]), np.full_like(means, bounds[1])
    first = np.clip(np.zeros_like(means), bounds[0], bounds[1])
    left = crossing(terms, gamma, (means + FLAT) * total, lowest, highest, start=first)
    right = crossing(terms, gamma, (means - FLAT) * total, left, highest, start=left)
    return 0.5 * (left + right)
