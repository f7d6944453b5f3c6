"""The search over boxes: what is maximised at a point and at most in a box, climbing, and the loop that splits."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.forest import DEEP
from fairkit_all_inputs.bounds.kernels import (
    _sides,
    any_split,
    bound,
    choose_split,
    cut_down,
    dive,
    in_order,
    loudest,
    most,
    part,
    pop,
    push,
    put,
    settle,
)
from fairkit_all_inputs.bounds.problem import CHANCE, FIRST, FLIP, GAP, LESS, MORE, SCORE

TURNS = np.int64(3)
"""Rounds over the blocks of a climb; typed, as all integers that the loops pass on: a literal is compiled anew."""
LOUD = 4.0
"""A tree whose leaves lie apart by so many times the largest difference of the two sums is decided first."""


@numba.njit(cache=True, nogil=True)
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


@numba.njit(cache=True, nogil=True)
def combined(objective: Any, ends: Any) -> Any:
    """Return the largest objective for sums up to `ends`: f <= F, -g <= L, g <= M, f - g <= gap."""
    kind, threshold = objective.kind, objective.threshold
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
    if kind == FLIP and ends[last] <= 0.0 and still(whole, box, grid, stack):
        return -np.inf
    if kind != SCORE:
        for g in range(last):
            if g != MORE or kind != FLIP:
                ends[g] = bound(sums, g, box, grid, stack)
    return combined(objective, ends)


@numba.njit(cache=True, nogil=True)
def profile(  # noqa: PLR0912 -- one pass over the trees, in one compiled loop
    forest: Any, b: Any, box: Any, grid: Any, stack: Any, sums: Any, count: Any
) -> None:
    """Write the sum of the trees at each cell of block `b`, of which a box of one point elsewhere holds all."""
    block, cut, yes, no, value, masks = (
        forest.block, forest.cut, forest.yes, forest.no, forest.value, forest.masks,
    )  # fmt: skip
    slots, widths = grid.slots, grid.widths
    at = slots[b]
    flat = widths[b] == 0
    for c in range(count + 1):
        sums[c] = 0.0
    left, right = np.empty(DEEP, np.int64), np.empty(DEEP, np.int64)
    for root in forest.roots:
        # `left`, `right`: which cells of block b come here, an interval or the place of a mask
        stack[0], left[0], right[0] = root, -1 if not flat else box[at], box[at + 1] if flat else 0
        top = 1
        while top:
            top -= 1
            node, low, high = stack[top], left[top], right[top]
            if block[node] < 0:
                if flat:  # differences, added up below
                    sums[low] += value[node]
                    sums[high + 1] -= value[node]
                elif low < 0:
                    for c in range(count):
                        sums[c] += value[node]
                else:  # `low` is the mask that led here: the last test of the block on the path is the narrowest
                    for c in range(count):
                        if masks[low + c // 63] >> (c % 63) & 1:
                            sums[c] += value[node]
                continue
            mine = block[node] == b
            if mine and flat:
                c = cut[node]
                if low < c:
                    stack[top], left[top], right[top] = yes[node], low, min(high, c - 1)
                    top += 1
                if high >= c:
                    stack[top], left[top], right[top] = no[node], max(low, c), high
                    top += 1
            elif mine:
                stack[top], left[top] = yes[node], cut[node]
                stack[top + 1], left[top + 1] = no[node], cut[node] + widths[b]
                top += 2
            else:
                sides = _sides(node, box, block, cut, masks, slots, widths)
                stack[top] = yes[node] if sides == 1 else no[node]
                left[top], right[top] = low, high
                top += 1
    if flat:
        for c in range(1, count):
            sums[c] += sums[c - 1]


@numba.njit(cache=True, nogil=True)
def improve(  # noqa: PLR0912 -- one compiled loop
    objective: Any, whole: Any, box: Any, grid: Any, scratch: Any, value: Any, rounds: Any
) -> Any:
    """Move one block of a point at a time to the cell with the best objective, until nothing is gained.

    `whole` has the trees of the objective's sums, over the whole domain.
    """
    slots, widths, sizes, kind, ends = grid.slots, grid.widths, grid.sizes, objective.kind, scratch.ends
    begin = GAP if kind == SCORE else 0
    end = GAP + 1 if kind == SCORE else LESS + 1
    most_cells = 0
    for b in range(len(sizes)):
        most_cells = max(most_cells, sizes[b])
    profiles = np.empty((len(ends), most_cells + 1))
    for _ in range(rounds):
        before = value
        for b in range(len(widths)):
            if sizes[b] == 1:
                continue
            at, count = slots[b], sizes[b]
            size = 2 if widths[b] == 0 else widths[b]
            saved = box[at : at + size].copy()
            if widths[b] == 0:
                box[at], box[at + 1] = 0, count - 1
            for g in range(begin, end):
                profile(part(whole, g), b, box, grid, scratch.stack, profiles[g], count)
            chosen, largest = 0, -np.inf
            for c in range(count):
                for g in range(begin, end):
                    ends[g] = whole.bases[g] + profiles[g, c]
                if kind in (FLIP, CHANCE):
                    # both sums of the point with block b at cell c
                    ends[MORE], ends[GAP] = -ends[LESS], ends[FIRST] + ends[LESS]
                worth = combined(objective, ends)
                if worth > largest:
                    chosen, largest = c, worth
            # the profile is exact up to rounding
            if largest > value:
                if widths[b] == 0:
                    box[at], box[at + 1] = chosen, chosen
                else:
                    for w in range(size):
                        box[at + w] = 0
                    box[at + chosen // 63] = np.int64(1) << (chosen % 63)
                exact = value_at(objective, whole, box, grid, scratch)
                if exact > value:
                    value = exact
                    put(box[at : at + size], saved)
            put(saved, box[at : at + size])
        if value <= before:
            break
    return value


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
    gap_share = ends[GAP] / max(root[GAP], 1e-300)
    if chosen < 0 or (kind == FLIP and min(nearer, farther) < gap_share) or (kind == CHANCE and step % 2):
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
def search(  # noqa: PLR0912 -- one compiled loop
    objective: Any,
    sums: Any,
    whole: Any,
    grid: Any,
    scratch: Any,
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
        # the sum that is split by is the difference, mostly
        trees = part(sums, len(ends) - 1)
        chosen, key = choose_split(trees, box, grid, scratch)
        put(box, point)
        # a lower bound: the best leaves one after the other, then a climb from there
        dive(trees, in_order(scratch.order, len(trees.roots)), point, grid, scratch.stack)
        settle(point, grid)
        if kind in (FLIP, CHANCE):
            chosen, key = next_split(objective, sums, box, root, chosen, key, step, grid, scratch)
        got = value_at(objective, whole, point, grid, scratch)
        if step < 8 or got > best.value[0]:
            got = improve(objective, whole, point, grid, scratch, got, TURNS)
        if got > best.value[0]:
            best.value[0] = got
            put(point, best.box)
        if chosen < 0:  # no cut lowers the bound: equal values are reached in several ways
            chosen, key = any_split(part(sums, len(ends) - 1), box, grid, scratch)
        if chosen < 0 and kind != SCORE:
            chosen, key = any_split(sums.trees, box, grid, scratch)
        if chosen < 0:
            # every tree has one leaf here: the point that was taken is as good as any
            bounds[item] = box_bound(objective, sums, whole, box, grid, scratch)
            waiting.closed[0] = max(waiting.closed[0], bounds[item])
            continue
        split[item, 0], split[item, 1], split[item, 2] = chosen, key, count
        for w in range(grid.widths[chosen]):
            boxes.masks[item, w] = scratch.masks[key, w]
        for side in range(2):
            child = boxes.cells[count]
            put(box, child)
            cut_down(child, side, chosen, key, boxes.masks[item], grid)
            above = box_bound(objective, sums, whole, child, grid, scratch)
            # a child holds no more than its parent
            bounds[count] = min(above, bounds[item])
            split[count, 0] = -1
            if above > best.value[0] + slack:
                open_ = push(heap, open_, bounds, count)
            else:
                waiting.closed[0] = max(waiting.closed[0], bounds[count])
            count += 1
    waiting.state[0], waiting.state[1] = count, open_
