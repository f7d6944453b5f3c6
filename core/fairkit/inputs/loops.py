"""The search over boxes: for the largest difference of two sums, of their probabilities, and for a flip."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit.inputs.kernels import DEEP, bound, choose_split, dive, most, pop, push
from fairkit.inputs.reaching import far, point_near, separate, settle

SCORE, FLIP, CHANCE = 0, 1, 2
"""What is maximised (see `fairkit.inputs.problem`)."""


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
        return min(most_first - threshold, threshold - least_second, gap / 2.0)
    # σ(min(F, g + gap)) - σ(g) rises up to g = -gap / 2, and falls once g + gap is beyond F
    g = max(least_second, min(-gap / 2.0, most_second, most_first - gap))
    return sigmoid(min(most_first, g + gap)) - sigmoid(g)


@numba.njit(cache=True, nogil=True)
def objective(
    kind: Any, first: Any, less: Any, box: Any, layout: Any, stack: Any, threshold: Any, bases: Any
) -> Any:
    """Return the objective at a box of one point; `less` holds the second sum's trees, negated."""
    place, words = layout[0], layout[1]
    f = bases[0] + bound(first, box, place, words, stack)
    g = -(bases[1] + bound(less, box, place, words, stack))
    return combined(kind, f, g, g, f - g, threshold)


@numba.njit(cache=True, nogil=True)
def improve(
    kind: Any,
    first: Any,
    less: Any,
    gap: Any,
    box: Any,
    layout: Any,
    stack: Any,
    threshold: Any,
    bases: Any,
    cost: Any,
    near: Any,
    value: Any,
    rounds: Any,
) -> Any:
    """Move one block of a point at a time to the cell with the best objective, until nothing is gained."""
    place, words, sizes, offset = layout
    for _ in range(rounds):
        before = value
        for b in range(len(words)):
            at = place[b]
            size = 2 if words[b] == 0 else words[b]
            kept = box[at : at + size].copy()
            for c in range(sizes[b]):
                if words[b] == 0:
                    box[at], box[at + 1] = c, c
                else:
                    for w in range(size):
                        box[at + w] = 0
                    box[at + c // 63] = np.int64(1) << (c % 63)
                if kind == SCORE:
                    found = bases[2] + bound(gap, box, place, words, stack)
                else:
                    found = objective(kind, first, less, box, layout, stack, threshold, bases)
                if found > value and (near == np.inf or settle(box, place, words, sizes, offset, cost, near)):
                    value = found
                    kept[:] = box[at : at + size]
            box[at : at + size] = kept
        if value <= before:
            break
    return value


@numba.njit(cache=True, nogil=True)
def still(gap: Any, back: Any, box: Any, place: Any, words: Any, stack: Any) -> Any:
    """Tell whether both sums take the same leaves everywhere in a box: then they are rounded alike, too."""
    for t in range(len(gap[0])):
        best, _ = most(gap, gap[0][t], box, place, words, stack)
        least, _ = most(back, back[0][t], box, place, words, stack)
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
    back: Any,
    box: Any,
    layout: Any,
    stack: Any,
    threshold: Any,
    bases: Any,
    ends: Any,
) -> Any:
    """Return an upper bound of the objective in a box; `ends` takes the bounds that it is made of."""
    place, words = layout[0], layout[1]
    ends[2] = bases[2] + bound(gap, box, place, words, stack)
    if kind == FLIP and ends[2] <= 0.0 and bases[2] == 0.0 and still(gap, back, box, place, words, stack):
        return -np.inf
    if kind != SCORE:
        ends[0] = bases[0] + bound(first, box, place, words, stack)
        ends[1] = -(bases[1] + bound(less, box, place, words, stack))
        ends[3] = ends[0]
        if kind == CHANCE:
            ends[3] = -bases[1] + bound(more, box, place, words, stack)
    return combined(kind, ends[0], ends[1], ends[3], ends[2], threshold)


@numba.njit(cache=True, nogil=True)
def search(  # noqa: PLR0912, PLR0915 -- one compiled loop
    kind: Any,
    first: Any,
    less: Any,
    more: Any,
    gap: Any,
    back: Any,
    layout: Any,
    threshold: Any,
    bases: Any,
    cost: Any,
    near: Any,
    boxes: Any,
    bounds: Any,
    split: Any,
    masks: Any,
    heap: Any,
    state: Any,
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
    first, less, more, gap, back
        Trees of the first sum; of the second negated; of the second; of the difference, and that negated (see
        `Forest.arrays`).
    layout
        Place, words and cells of each block, and where its cells begin among all (one more than its cells apart).
    threshold, bases
        For a flip; what is added to the first, the negated second, and the difference.
    cost, near
        How distances add up (see `fairkit.inputs.reaching`), and how much is allowed; infinite: no limit.
    boxes, bounds, split, masks
        By number of a box: itself; its bound; the block, cut and first child of its split (-1: none); a split's mask.
    heap, state
        Open boxes; state: how many boxes there are, how many are open.
    best, best_box
        The best objective so far, with the largest bound of a box that is neither near nor far; its point.
    steps, slack, enough
        How many boxes to split; boxes whose bound is at most `best + slack` are closed; a larger best ends it.
    """
    place, words, sizes, offset = layout
    stack = np.empty(DEEP, np.int64)
    drops = np.zeros((2, offset[-1] + 1))
    size = max(len(first[0]), len(gap[0]), len(less[0]))
    order = np.empty(size)
    widest = 1
    for b in range(len(words)):
        widest = max(widest, words[b])
    found = (
        np.empty(4 * size + 64, np.int64),
        np.empty(4 * size + 64),
        np.empty((4 * size + 64, widest), np.int64),
    )
    point = np.empty(boxes.shape[1], np.int64)
    ends, root = np.zeros(4), np.zeros(4)
    box_bound(kind, first, less, more, gap, back, boxes[0], layout, stack, threshold, bases, root)
    count, open_ = state[0], state[1]
    for step in range(steps):
        if open_ == 0 or count + 2 > len(boxes) or best[0] > enough:
            break
        item, open_ = pop(heap, open_, bounds)
        if bounds[item] <= best[0] + slack:
            open_ = push(heap, open_, bounds, item)
            break
        box = boxes[item]
        chosen, key = choose_split(gap, box, place, words, offset, stack, drops, order, found)
        point[:] = box
        dive(gap, np.argsort(order[: len(gap[0])]), point, place, words, stack)
        met = settle(point, place, words, sizes, offset, cost, near)
        if met:
            got = (
                bases[2] + bound(gap, point, place, words, stack)
                if kind == SCORE
                else objective(kind, first, less, point, layout, stack, threshold, bases)
            )
            if kind != SCORE and (step < 8 or got > best[0]):
                got = improve(
                    kind, first, less, gap, point, layout, stack, threshold, bases, cost, near, got, 3
                )
            if got > best[0]:
                best[0] = got
                best_box[:] = point
        if kind != SCORE:
            box_bound(kind, first, less, more, gap, back, box, layout, stack, threshold, bases, ends)
            other, its = -1, 0
            nearer = (ends[0] - threshold) / max(root[0] - threshold, 1e-300)
            farther = (threshold - ends[1]) / max(threshold - root[1], 1e-300)
            own = ends[2] / max(root[2], 1e-300)
            if chosen < 0 or (kind == FLIP and min(nearer, farther) < own) or (kind == CHANCE and step % 2):
                forest = first if nearer <= farther else less
                other, its = choose_split(forest, box, place, words, offset, stack, drops, order, found)
                if other < 0:
                    forest = less if nearer <= farther else first
                    other, its = choose_split(forest, box, place, words, offset, stack, drops, order, found)
                if other >= 0:
                    chosen, key = other, its
                elif chosen >= 0:
                    chosen, key = choose_split(gap, box, place, words, offset, stack, drops, order, found)
        if chosen < 0:
            # every tree has one leaf here: the point that was taken is as good as any
            bounds[item] = box_bound(
                kind, first, less, more, gap, back, box, layout, stack, threshold, bases, ends
            )
            if met:
                continue
            point[:] = box  # every point is as good: a near one, in whichever of leaves with one value
            known = 1 if settle(point, place, words, sizes, offset, cost, near) else 0
            if known == 0:
                chosen, key = separate(box, place, words, cost, found[2])
            if known == 0 and chosen < 0:
                point[:] = box
                known = point_near(box, place, words, cost, near)
            if known > 0 and bounds[item] > best[0]:
                best[0] = bounds[item]
                best_box[:] = point
            if chosen < 0 and known == 0:
                best[1] = max(best[1], bounds[item])
            if chosen < 0:
                continue
        split[item, 0], split[item, 1], split[item, 2] = chosen, key, count
        at = place[chosen]
        for w in range(words[chosen]):
            masks[item, w] = found[2][key, w]
        for side in range(2):
            child = boxes[count]
            child[:] = box
            if words[chosen] == 0:
                if side == 0:
                    child[at + 1] = key - 1
                else:
                    child[at] = key
            else:
                for w in range(words[chosen]):
                    mask = masks[item, w]
                    child[at + w] &= mask if side == 0 else ~mask
            above = box_bound(
                kind, first, less, more, gap, back, child, layout, stack, threshold, bases, ends
            )
            if above > best[0] + slack and far(child, place, words, sizes, offset, cost, near):
                above = -np.inf
            bounds[count] = min(above, bounds[item])
            split[count, 0] = -1
            if above > best[0] + slack:
                open_ = push(heap, open_, bounds, count)
            count += 1
    state[0], state[1] = count, open_
