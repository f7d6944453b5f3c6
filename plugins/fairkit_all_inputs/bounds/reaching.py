"""The loops of distance: whether a box holds anything within a squared distance of somebody, and its nearest point.

`cost` is a tuple. With 0 in its second place the first array has the distance that each cell adds; the rest is empty.
With 1 a distance weighs columns together (see `fairkit_all_inputs.bounds.hulls`).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.hulls import holds, hull_far, inside, nearest, opened


@numba.njit(cache=True, nogil=True)
def cheapest(box: Any, slots: Any, widths: Any, sizes: Any, offset: Any, added: Any) -> Any:
    """Return the least distance of a box's points where it is a sum over blocks."""
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
def far(box: Any, slots: Any, widths: Any, sizes: Any, offset: Any, cost: Any, near: Any) -> Any:
    """Tell whether it is proved that no point of a box is within the distance."""
    if near == np.inf:
        return False
    if cost[1] == 0:
        return cheapest(box, slots, widths, sizes, offset, cost[0]) > near
    return hull_far(opened(box, slots, widths, cost), cost[5], cost[6], cost, near)


@numba.njit(cache=True, nogil=True)
def settle(  # noqa: PLR0912 -- one compiled loop
    box: Any, slots: Any, widths: Any, sizes: Any, offset: Any, cost: Any, near: Any
) -> Any:
    """Reduce a box to one of its points, the nearest that is found; tell whether it is within the distance.

    Where distance does not matter, a point in the middle.
    """
    joint = cost[1] == 1
    taken, moved = np.empty(len(widths), np.int64), np.empty(len(widths))
    if joint:
        on, within = opened(box, slots, widths, cost), cost[11][1]
        if nearest(on, cost[5], cost[6], cost, within, taken, moved) > within:
            return False
    if not joint and near < np.inf and cheapest(box, slots, widths, sizes, offset, cost[0]) > near:
        return False
    for b in range(len(widths)):
        at, first = slots[b], offset[b]
        chosen, least = -1, np.inf
        if joint and taken[b] >= 0:
            chosen = cost[3][taken[b]]
        elif widths[b] == 0:
            if near == np.inf or joint:
                chosen = (box[at] + box[at + 1]) // 2
            else:
                for c in range(box[at], box[at + 1] + 1):
                    if cost[0][first + c] < least:
                        chosen, least = c, cost[0][first + c]
        else:
            for c in range(sizes[b]):
                if box[at + c // 63] >> (c % 63) & 1 and (chosen < 0 or cost[0][first + c] < least):
                    chosen, least = c, cost[0][first + c]
        if widths[b] == 0:
            box[at], box[at + 1] = chosen, chosen
        else:
            for w in range(widths[b]):
                box[at + w] = 0
            box[at + chosen // 63] = np.int64(1) << (chosen % 63)
    return True


@numba.njit(cache=True, nogil=True)
def separate(box: Any, slots: Any, widths: Any, cost: Any, masks: Any) -> Any:
    """Choose a split of a box in which no tree changes, but distance does: the block whose cells are furthest apart.

    Returns
    -------
    tuple
        The block (-1: one cell of each is left), and the cut or the row of `masks` that holds the mask.
    """
    joint, start, cell, best = cost[1], cost[2], cost[3], cost[7]
    chosen, widest, key = -1, -1.0, 0
    if joint == 0:
        return chosen, key
    for b in range(len(widths)):
        first = last = -1
        least, most = np.inf, -np.inf
        for q in range(start[b], start[b + 1]):
            if inside(box, b, cell[q], slots, widths):
                first = cell[q] if first < 0 else min(first, cell[q])
                last = max(last, cell[q])
                least, most = min(least, best[q, 0]), max(most, best[q, 0])
        if first >= 0 and last > first and most - least > widest:
            chosen, widest, key = b, most - least, (first + last + 1) // 2
    if chosen >= 0 and widths[chosen] > 0:
        at, middle = slots[chosen], key
        for w in range(widths[chosen]):
            masks[0, w] = 0
        for c in range(middle):
            masks[0, c // 63] |= box[at + c // 63] & (np.int64(1) << (c % 63))
        key = 0
    return chosen, key


@numba.njit(cache=True, nogil=True)
def point_near(box: Any, slots: Any, widths: Any, cost: Any, near: Any) -> Any:
    """Tell whether a box of one point is near: 1, or -1 where it is proved not to be, or 0."""
    if cost[1] == 0:
        return 0
    taken, moved = np.empty(len(widths), np.int64), np.empty(len(widths))
    return holds(opened(box, slots, widths, cost), cost[5], cost[6], cost, near, taken, moved)
