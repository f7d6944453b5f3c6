"""The loops of a distance that weighs columns together: ‖Σ_b (p + t m_b)‖² for one choice of each block.

A `Distance` has by block its choices, each a cell, a vector p and an interval of the number t. `on` tells which choices
a box has, `low` and `high` how far their numbers go.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

SWEEPS = 25
"""Rounds over the blocks in a search for the nearest point."""
PARTS = 400
"""Into so many parts one point's whole numbers and values are split to find whether it is near."""


@numba.njit(cache=True, nogil=True)
def inside(box: Any, block: Any, cell: Any, grid: Any) -> Any:
    """Tell whether a cell of a block is in a box."""
    at = grid.slots[block]
    if grid.widths[block] == 0:
        return box[at] <= cell <= box[at + 1]
    return (box[at + cell // 63] >> (cell % 63)) & 1 != 0


@numba.njit(cache=True, nogil=True)
def opened(box: Any, grid: Any, distance: Any) -> Any:
    """Tell which choices a box has, shape [choices]."""
    start, cell = distance.start, distance.cell
    on = np.zeros(len(cell), np.bool_)
    for b in range(len(grid.widths)):
        for q in range(start[b], start[b + 1]):
            on[q] = inside(box, b, cell[q], grid)
    return on


@numba.njit(cache=True, nogil=True)
def _begin(on: Any, low: Any, high: Any, distance: Any, at: Any, sum_: Any, taken: Any, moved: Any) -> Any:
    """Take each block's choice that is nearest on its own; tell whether every block has one."""
    start, vector, best, points, axes = (distance.start, distance.vector, distance.best, distance.points, distance.axes)
    for b in range(len(taken)):
        taken[b], moved[b], least = -1, 0.0, np.inf
        for q in range(start[b], start[b + 1]):
            # best[q]: the least ‖p + t m‖² of a choice by itself, and the t where it is reached
            if on[q] and best[q, 0] < least:
                taken[b], least = q, best[q, 0]
                moved[b] = min(max(best[q, 1], low[q]), high[q])
        if taken[b] < 0:
            if start[b] < start[b + 1]:
                return False
            continue
        for j in range(len(sum_)):
            at[b, j] = points[j, vector[taken[b]]] + moved[b] * axes[j, b]
            sum_[j] += at[b, j]
    return True


@numba.njit(cache=True, nogil=True)
def hull_far(  # noqa: PLR0912 -- one compiled loop
    on: Any, low: Any, high: Any, distance: Any
) -> Any:
    """Look for a half-space that parts the hull from the ball: ‖r‖ >= u·r for every u of the length 1.

    Frank-Wolfe steps, block by block, towards the hull's point nearest to zero; each round tries the direction of where
    it is.
    """
    start, vector, points, axes, limits = (
        distance.start,
        distance.vector,
        distance.points,
        distance.axes,
        distance.limits,
    )
    near, allowance, blocks, width = distance.near, limits[0], len(start) - 1, points.shape[0]
    at, sum_ = np.zeros((blocks, width)), np.zeros(width)
    along, turned = np.empty(points.shape[1]), np.empty(blocks)
    towards, moves = np.empty(blocks, np.int64), np.empty(blocks)
    if not _begin(on, low, high, distance, at, sum_, towards, moves):
        return True
    before = np.inf
    for _ in range(SWEEPS):
        size = 0.0
        for j in range(width):
            size += sum_[j] * sum_[j]
        # the hull meets the ball, or nothing is gained any more: nothing is proved
        if size <= near + allowance or size >= before * (1.0 - 1e-6):
            return False
        before = size
        along[:] = 0.0
        turned[:] = 0.0
        for j in range(width):
            for v in range(len(along)):
                along[v] += sum_[j] * points[j, v]
            for b in range(blocks):
                turned[b] += sum_[j] * axes[j, b]
        total = 0.0
        for b in range(blocks):
            least = np.inf
            for q in range(start[b], start[b + 1]):
                if on[q]:
                    # r·(p + t m) is linear in t: its least value is at an end
                    t = low[q] if turned[b] >= 0.0 else high[q]
                    value = along[vector[q]] + t * turned[b]
                    if value < least:
                        least, towards[b], moves[b] = value, q, t
            if start[b] < start[b + 1]:
                total += least
        # r·x >= total in the hull, hence ‖x‖² >= total² / ‖r‖² (Cauchy-Schwarz), with room for rounding
        if total > 0.0 and total * total > (near + allowance) * size * (1.0 + 1e-12):
            return True
        for b in range(blocks):
            if start[b] == start[b + 1]:
                continue
            slope = length = 0.0
            v, t = vector[towards[b]], moves[b]
            for j in range(width):
                step = points[j, v] + t * axes[j, b] - at[b, j]
                slope += sum_[j] * step
                length += step * step
            if slope >= 0.0 or length <= 0.0:
                continue
            # exact line search: ‖r + share · step‖² is least at share = -r·step / ‖step‖²
            share = min(1.0, -slope / length)
            for j in range(width):
                step = share * (points[j, v] + t * axes[j, b] - at[b, j])
                at[b, j] += step
                sum_[j] += step
    return False


@numba.njit(cache=True, nogil=True)
def nearest(  # noqa: PLR0912 -- one compiled loop
    on: Any, low: Any, high: Any, distance: Any, taken: Any, moved: Any
) -> Any:
    """Search a point that is near, one block after the other; return its squared distance.

    `taken` and `moved` take each block's choice (-1: none is told) and its number. First numbers move freely in their
    intervals, then by whole steps where they are whole.
    """
    start, vector, best, steps, points, axes, square = (
        distance.start, distance.vector, distance.best, distance.steps, distance.points, distance.axes, distance.square,
    )  # fmt: skip
    near, blocks, width = distance.limits[1], len(start) - 1, points.shape[0]
    at, sum_ = np.zeros((blocks, width)), np.zeros(width)
    if not _begin(on, low, high, distance, at, sum_, taken, moved):
        return np.inf
    size = 0.0
    for whole in range(2):
        for sweep in range(SWEEPS):
            before = size if sweep else np.inf
            size = 0.0
            for j in range(width):
                size += sum_[j] * sum_[j]
            if ((whole == 0 or sweep) and size <= near) or size >= before * (1.0 - 1e-7):
                break
            for b in range(blocks):
                if taken[b] < 0:
                    continue
                chosen, move, least, turned = -1, 0.0, np.inf, 0.0
                for j in range(width):
                    sum_[j] -= at[b, j]
                    turned += sum_[j] * axes[j, b]
                for q in range(start[b], start[b + 1]):
                    if not on[q]:
                        continue
                    v = vector[q]
                    along = inner = 0.0
                    for j in range(width):
                        along += (2.0 * sum_[j] + points[j, v]) * points[j, v]
                        inner += points[j, v] * axes[j, b]
                    t = low[q]
                    if high[q] > low[q]:
                        # coordinate descent: ‖s + p + t m‖² is least at t = -(s + p)·m / ‖m‖²
                        lowest = -(turned + inner) / square[b] if square[b] > 0.0 else best[q, 1]
                        t = min(max(lowest, low[q]), high[q])
                        if whole and steps[b] > 0.0:
                            t = min(low[q] + steps[b] * np.rint((t - low[q]) / steps[b]), high[q])
                    # ‖s + p + t m‖² - ‖s‖²
                    value = along + t * (2.0 * (turned + inner) + t * square[b])
                    if value < least:
                        chosen, move, least = q, t, value
                taken[b], moved[b] = chosen, move
                for j in range(width):
                    at[b, j] = points[j, vector[chosen]] + move * axes[j, b]
                    sum_[j] += at[b, j]
    size = 0.0
    for j in range(width):
        size += sum_[j] * sum_[j]
    return size


@numba.njit(cache=True, nogil=True)
def holds(  # noqa: PLR0912 -- one compiled loop
    on: Any, low: Any, high: Any, distance: Any, taken: Any, moved: Any
) -> Any:
    """Split whole numbers and values until it is known whether something is near."""
    start, steps, within = distance.start, distance.steps, distance.limits[1]
    ons, ends = [on.copy()], [np.stack((low, high))]
    unknown = 0
    for _ in range(PARTS):
        if not ons:
            return 0 if unknown else -1
        here, end = ons.pop(), ends.pop()
        # branch and bound: drop a part that is proved far, stop at a point that is near
        if hull_far(here, end[0], end[1], distance):
            continue
        if nearest(here, end[0], end[1], distance, taken, moved) <= within:
            return 1
        widest, block, choice = 0.0, -1, -1
        for b in range(len(start) - 1):
            count, last = 0, -1
            for q in range(start[b], start[b + 1]):
                if here[q]:
                    count, last = count + 1, q
            if count > 1:
                widest, block, choice = np.inf, b, -1
            elif count == 1 and steps[b] > 0.0 and end[1, last] - end[0, last] > max(widest, 0.5 * steps[b]):
                widest, block, choice = end[1, last] - end[0, last], b, last
        if block < 0:
            unknown += 1
            continue
        rest, its = here.copy(), end.copy()
        if choice >= 0:
            # cut between two whole numbers: none is on both sides
            below = np.floor((end[1, choice] - end[0, choice]) / (2.0 * steps[block]) + 1e-6) * steps[block]
            its[0, choice] = end[0, choice] + below + steps[block]
            end[1, choice] = end[0, choice] + below
        else:
            side = False
            for q in range(start[block], start[block + 1]):
                if here[q]:
                    here[q], rest[q] = side, not side
                    side = not side
        ons.append(rest)
        ends.append(its)
        ons.append(here)
        ends.append(end)
    return 0
