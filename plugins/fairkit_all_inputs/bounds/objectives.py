"""What is maximised, at a point and at most in a box."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.kernels import bound, most

SCORE, FLIP, CHANCE = 0, 1, 2
"""What is maximised (see `fairkit_all_inputs.bounds.problem`)."""


@numba.njit(cache=True, nogil=True)
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


@numba.njit(cache=True, nogil=True)
def combined(
    kind: Any, most_first: Any, least_second: Any, most_second: Any, gap: Any, threshold: Any
) -> Any:
    """Return the largest objective for f <= most_first, least_second <= g <= most_second, f - g <= gap."""
    if kind == SCORE:
        return gap
    if kind == FLIP:
        # min(f - t, t - g) <= ((f - t) + (t - g)) / 2 = (f - g) / 2
        return min(most_first - threshold, threshold - least_second, gap / 2.0)
    # σ(min(F, g + gap)) - σ(g) rises up to g = -gap / 2, and falls once g + gap is beyond F
    g = max(least_second, min(-gap / 2.0, most_second, most_first - gap))
    return sigmoid(min(most_first, g + gap)) - sigmoid(g)


@numba.njit(cache=True, nogil=True)
def objective(
    kind: Any, first: Any, less: Any, box: Any, layout: Any, stack: Any, threshold: Any, bases: Any
) -> Any:
    """Return the objective at a box of one point; `less` holds the second sum's trees, negated."""
    slots, widths = layout[0], layout[1]
    f = bases[0] + bound(first, box, slots, widths, stack)
    g = -(bases[1] + bound(less, box, slots, widths, stack))
    return combined(kind, f, g, g, f - g, threshold)


@numba.njit(cache=True, nogil=True)
def still(gap: Any, back: Any, box: Any, slots: Any, widths: Any, stack: Any) -> Any:
    """Tell whether both sums take the same leaves everywhere in a box: then they are rounded alike, too."""
    for t in range(len(gap[0])):
        best, _ = most(gap, gap[0][t], box, slots, widths, stack)
        least, _ = most(back, back[0][t], box, slots, widths, stack)
        # a difference of two trees that is 0 at most and 0 at least: both take leaves of one value
        if best != 0.0 or least != 0.0:
            return False
    return True


@numba.njit(cache=True, nogil=True)
def box_bound(
    kind: Any,
    first: Any,
    less: Any,
    more: Any,
    gap: Any,
    bases: Any,
    whole: Any,
    box: Any,
    layout: Any,
    stack: Any,
    threshold: Any,
    ends: Any,
) -> Any:
    """Return an upper bound of the objective in a box; `ends` takes the bounds that it is made of.

    The trees may be merged ones (see `fairkit_all_inputs.bounds.merging`); `whole` has every difference of two trees
    by itself.
    """
    slots, widths = layout[0], layout[1]
    ends[2] = bases[2] + bound(gap, box, slots, widths, stack)
    if (
        kind == FLIP
        and ends[2] <= 0.0
        and bases[4] == 0.0
        and still(whole[2], whole[4], box, slots, widths, stack)
    ):
        return -np.inf
    if kind != SCORE:
        ends[0] = bases[0] + bound(first, box, slots, widths, stack)
        ends[1] = -(bases[1] + bound(less, box, slots, widths, stack))
        ends[3] = ends[0]
        if kind == CHANCE:
            ends[3] = bases[3] + bound(more, box, slots, widths, stack)
    return combined(kind, ends[0], ends[1], ends[3], ends[2], threshold)
