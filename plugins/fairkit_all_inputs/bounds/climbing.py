"""Climbing: a point moves one block at a time to the cell with the best objective, all cells of it in one pass."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.arrays import DEEP
from fairkit_all_inputs.bounds.kernels import _sides, part
from fairkit_all_inputs.bounds.objectives import combined, value_at
from fairkit_all_inputs.bounds.problem import CHANCE, FIRST, FLIP, GAP, LEAST, LESS, MORE, SCORE
from fairkit_all_inputs.bounds.reaching import settle


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
    sums[: count + 1] = 0.0
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
    objective: Any, whole: Any, box: Any, grid: Any, scratch: Any, distance: Any, value: Any, rounds: Any
) -> Any:
    """Move one block of a point at a time to the cell with the best objective, until nothing is gained.

    `whole` has the trees of the objective's sums, over the whole domain.
    """
    slots, widths, sizes, kind, ends = grid.slots, grid.widths, grid.sizes, objective.kind, scratch.ends
    begin = GAP if kind == SCORE else 0
    end = GAP + 1 if kind == SCORE else (LESS + 1 if kind != LEAST else len(ends))
    profiles = np.empty((len(ends), sizes.max() + 1))
    worth = np.empty(sizes.max())
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
            for c in range(count):
                for g in range(begin, end):
                    ends[g] = whole.bases[g] + profiles[g, c]
                if kind in (FLIP, CHANCE):
                    # both sums of the point with block b at cell c
                    ends[MORE], ends[GAP] = -ends[LESS], ends[FIRST] + ends[LESS]
                worth[c] = combined(objective, ends)
            for _ in range(count):
                # the profile is exact up to rounding: cells by falling value, until one is near
                chosen = int(np.argmax(worth[:count]))
                if worth[chosen] <= value:
                    break
                worth[chosen] = -np.inf
                if widths[b] == 0:
                    box[at], box[at + 1] = chosen, chosen
                else:
                    box[at : at + size] = 0
                    box[at + chosen // 63] = np.int64(1) << (chosen % 63)
                if distance.near < np.inf and not settle(box, grid, distance):
                    continue
                exact = value_at(objective, whole, box, grid, scratch)
                if exact > value:
                    value = exact
                    saved[:] = box[at : at + size]
                break
            box[at : at + size] = saved
        if value <= before:
            break
    return value
