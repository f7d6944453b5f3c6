"""The loops of distance: whether a box holds anything within a squared distance of somebody, and its nearest point.

See `fairkit_all_inputs.bounds.arrays.Distance`; joint ones are in `fairkit_all_inputs.bounds.hulls`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.hulls import holds, hull_far, inside, nearest, opened


@numba.njit(cache=True, nogil=True)
def cheapest(box: Any, grid: Any, added: Any) -> Any:
    """Return the least distance of a box's points where it is a sum over blocks."""
    slots, widths, sizes, offset = grid.slots, grid.widths, grid.sizes, grid.offset
    total = 0.0
    for b in range(len(widths)):
        at, first = slots[b], offset[b]
        least = np.inf
        if widths[b] == 0:
            for c in range(box[at], box[at + 1] + 1):
                least = min(least, added[first + c])
        else:
            for c in range(sizes[b]):
                if box[at + c // 63] >> (c % 63) & 1:
                    least = min(least, added[first + c])
        total += least
    return total


@numba.njit(cache=True, nogil=True)
def far(box: Any, grid: Any, distance: Any) -> Any:
    """Tell whether it is proved that no point of a box is within the distance."""
    if distance.near == np.inf:
        return False
    if distance.joint == 0:
        return cheapest(box, grid, distance.added) > distance.near
    return hull_far(opened(box, grid, distance), distance.low, distance.high, distance)


@numba.njit(cache=True, nogil=True)
def settle(box: Any, grid: Any, distance: Any) -> Any:  # noqa: PLR0912 -- one compiled loop
    """Reduce a box to one of its points, the nearest that is found; tell whether it is within the distance.

    Where distance does not matter, a point in the middle.
    """
    slots, widths, sizes, offset = grid.slots, grid.widths, grid.sizes, grid.offset
    joint = distance.joint == 1
    taken, moved = np.empty(len(widths), np.int64), np.empty(len(widths))
    if joint:
        on, within = opened(box, grid, distance), distance.limits[1]
        if nearest(on, distance.low, distance.high, distance, taken, moved) > within:
            return False
    if not joint and distance.near < np.inf and cheapest(box, grid, distance.added) > distance.near:
        return False
    for b in range(len(widths)):
        at, first = slots[b], offset[b]
        chosen, least = -1, np.inf
        if joint and taken[b] >= 0:
            chosen = distance.cell[taken[b]]
        elif widths[b] == 0:
            if distance.near == np.inf or joint:
                chosen = (box[at] + box[at + 1]) // 2
            else:
                for c in range(box[at], box[at + 1] + 1):
                    if distance.added[first + c] < least:
                        chosen, least = c, distance.added[first + c]
        else:
            for c in range(sizes[b]):
                if box[at + c // 63] >> (c % 63) & 1 and (chosen < 0 or distance.added[first + c] < least):
                    chosen, least = c, distance.added[first + c]
        if widths[b] == 0:
            box[at], box[at + 1] = chosen, chosen
        else:
            for w in range(widths[b]):
                box[at + w] = 0
            box[at + chosen // 63] = np.int64(1) << (chosen % 63)
    return True


@numba.njit(cache=True, nogil=True)
def separate(box: Any, grid: Any, distance: Any, masks: Any) -> Any:
    """Choose a split of a box in which no tree changes, but distance does: the block whose cells are furthest apart."""
    joint, start, cell, best = distance.joint, distance.start, distance.cell, distance.best
    chosen, widest, key = -1, -1.0, 0
    if joint == 0:
        return chosen, key
    for b in range(len(grid.widths)):
        first = last = -1
        least, most = np.inf, -np.inf
        for q in range(start[b], start[b + 1]):
            if inside(box, b, cell[q], grid):
                first = cell[q] if first < 0 else min(first, cell[q])
                last = max(last, cell[q])
                least, most = min(least, best[q, 0]), max(most, best[q, 0])
        if first >= 0 and last > first and most - least > widest:
            chosen, widest, key = b, most - least, (first + last + 1) // 2
    if chosen >= 0 and grid.widths[chosen] > 0:
        at, middle = grid.slots[chosen], key
        for w in range(grid.widths[chosen]):
            masks[0, w] = 0
        for c in range(middle):
            masks[0, c // 63] |= box[at + c // 63] & (np.int64(1) << (c % 63))
        key = 0
    return chosen, key


@numba.njit(cache=True, nogil=True)
def point_near(box: Any, grid: Any, distance: Any) -> Any:
    """Tell whether a box of one point is near: 1, or -1 where it is proved not to be, or 0."""
    if distance.joint == 0:
        return 0
    blocks = len(grid.widths)
    taken, moved = np.empty(blocks, np.int64), np.empty(blocks)
    return holds(opened(box, grid, distance), distance.low, distance.high, distance, taken, moved)
