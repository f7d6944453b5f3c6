"""The search over boxes: for the largest difference of two sums, of their probabilities, and for a flip."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.climbing import improve, value_at
from fairkit_all_inputs.bounds.kernels import (
    DEEP,
    any_split,
    choose_split,
    cut_down,
    dive,
    loudest,
    pop,
    push,
)
from fairkit_all_inputs.bounds.objectives import CHANCE, FLIP, SCORE, box_bound
from fairkit_all_inputs.bounds.reaching import far, point_near, separate, settle

LOUD = 4.0
"""A tree whose leaves lie apart by so many times the largest difference of the two sums is decided first."""


@numba.njit(cache=True, nogil=True)
def search(  # noqa: PLR0912, PLR0915 -- one compiled loop
    kind: Any,
    first: Any,
    less: Any,
    more: Any,
    gap: Any,
    bases: Any,
    whole: Any,
    whole_bases: Any,
    layout: Any,
    threshold: Any,
    cost: Any,
    near: Any,
    boxes: Any,
    bounds: Any,
    split: Any,
    masks: Any,
    heap: Any,
    state: Any,
    closed: Any,
    best: Any,
    best_box: Any,
    steps: Any,
    slack: Any,
    enough: Any,
) -> None:
    """Take boxes by their bound, split them, and keep the best point that was seen, for so many steps.

    Parameters
    ----------
    kind
        `SCORE`, `FLIP` or `CHANCE`.
    first, less, more, gap, bases
        Trees of the first sum; of the second negated; of the second; of the difference (see `Forest.arrays`), merged or
        not, in a box that holds all that is open; and what is added to the first, the second, the third (negated
        second), the difference.
    whole, whole_bases
        The same over everything: of the first sum, the negated second, the difference, the second, and the difference
        negated.
    layout
        Place, words and cells of each block, and where its cells begin among all (one more than its cells apart).
    threshold
        For a flip.
    cost, near
        How distances add up (see `fairkit_all_inputs.bounds.reaching`), and how much is allowed; infinite: no limit.
    boxes, bounds, split, masks
        By number of a box: itself; its bound; the block, cut and first child of its split (-1: none); a split's mask.
    heap, state
        Open boxes; state: how many boxes there are, how many are open.
    closed
        The largest bound of a box that was closed.
    best, best_box
        The best objective so far, with the largest bound of a box that is neither near nor far; its point.
    steps, slack, enough
        How many boxes to split; boxes whose bound is at most `best + slack` are closed; a larger best ends it.
    """
    slots, widths, sizes, offset = layout
    stack = np.empty(DEEP, np.int64)
    drops = np.zeros((2, offset[-1] + 1))
    size = max(len(first[0]), len(gap[0]), len(less[0]))
    order = np.empty(size)
    widest = 1
    for b in range(len(widths)):
        widest = max(widest, widths[b])
    candidates = (
        np.empty(4 * size + 64, np.int64),
        np.empty(4 * size + 64),
        np.empty((4 * size + 64, widest), np.int64),
    )
    point = np.empty(boxes.shape[1], np.int64)
    ends, root = np.zeros(4), np.zeros(4)
    box_bound(kind, first, less, more, gap, bases, whole, boxes[heap[0]], layout, stack, threshold, root)
    count, open_ = state[0], state[1]
    for step in range(steps):
        if open_ == 0 or count + 2 > len(boxes) or best[0] > enough:
            break
        item, open_ = pop(heap, open_, bounds)
        # best first: no open box can hold more than the best value and the slack
        if bounds[item] <= best[0] + slack:
            open_ = push(heap, open_, bounds, item)
            break
        box = boxes[item]
        chosen, key = choose_split(gap, box, slots, widths, offset, stack, drops, order, candidates)
        point[:] = box
        # a lower bound: the best leaves one after the other, then a climb from there
        dive(gap, np.argsort(order[: len(gap[0])]), point, slots, widths, stack)
        met = settle(point, slots, widths, sizes, offset, cost, near)
        if met:
            got = value_at(kind, whole, whole_bases, point, layout, stack, threshold)
            if step < 8 or got > best[0]:
                got = improve(kind, whole, whole_bases, point, layout, stack, threshold, cost, near, got, 3)
            if got > best[0]:
                best[0] = got
                best_box[:] = point
        if kind != SCORE:
            box_bound(kind, first, less, more, gap, bases, whole, box, layout, stack, threshold, ends)
            alternative, its = -1, 0
            # the part of the root's margin that is left: the sum with less of it is nearer to closing the box
            nearer = (ends[0] - threshold) / max(root[0] - threshold, 1e-300)
            farther = (threshold - ends[1]) / max(threshold - root[1], 1e-300)
            own = ends[2] / max(root[2], 1e-300)
            if chosen < 0 or (kind == FLIP and min(nearer, farther) < own) or (kind == CHANCE and step % 2):
                forest = first if nearer <= farther else less
                alternative, its = choose_split(
                    forest, box, slots, widths, offset, stack, drops, order, candidates
                )
                if alternative < 0:
                    forest = less if nearer <= farther else first
                    alternative, its = choose_split(
                        forest, box, slots, widths, offset, stack, drops, order, candidates
                    )
                if alternative >= 0:
                    chosen, key = alternative, its
                elif chosen >= 0:
                    chosen, key = choose_split(
                        gap, box, slots, widths, offset, stack, drops, order, candidates
                    )
            if kind == FLIP:
                alternative, its = loudest(first, LOUD * ends[2], box, slots, widths, stack, candidates[2])
                if alternative >= 0:
                    chosen, key = alternative, its
        if chosen < 0:  # no cut lowers the bound: values that are equal are reached in several ways
            chosen, key = any_split(gap, box, slots, widths, stack, candidates[2])
            if chosen < 0 and kind != SCORE:
                chosen, key = any_split(first, box, slots, widths, stack, candidates[2])
            if chosen < 0 and kind != SCORE:
                chosen, key = any_split(less, box, slots, widths, stack, candidates[2])
        if chosen < 0:
            # every tree has one leaf here: the point that was taken is as good as any
            bounds[item] = box_bound(
                kind, first, less, more, gap, bases, whole, box, layout, stack, threshold, ends
            )
            if met:
                closed[0] = max(closed[0], bounds[item])
                continue
            point[:] = box  # every point is as good: a near one, in whichever of leaves with one value
            nearness = 1 if settle(point, slots, widths, sizes, offset, cost, near) else 0
            if nearness == 0:
                chosen, key = separate(box, slots, widths, cost, candidates[2])
            if nearness == 0 and chosen < 0:
                point[:] = box
                nearness = point_near(box, slots, widths, cost, near)
            if nearness > 0 and bounds[item] > best[0]:
                best[0] = bounds[item]
                best_box[:] = point
            if chosen < 0 and nearness == 0:
                best[1] = max(best[1], bounds[item])
            if chosen < 0:
                continue
        split[item, 0], split[item, 1], split[item, 2] = chosen, key, count
        for w in range(widths[chosen]):
            masks[item, w] = candidates[2][key, w]
        for side in range(2):
            child = boxes[count]
            child[:] = box
            cut_down(child, side, chosen, key, masks[item], slots, widths)
            above = box_bound(
                kind, first, less, more, gap, bases, whole, child, layout, stack, threshold, ends
            )
            # a box without a point within the distance holds no input in question
            if above > best[0] + slack and far(child, slots, widths, sizes, offset, cost, near):
                above = -np.inf
            # a child holds no more than its parent
            bounds[count] = min(above, bounds[item])
            split[count, 0] = -1
            if above > best[0] + slack:
                open_ = push(heap, open_, bounds, count)
            else:
                closed[0] = max(closed[0], bounds[count])
            count += 1
    state[0], state[1] = count, open_
