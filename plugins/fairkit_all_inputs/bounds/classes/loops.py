"""The search over boxes for a change of the predicted class: the largest value of the least of several sums."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.kernels import DEEP, any_split, choose_split, cut_down, dive, most, pop, push
from fairkit_all_inputs.bounds.objectives import still
from fairkit_all_inputs.bounds.reaching import far, point_near, separate, settle


@numba.njit(cache=True, nogil=True)
def part(forest: Any, group: Any, g: Any) -> Any:
    """Return the trees of one sum."""
    roots, block, cut, yes, no, parent, value, high, masks = forest
    return (roots[group[g] : group[g + 1]], block, cut, yes, no, parent, value, high, masks)


@numba.njit(cache=True, nogil=True)
def least_bound(
    forest: Any,
    group: Any,
    bases: Any,
    gap: Any,
    back: Any,
    box: Any,
    slots: Any,
    widths: Any,
    stack: Any,
    ends: Any,
) -> Any:
    """Return an upper bound of the least sum in a box; `ends` takes the bound of each, shape [G].

    Minus infinity where the two classes' sums are the same on both sides.
    """
    # a tree of the changing columns alone is a number in the bases, and no tree of the gap: the last is half of it
    if bases[-1] == 0.0 and still(gap, back, box, slots, widths, stack):
        return -np.inf
    least = np.inf
    for g in range(len(bases)):
        total = bases[g]
        for t in range(group[g], group[g + 1]):
            best, _ = most(forest, forest[0][t], box, slots, widths, stack)
            total += best
        ends[g] = total
        # max of a minimum <= minimum of the maxima
        least = min(least, total)
    return least


@numba.njit(cache=True, nogil=True)
def climb(
    forest: Any, group: Any, bases: Any, gap: Any, back: Any, box: Any, layout: Any, stack: Any, cost: Any, near: Any,
    value: Any, ends: Any, rounds: Any,
) -> Any:  # fmt: skip
    """Move one block of a point at a time to the cell with the best value, until nothing is gained."""
    slots, widths, sizes, offset = layout
    for _ in range(rounds):
        before = value
        for b in range(len(widths)):
            at = slots[b]
            size = 2 if widths[b] == 0 else widths[b]
            saved = box[at : at + size].copy()
            for c in range(sizes[b]):
                if widths[b] == 0:
                    box[at], box[at + 1] = c, c
                else:
                    for w in range(size):
                        box[at + w] = 0
                    box[at + c // 63] = np.int64(1) << (c % 63)
                got = least_bound(forest, group, bases, gap, back, box, slots, widths, stack, ends)
                if got > value and (near == np.inf or settle(box, slots, widths, sizes, offset, cost, near)):
                    value = got
                    saved[:] = box[at : at + size]
            box[at : at + size] = saved
        if value <= before:
            break
    return value


@numba.njit(cache=True, nogil=True)
def search_classes(  # noqa: PLR0912, PLR0915 -- one compiled loop
    forest: Any, group: Any, bases: Any, gap: Any, back: Any, layout: Any, cost: Any, near: Any, boxes: Any,
    bounds: Any, split: Any, masks: Any, heap: Any, state: Any, best: Any, best_box: Any, steps: Any, enough: Any,
) -> None:  # fmt: skip
    """Take boxes by their bound and split them, for so many steps (see `fairkit_all_inputs.bounds.loops.search`).

    Parameters
    ----------
    forest, group, bases
        Trees of all sums, where those of each begin, and what is added to each.
    gap, back
        Trees of the difference that the change makes to the two classes' margin, and that negated.
    """
    slots, widths, sizes, offset = layout
    stack, ends, root = np.empty(DEEP, np.int64), np.zeros(len(bases)), np.zeros(len(bases))
    drops = np.zeros((2, offset[-1] + 1))
    size = max(len(forest[0]), 1)
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
    least_bound(forest, group, bases, gap, back, boxes[0], slots, widths, stack, root)
    count, open_ = state[0], state[1]
    for step in range(steps):
        if open_ == 0 or count + 2 > len(boxes) or best[0] > enough:
            break
        item, open_ = pop(heap, open_, bounds)
        if bounds[item] <= best[0]:
            open_ = push(heap, open_, bounds, item)
            break
        box = boxes[item]
        least_bound(forest, group, bases, gap, back, box, slots, widths, stack, ends)
        ratio = np.empty(len(bases))
        for g in range(len(bases)):
            # the part of the root's bound that is left: split by the sum that is nearest to closing the box
            ratio[g] = ends[g] / max(root[g], 1e-300)
        chosen, key, met = -1, 0, False
        for g in np.argsort(ratio):
            trees = part(forest, group, g)
            if len(trees[0]) == 0:
                continue
            chosen, key = choose_split(trees, box, slots, widths, offset, stack, drops, order, candidates)
            if chosen >= 0:
                point[:] = box
                dive(trees, np.argsort(order[: len(trees[0])]), point, slots, widths, stack)
                met = settle(point, slots, widths, sizes, offset, cost, near)
                break
        if not met:
            point[:] = box
            met = settle(point, slots, widths, sizes, offset, cost, near)
        if chosen < 0:  # no cut lowers a bound: values that are equal are reached in several ways
            chosen, key = any_split(forest, box, slots, widths, stack, candidates[2])
        if not met and chosen < 0:
            chosen, key = separate(box, slots, widths, cost, candidates[2])
            if chosen < 0:
                point[:] = box
                known = point_near(box, slots, widths, cost, near)
                met = known > 0
                if known == 0:
                    best[1] = max(best[1], bounds[item])
        if met:
            got = least_bound(forest, group, bases, gap, back, point, slots, widths, stack, ends)
            if step < 8 or got > best[0]:
                got = climb(forest, group, bases, gap, back, point, layout, stack, cost, near, got, ends, 3)
            if got > best[0]:
                best[0] = got
                best_box[:] = point
        if chosen < 0:
            continue
        split[item, 0], split[item, 1], split[item, 2] = chosen, key, count
        for w in range(widths[chosen]):
            masks[item, w] = candidates[2][key, w]
        for side in range(2):
            child = boxes[count]
            child[:] = box
            cut_down(child, side, chosen, key, masks[item], slots, widths)
            above = least_bound(forest, group, bases, gap, back, child, slots, widths, stack, ends)
            if above > best[0] and far(child, slots, widths, sizes, offset, cost, near):
                above = -np.inf
            bounds[count] = min(above, bounds[item])
            split[count, 0] = -1
            if above > best[0]:
                open_ = push(heap, open_, bounds, count)
            count += 1
    state[0], state[1] = count, open_
