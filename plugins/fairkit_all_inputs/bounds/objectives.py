"""What is maximised, at a point and at most in a box."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.kernels import bound, most
from fairkit_all_inputs.bounds.problem import FIRST, FLIP, GAP, LEAST, LESS, MORE, SCORE


@numba.njit(cache=True, nogil=True)
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


@numba.njit(cache=True, nogil=True)
def combined(objective: Any, ends: Any) -> Any:
    """Return the largest objective for sums up to `ends`: f <= F, -g <= L, g <= M, f - g <= gap."""
    kind, threshold = objective.kind, objective.threshold
    if kind == LEAST:
        # max of a minimum <= minimum of the maxima
        return ends.min()
    gap = ends[GAP]
    if kind == SCORE:
        return gap
    most_first, least_second = ends[FIRST], -ends[LESS]
    if kind == FLIP:
        # min(f - t, t - g) <= ((f - t) + (t - g)) / 2 = (f - g) / 2
        return min(most_first - threshold, threshold - least_second, gap / 2.0)
    # σ(min(F, g + gap)) - σ(g) rises up to g = -gap / 2, and falls once g + gap is beyond F
    g = max(least_second, min(-gap / 2.0, ends[MORE], most_first - gap))
    return sigmoid(min(most_first, g + gap)) - sigmoid(g)


@numba.njit(cache=True, nogil=True)
def value_at(objective: Any, whole: Any, box: Any, grid: Any, scratch: Any) -> Any:
    """Return the objective at a box of one point."""
    ends, stack = scratch.ends, scratch.stack
    if objective.kind == LEAST:
        return box_bound(objective, whole, whole, box, grid, scratch)
    if objective.kind == SCORE:
        return bound(whole, len(ends) - 1, box, grid, stack)
    for g in range(LESS + 1):
        ends[g] = bound(whole, g, box, grid, stack)
    ends[MORE], ends[GAP] = -ends[LESS], ends[FIRST] + ends[LESS]
    return combined(objective, ends)


@numba.njit(cache=True, nogil=True)
def still(whole: Any, box: Any, grid: Any, stack: Any) -> Any:
    """Tell whether both sums take the same leaves everywhere in a box: then they are rounded alike, too."""
    if whole.bases[-1] != 0.0:
        return False
    last = len(whole.bases) - 1
    # the last two sums are the difference, and the difference negated
    for t in range(whole.group[last - 1], whole.group[last + 1]):
        best, _ = most(whole.trees, whole.trees.roots[t], box, grid, stack)
        # a difference of two trees that is 0 at most and 0 at least: both take leaves of one value
        if best != 0.0:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def box_bound(objective: Any, sums: Any, whole: Any, box: Any, grid: Any, scratch: Any) -> Any:
    """Return an upper bound of the objective in a box; `scratch.ends` takes the bounds that it is made of.

    The trees of `sums` may be merged ones (see `fairkit_all_inputs.bounds.merging`); `whole` has every difference of
    two trees by itself.
    """
    kind, ends, stack, last = objective.kind, scratch.ends, scratch.stack, len(scratch.ends) - 1
    ends[last] = bound(sums, last, box, grid, stack)
    if kind in (FLIP, LEAST) and ends[last] <= 0.0 and still(whole, box, grid, stack):
        return -np.inf
    if kind != SCORE:
        for g in range(last):
            if g != MORE or kind != FLIP:
                ends[g] = bound(sums, g, box, grid, stack)
    return combined(objective, ends)
