"""The loops: what trees can reach in a box, and where to split it (see `fairkit_all_inputs.bounds.forest`)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit_all_inputs.bounds.forest import ForestArrays


@numba.njit(cache=True, nogil=True)
def put(values: Any, into: Any) -> None:
    """Write values into an array, ``into[:] = values``: of a slice's assignment numba compiles ten times as much."""
    for i in range(len(values)):
        into[i] = values[i]


@numba.njit(cache=True, nogil=True)
def _sides(node: Any, box: Any, block: Any, cut: Any, masks: Any, slots: Any, widths: Any) -> Any:
    """Return 1 where the box reaches the side `yes` of a node, 2 where it reaches `no`, 3 where both.

    It takes arrays: an array that is taken out of a tuple in an inner loop is counted as referred to, each time.
    """
    b = block[node]
    at = slots[b]
    count = widths[b]
    if count == 0:
        c = cut[node]
        # an ordered block's test asks whether cell < c; the box holds the cells box[at] ... box[at + 1]
        if box[at + 1] < c:
            return 1
        return 2 if box[at] >= c else 3
    # a set: intersect the box with the cells of either side, 63 bits a word
    sides = 0
    first = cut[node]
    for w in range(count):
        mine = box[at + w]
        if mine & masks[first + w]:
            sides |= 1
        if mine & masks[first + count + w]:
            sides |= 2
        if sides == 3:
            break
    return sides


@numba.njit(cache=True, nogil=True)
def _walked(forest: Any) -> Any:
    """Return what a way down a tree reads: the arrays of tests, children, values, and masks."""
    return forest.block, forest.cut, forest.yes, forest.no, forest.value, forest.high, forest.masks


@numba.njit(cache=True, nogil=True)
def most(forest: Any, root: Any, box: Any, grid: Any, stack: Any) -> Any:
    """Return the largest value that a tree reaches in a box, and its leaf."""
    block, cut, yes, no, value, high, masks = _walked(forest)
    slots, widths = grid.slots, grid.widths
    best, leaf = -np.inf, -1
    stack[0] = root
    top = 1
    while top:
        top -= 1
        node = stack[top]
        # prune: high[node] bounds every leaf below from above
        if high[node] <= best:
            continue
        if block[node] < 0:
            best, leaf = value[node], node
            continue
        sides = _sides(node, box, block, cut, masks, slots, widths)
        left, right = yes[node], no[node]
        if sides == 1:
            stack[top] = left
            top += 1
        elif sides == 2:
            stack[top] = right
            top += 1
        else:
            # the child with the larger bound is taken first: a good leaf early prunes the other
            if high[left] > high[right]:
                left, right = right, left
            stack[top] = left
            stack[top + 1] = right
            top += 2
    return best, leaf


@numba.njit(cache=True, nogil=True)
def narrow(forest: Any, leaf: Any, box: Any, grid: Any) -> None:
    """Cut a box down to a leaf's part of it."""
    block, cut, yes, parent, masks = forest.block, forest.cut, forest.yes, forest.parent, forest.masks
    slots, widths = grid.slots, grid.widths
    node = leaf
    while parent[node] >= 0:
        above = parent[node]
        b = block[above]
        at = slots[b]
        if widths[b] == 0:
            # `yes` is cell < cut: it keeps [low, cut - 1], `no` keeps [cut, high]
            if yes[above] == node:
                box[at + 1] = min(box[at + 1], cut[above] - 1)
            else:
                box[at] = max(box[at], cut[above])
        else:
            first = cut[above] if yes[above] == node else cut[above] + widths[b]
            for w in range(widths[b]):
                box[at + w] &= masks[first + w]
        node = above


@numba.njit(cache=True, nogil=True)
def part(sums: Any, g: Any) -> Any:
    """Return the trees of one sum."""
    trees = sums.trees
    return ForestArrays(
        trees.roots[sums.group[g] : sums.group[g + 1]], trees.block, trees.cut, trees.yes, trees.no, trees.parent,
        trees.value, trees.high, trees.masks,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def bound(sums: Any, g: Any, box: Any, grid: Any, stack: Any) -> Any:
    """Return at least the largest value of one sum in a box: each tree's largest value, and what is added."""
    total, trees, roots = 0.0, sums.trees, sums.trees.roots
    # max over x of Σ_t f_t(x) <= Σ_t max over x of f_t(x)
    for t in range(sums.group[g], sums.group[g + 1]):
        best, _ = most(trees, roots[t], box, grid, stack)
        total += best
    return sums.bases[g] + total


@numba.njit(cache=True, nogil=True)
def in_order(keys: Any, count: Any) -> Any:
    """Return the places of the first keys in their order, as `np.argsort`, which numba compiles for seconds."""
    order = np.empty(count, np.int64)
    for i in range(count):
        at = i
        while at and keys[order[at - 1]] > keys[i]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
    return order


@numba.njit(cache=True, nogil=True)
def dive(forest: Any, order: Any, box: Any, grid: Any, stack: Any) -> None:
    """Take the best leaf of one tree after another, each in what the former ones leave of the box."""
    # every tree has one leaf in the last box: its sum is reached, a lower bound of the maximum
    for t in order:
        _, leaf = most(forest, forest.roots[t], box, grid, stack)
        narrow(forest, leaf, box, grid)


@numba.njit(cache=True, nogil=True)
def push(heap: Any, size: Any, bounds: Any, item: Any) -> Any:
    """Put a box into the heap of open ones; return its new size."""
    heap[size] = item
    child = size
    while child:
        above = (child - 1) // 2
        if bounds[heap[above]] >= bounds[heap[child]]:
            break
        heap[above], heap[child] = heap[child], heap[above]
        child = above
    return size + 1


@numba.njit(cache=True, nogil=True)
def pop(heap: Any, size: Any, bounds: Any) -> Any:
    """Take the box with the largest bound; return it and the heap's new size."""
    top = heap[0]
    size -= 1
    heap[0] = heap[size]
    above = 0
    while True:
        child = 2 * above + 1
        if child >= size:
            break
        if child + 1 < size and bounds[heap[child + 1]] > bounds[heap[child]]:
            child += 1
        if bounds[heap[above]] >= bounds[heap[child]]:
            break
        heap[above], heap[child] = heap[child], heap[above]
        above = child
    return top, size


@numba.njit(cache=True, nogil=True)
def choose_split(  # noqa: PLR0912, PLR0915 -- one pass over the trees, in one compiled loop
    forest: Any, box: Any, grid: Any, scratch: Any
) -> Any:
    """Choose the split of a box that lowers the bound most, by what each tree loses when its best leaf is cut off."""
    slots, widths, offset = grid.slots, grid.widths, grid.offset
    stack, drops, order = scratch.stack, scratch.drops, scratch.order
    roots, blocks = forest.roots, len(widths)
    for c in range(drops.shape[1]):
        drops[0, c] = drops[1, c] = 0.0
    trial = box.copy()
    part = box.copy()
    rows, row_block, row_drop, row_mask = 0, scratch.block, scratch.drop, scratch.masks
    for t in range(len(roots)):
        best, leaf = most(forest, roots[t], box, grid, stack)
        order[t] = -best
        put(box, part)
        # best - second: what the bound loses on the side of a cut that leaves the best leaf out
        narrow(forest, leaf, part, grid)
        for b in range(blocks):
            at = slots[b]
            if widths[b] == 0:
                if part[at] > box[at]:
                    trial[at + 1] = part[at] - 1
                    second, _ = most(forest, roots[t], trial, grid, stack)
                    trial[at + 1] = box[at + 1]
                    # a cut at c <= part.low leaves this leaf out of the side below c
                    drops[0, offset[b] + part[at]] += best - second
                if part[at + 1] < box[at + 1]:
                    trial[at] = part[at + 1] + 1
                    second, _ = most(forest, roots[t], trial, grid, stack)
                    trial[at] = box[at]
                    drops[1, offset[b] + part[at + 1] + 1] += best - second
            else:
                differs = False
                for w in range(widths[b]):
                    trial[at + w] = box[at + w] & ~part[at + w]
                    differs = differs or trial[at + w] != 0
                if differs and rows < len(row_block):
                    second, _ = most(forest, roots[t], trial, grid, stack)
                    row_block[rows], row_drop[rows] = b, best - second
                    for w in range(widths[b]):
                        row_mask[rows, w] = part[at + w]
                    rows += 1
                for w in range(widths[b]):
                    trial[at + w] = box[at + w]
    best_score, chosen, key = -1.0, -1, 0
    for b in range(blocks):
        if widths[b] != 0:
            continue
        at = slots[b]
        low, end = box[at], box[at + 1]
        lost = 0.0
        for c in range(low + 1, end + 1):  # what the side of c and beyond loses
            lost += drops[1, offset[b] + c]
            drops[1, offset[b] + c] = lost
        lost = 0.0
        for c in range(end, low, -1):
            lost += drops[0, offset[b] + c]
            left, right = lost, drops[1, offset[b] + c]
            # as in strong branching the score is mostly the worse side's gain: both sides must improve
            if left + right <= 0.0:
                continue
            score = min(left, right) + 0.1 * max(left, right)
            if score > best_score:
                best_score, chosen, key = score, b, c
    for row in range(rows):
        b = row_block[row]
        left = right = 0.0
        # a leaf outside the mask is lost on the mask's side, one inside it on the other side
        for another in range(rows):
            if row_block[another] != b:
                continue
            inside = outside = False
            for w in range(widths[b]):
                inside = inside or (row_mask[row, w] & row_mask[another, w]) != 0
                outside = outside or (row_mask[another, w] & ~row_mask[row, w]) != 0
            if not inside:
                left += row_drop[another]
            if not outside:
                right += row_drop[another]
        score = min(left, right) + 0.1 * max(left, right)
        if score > best_score:
            best_score, chosen, key = score, b, row
    return chosen, key


@numba.njit(cache=True, nogil=True)
def cut_down(child: Any, side: Any, block: Any, key: Any, mask: Any, grid: Any) -> None:
    """Cut a box down to one side of a split: 0 is below the cut, or the cells of the mask."""
    at, width = grid.slots[block], grid.widths[block]
    if width == 0:
        if side == 0:
            child[at + 1] = key - 1
        else:
            child[at] = key
    else:
        for w in range(width):
            child[at + w] &= mask[w] if side == 0 else ~mask[w]


@numba.njit(cache=True, nogil=True)
def any_split(forest: Any, box: Any, grid: Any, scratch: Any) -> Any:
    """Return a split between two leaves that a box reaches of one tree: the block (-1: there is none), and its key."""
    for root in forest.roots:
        b, key = _first_test(forest, root, box, grid, scratch.masks)
        if b >= 0:
            return b, key
    return -1, 0


@numba.njit(cache=True, nogil=True)
def _first_test(forest: Any, root: Any, box: Any, grid: Any, masks_found: Any) -> Any:
    """Return a tree's first test of which a box reaches both sides: the block (-1: there is none), and its key."""
    block, cut, yes, no, _, _, masks = _walked(forest)
    slots, widths = grid.slots, grid.widths
    node = root
    while block[node] >= 0:
        sides = _sides(node, box, block, cut, masks, slots, widths)
        if sides == 3:
            b = block[node]
            for w in range(grid.widths[b]):
                masks_found[0, w] = forest.masks[cut[node] + w]
            return b, (cut[node] if grid.widths[b] == 0 else 0)
        node = yes[node] if sides == 1 else no[node]
    return -1, 0


@numba.njit(cache=True, nogil=True)
def loudest(forest: Any, least: Any, box: Any, grid: Any, scratch: Any) -> Any:
    """Return the first test of the tree whose leaves lie farthest apart in a box, where that is more than `least`.

    Such a tree decides on which side of a threshold the sum is; its test lowers no bound by itself, since leaves of
    both kinds often lie on both sides of it.
    """
    block, cut, yes, no, value, _, masks = _walked(forest)
    slots, widths, stack = grid.slots, grid.widths, scratch.stack
    widest, chosen = least, np.int64(-1)
    for root in forest.roots:
        low, high = np.inf, -np.inf
        stack[0] = root
        top = 1
        while top:
            top -= 1
            node = stack[top]
            if block[node] < 0:
                low, high = min(low, value[node]), max(high, value[node])
                continue
            sides = _sides(node, box, block, cut, masks, slots, widths)
            if sides & 1:
                stack[top] = yes[node]
                top += 1
            if sides & 2:
                stack[top] = no[node]
                top += 1
        if high - low > widest:
            widest, chosen = high - low, root
    if chosen < 0:
        return -1, 0
    return _first_test(forest, chosen, box, grid, scratch.masks)


@numba.njit(cache=True, nogil=True)
def settle(box: Any, grid: Any) -> None:
    """Reduce a box to one of its points: the middle of an interval, the first cell of a set."""
    slots, widths, sizes = grid.slots, grid.widths, grid.sizes
    for b in range(len(widths)):
        at, chosen = slots[b], -1
        if widths[b] == 0:
            box[at] = (box[at] + box[at + 1]) // 2
            box[at + 1] = box[at]
            continue
        for c in range(sizes[b]):
            if chosen < 0 and box[at + c // 63] >> (c % 63) & 1:
                chosen = c
        for w in range(widths[b]):
            box[at + w] = 0
        box[at + chosen // 63] = np.int64(1) << (chosen % 63)
