"""The nearest rows of every row under the fair metric, exactly, by branch and bound on the packed tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

from fairkit_similarity.search.descent import FAST, lane_maxima, squared_gap
from fairkit_similarity.search.tree import FANOUT, bounding_coordinates, build_tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fairkit_similarity.search.tree import Floats, Ints, Singles

CHUNK = 16
"""Consecutive rows that one task answers."""


def nearest(z: Floats, count: int) -> tuple[NDArray[np.int32], Singles]:
    """Find the `count` nearest rows of every row, itself among them."""
    tree = build_tree(z, bounding_coordinates(z))
    filled = lane_maxima(np.zeros((1, len(z))), tree.order, tree.first)[0]
    found, distance = _nearest(tree.z, tree.centre, tree.half, tree.slack, tree.first, tree.shrink, filled, count)
    rows = tree.order[found[tree.place]].astype(np.int32)
    return rows, distance[tree.place]


@numba.njit(cache=True, fastmath=FAST, error_model="numpy")
def _block_bounds(
    centre: Singles,
    begin: int,
    half: Singles,
    half_begin: int,
    step: int,
    query: Singles,
    price: float,
    best: float,
    bound: Floats,
) -> int:
    """Lower the sixteen bounds by price · Σ max(|centre - query| - half, 0)²; skip those not above `best`."""
    zero = np.float32(0.0)
    seen = 0
    for t in range(FANOUT):
        if bound[t] > best:
            seen += 1
            total = zero
            for c in range(len(query)):
                gap = abs(centre[begin + t, c] - query[c]) - half[half_begin + t * step, c]
                gap = gap if gap > zero else zero
                total += gap * gap
            bound[t] -= price * np.float64(total)
    return seen


@numba.njit(cache=True)
def _sift_down(keys: Floats, items: Ints, size: int) -> None:
    """Restore the order of a heap, largest first, after its top was replaced."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and keys[child + 1] > keys[child]:
            child += 1
        if keys[child] <= keys[at]:
            return
        keys[at], keys[child] = keys[child], keys[at]
        items[at], items[child] = items[child], items[at]
        at = child


@numba.njit(cache=True, parallel=True, error_model="numpy")
def _nearest(  # noqa: PLR0912 -- one compiled loop, as in `fairkit_similarity.search.descent`
    z: Floats, centre: Singles, half: Singles, slack: Singles, first: Ints, shrink: float, filled: Floats, count: int
) -> tuple[Ints, Singles]:
    """Answer all rows, by place in the tree; a heap holds the nearest so far, the farthest of them on top."""
    n = len(z)
    leaves, top, price = first[1], len(first) - 2, 1.0 - shrink
    out = np.empty((n, count), np.int64)
    distance = np.empty((n, count), np.float32)
    for chunk in numba.prange(-(-n // CHUNK)):
        stack, level = np.empty(FANOUT * 20, np.int64), np.empty(FANOUT * 20, np.int64)
        bound, child = np.empty(FANOUT * 20), np.empty(FANOUT)
        keys, items = np.empty(count), np.empty(count, np.int64)
        x = np.zeros(slack.shape[1], np.float32)
        for here in range(chunk * CHUNK, min((chunk + 1) * CHUNK, n)):
            for c in range(slack.shape[1]):
                x[c] = centre[here, c]
            keys[:] = np.inf
            items[:] = here
            keys[0], best = np.inf, -np.inf
            size = 1
            stack[0], level[0], bound[0] = first[top], top, np.inf
            while size > 0:
                size -= 1
                # best: minus the distance of the farthest row in the heap
                if bound[size] <= best:
                    continue
                begin, at_level, base = stack[size], level[size], size
                for t in range(FANOUT):
                    child[t] = filled[begin + t]
                if at_level == 0:
                    _block_bounds(centre, begin, slack, 0, 0, x, price, best, child)
                    for t in range(FANOUT):
                        if child[t] > best:
                            far = squared_gap(z, begin + t, z, here)
                            if -far > best:
                                keys[0], items[0] = far, begin + t
                                _sift_down(keys, items, count)
                                best = -keys[0]
                    continue
                _block_bounds(centre, begin, half, begin - leaves, 1, x, price, best, child)
                for t in range(FANOUT):
                    if child[t] > best:
                        at = size
                        while at > base and bound[at - 1] > child[t]:
                            bound[at], stack[at] = bound[at - 1], stack[at - 1]
                            at -= 1
                        bound[at] = child[t]
                        stack[at] = first[at_level - 1] + (begin + t - first[at_level]) * FANOUT
                        size += 1
                for at in range(base, size):
                    level[at] = at_level - 1
            order = np.argsort(keys, kind="mergesort")
            for t in range(count):
                out[here, t] = items[order[t]]
                distance[here, t] = keys[order[t]]
    return out, distance
