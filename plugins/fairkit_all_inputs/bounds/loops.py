"""The search over boxes: for the largest difference of two sums or of their probabilities, and for flips."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.climbing import improve
from fairkit_all_inputs.bounds.kernels import any_split, choose_split, cut_down, dive, loudest, part, pop, push
from fairkit_all_inputs.bounds.objectives import box_bound, value_at
from fairkit_all_inputs.bounds.problem import CHANCE, FIRST, FLIP, GAP, LEAST, LESS, SCORE
from fairkit_all_inputs.bounds.reaching import far, point_near, separate, settle

TURNS = np.int64(3)
"""Rounds over the blocks of a climb; typed, as all integers that the loops pass on: a literal is compiled anew."""
LOUD = 4.0
"""A tree whose leaves lie apart by so many times the largest difference of the two sums is decided first."""


@numba.njit(cache=True, nogil=True)
def first_split(objective: Any, sums: Any, box: Any, root: Any, grid: Any, scratch: Any) -> Any:
    """Return the split that lowers a sum's bound most, as `choose_split`, and the sum: the difference, mostly.

    Of the least of several sums the one is split that is nearest to closing the box: of whose bound in the first box
    the smallest part is left in this one.
    """
    last = len(scratch.ends) - 1
    if objective.kind != LEAST:
        chosen, key = choose_split(part(sums, last), box, grid, scratch)
        return chosen, key, last
    ratio = np.empty(last + 1)
    for g in range(last + 1):
        ratio[g] = scratch.ends[g] / max(root[g], 1e-300)
    for g in np.argsort(ratio):
        if sums.group[g] == sums.group[g + 1]:
            continue
        chosen, key = choose_split(part(sums, g), box, grid, scratch)
        if chosen >= 0:
            return chosen, key, g
    return -1, 0, -1


@numba.njit(cache=True, nogil=True)
def next_split(
    objective: Any, sums: Any, box: Any, root: Any, chosen: Any, key: Any, step: Any, grid: Any, scratch: Any
) -> Any:
    """Return where to split in place of a split of the difference, where one of the two sums is nearer to a bound."""
    kind, threshold, ends = objective.kind, objective.threshold, scratch.ends
    gap = len(ends) - 1
    # the part of the root's margin that is left: the sum with less of it is nearer to closing the box
    nearer = (ends[FIRST] - threshold) / max(root[FIRST] - threshold, 1e-300)
    farther = (threshold + ends[LESS]) / max(threshold + root[LESS], 1e-300)
    own = ends[GAP] / max(root[GAP], 1e-300)
    if chosen < 0 or (kind == FLIP and min(nearer, farther) < own) or (kind == CHANCE and step % 2):
        alternative, its = -1, 0
        for turn in range(2):
            g = turn if nearer <= farther else 1 - turn  # `FIRST` or `LESS`
            alternative, its = choose_split(part(sums, g), box, grid, scratch)
            if alternative >= 0:
                break
        if alternative >= 0:
            chosen, key = alternative, its
        elif chosen >= 0:
            chosen, key = choose_split(part(sums, gap), box, grid, scratch)
    if kind == FLIP:
        alternative, its = loudest(part(sums, gap - GAP), LOUD * ends[GAP], box, grid, scratch)
        if alternative >= 0:
            chosen, key = alternative, its
    return chosen, key


@numba.njit(cache=True, nogil=True)
def search(  # noqa: PLR0912, PLR0915 -- one compiled loop
    objective: Any,
    sums: Any,
    whole: Any,
    grid: Any,
    scratch: Any,
    distance: Any,
    boxes: Any,
    waiting: Any,
    best: Any,
    steps: Any,
    slack: Any,
    enough: Any,
) -> None:
    """Take boxes by their bound, split them, and keep the best point that was seen, for so many steps."""
    kind, ends, bounds, split, heap = objective.kind, scratch.ends, boxes.bounds, boxes.split, waiting.heap
    box_bound(objective, sums, whole, boxes.cells[heap[0]], grid, scratch)
    root, point = ends.copy(), np.empty(boxes.cells.shape[1], np.int64)
    count, open_ = waiting.state[0], waiting.state[1]
    for step in range(steps):
        if open_ == 0 or count + 2 > len(bounds) or best.value[0] > enough:
            break
        item, open_ = pop(heap, open_, bounds)
        # best first: no open box can hold more than the best value and the slack
        if bounds[item] <= best.value[0] + slack:
            open_ = push(heap, open_, bounds, item)
            break
        box = boxes.cells[item]
        if kind != SCORE:
            box_bound(objective, sums, whole, box, grid, scratch)
        chosen, key, g = first_split(objective, sums, box, root, grid, scratch)
        point[:] = box
        # a lower bound: the best leaves one after the other, then a climb from there
        if g >= 0:
            trees = part(sums, g)
            dive(trees, np.argsort(scratch.order[: len(trees.roots)]), point, grid, scratch.stack)
        met = settle(point, grid, distance)
        if not met and kind == LEAST:
            point[:] = box
            met = settle(point, grid, distance)
        if kind in (FLIP, CHANCE):
            chosen, key = next_split(objective, sums, box, root, chosen, key, step, grid, scratch)
        if met:
            got = value_at(objective, whole, point, grid, scratch)
            if step < 8 or got > best.value[0]:
                got = improve(objective, whole, point, grid, scratch, distance, got, TURNS)
            if got > best.value[0]:
                best.value[0] = got
                best.box[:] = point
        if chosen < 0 and kind != LEAST:  # no cut lowers the bound: equal values are reached in several ways
            chosen, key = any_split(part(sums, len(ends) - 1), box, grid, scratch)
        if chosen < 0 and kind != SCORE:
            chosen, key = any_split(sums.trees, box, grid, scratch)
        if chosen < 0:
            # every tree has one leaf here: the point that was taken is as good as any
            bounds[item] = box_bound(objective, sums, whole, box, grid, scratch)
            if met:
                waiting.closed[0] = max(waiting.closed[0], bounds[item])
                continue
            point[:] = box  # every point is as good: a near one, in whichever of leaves with one value
            nearness = 1 if settle(point, grid, distance) else 0
            if nearness == 0:
                chosen, key = separate(box, grid, distance, scratch.masks)
            if nearness == 0 and chosen < 0:
                point[:] = box
                nearness = point_near(box, grid, distance)
            if nearness > 0 and bounds[item] > best.value[0]:
                best.value[0] = bounds[item]
                best.box[:] = point
            if chosen < 0 and nearness == 0:
                best.value[1] = max(best.value[1], bounds[item])
            if chosen < 0:
                continue
        split[item, 0], split[item, 1], split[item, 2] = chosen, key, count
        for w in range(grid.widths[chosen]):
            boxes.masks[item, w] = scratch.masks[key, w]
        for side in range(2):
            child = boxes.cells[count]
            child[:] = box
            cut_down(child, side, chosen, key, boxes.masks[item], grid)
            above = box_bound(objective, sums, whole, child, grid, scratch)
            # a box without a point within the distance holds no input in question
            if above > best.value[0] + slack and far(child, grid, distance):
                above = -np.inf
            # a child holds no more than its parent
            bounds[count] = min(above, bounds[item])
            split[count, 0] = -1
            if above > best.value[0] + slack:
                open_ = push(heap, open_, bounds, count)
            else:
                waiting.closed[0] = max(waiting.closed[0], bounds[count])
            count += 1
    waiting.state[0], waiting.state[1] = count, open_
