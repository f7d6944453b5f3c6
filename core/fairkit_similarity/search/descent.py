"""Branch and bound for  max_i R_i - η ‖z_i - z_j‖²: exact, parallel over the queries j.

A node is left alone when the largest reward below it, less η times a lower bound of the squared
distance from the query to its box, is not above the best row found so far. Sixteen neighbouring queries
descend together: a box is loaded once for all of them and held against all of them in vector registers,
and is left alone when none of them needs it. The first candidates are the caller's guesses (a query's own row,
and the last answers of all sixteen) and the answers of the sixteen queries before.

Rewards come in two kinds, with the same search:

- *losses*: K vectors v^k over the rows; a query of label k has R_i = v^k_i. A lane's bound is the largest
  v^k below it.
- *outputs*: every row has K outputs h_i, a query has a target t_j, and R_i is the mean over the outputs of
  (h_i - t_j)² or |h_i - t_j|. A lane's bound follows from the range of the outputs below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from fairkit_similarity.search.tree import (
    FANOUT,
    WIDTH,
    Floats,
    Ints,
    Singles,
    SupportTree,
    bounding_coordinates,
    build_tree,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


LOSSES, SQUARED, ABSOLUTE = 0, 1, 2
"""Kinds of rewards."""

GROUP = 16
"""Queries that descend together: two registers of eight single-precision lanes."""

CHUNK = 4
"""Consecutive groups that one task answers; the answers do not depend on the number of threads."""

FAST = {"reassoc", "contract", "nsz"}
"""Sums may be reordered and contracted; infinities and NaN keep their meaning (they mark empty lanes)."""


@numba.njit(cache=True)
def lane_maxima(values: Floats, order: Ints, first: Ints) -> Floats:
    """Return for each lane the largest value below it, for each of K loss vectors."""
    out = np.full((values.shape[0], first[-1]), -np.inf)
    for k in range(values.shape[0]):
        for index in range(len(order)):
            out[k, index] = values[k, order[index]]
        for level in range(1, len(first) - 1):
            below = first[level - 1]
            for child in range((first[level] - below) // FANOUT):
                lane = below + child * FANOUT
                out[k, first[level] + child] = out[k, lane : lane + FANOUT].max()
    return out


@numba.njit(cache=True)
def lane_ranges(outputs: Floats, order: Ints, first: Ints) -> tuple[Floats, Floats]:
    """Return for each lane the smallest and largest of every output below it.

    `outputs` has shape (n, K), by row; both results have shape (lanes, K). Empty lanes hold (inf, -inf).
    """
    low = np.full((first[-1], outputs.shape[1]), np.inf)
    high = np.full((first[-1], outputs.shape[1]), -np.inf)
    for index in range(len(order)):
        low[index] = outputs[order[index]]
        high[index] = outputs[order[index]]
    for level in range(1, len(first) - 1):
        below = first[level - 1]
        for child in range((first[level] - below) // FANOUT):
            for lane in range(below + child * FANOUT, below + (child + 1) * FANOUT):
                for k in range(outputs.shape[1]):
                    at = first[level] + child
                    low[at, k] = min(low[at, k], low[lane, k])
                    high[at, k] = max(high[at, k], high[lane, k])
    return low, high


@numba.njit(cache=True, fastmath=FAST, error_model="numpy")
def squared_gap(z: Floats, i: int, asked: Floats, j: int) -> Any:
    """Return the squared distance of row i of `z` and row j of `asked`."""
    total = 0.0
    for c in range(z.shape[1]):
        total += (z[i, c] - asked[j, c]) ** 2
    return total


@numba.njit(cache=True, fastmath=FAST, error_model="numpy")
def _reward(kind: int, low: Floats, high: Floats, at: int, label: int, target: Floats, g: int) -> Any:
    """Bound the reward of a lane for query g from above; exact for rows."""
    if kind == LOSSES:
        return low[label, at]
    total = 0.0
    for k in range(target.shape[0]):
        # the largest |h - t| over h in [low, high] is at an end
        gap = max(high[at, k] - target[k, g], target[k, g] - low[at, k])
        total += gap * gap if kind == SQUARED else gap
    return total / target.shape[0] if low[at, 0] <= high[at, 0] else -np.inf


@numba.njit(cache=True, fastmath=FAST, error_model="numpy")
def _block_bounds(  # noqa: PLR0912 -- one compiled loop
    rows: bool,
    centre: Singles,
    begin: int,
    half: Singles,
    leaves: int,
    reach: Any,
    x: Singles,
    price: float,
    kind: int,
    low: Floats,
    high: Floats,
    label: int,
    target: Floats,
    least: float,
    best: Floats,
    bound: Floats,
    hope: Floats,
) -> int:
    """Bound what a block's sixteen lanes are worth to the sixteen queries: reward less price · squared distance.

    The distance to a box is Σ max(|centre - x| - half, 0)². For a row, whose half-widths are the slack s, it is
    ‖centre - x‖² - reach · ‖centre - x‖: not more if reach ≥ 2 ‖s‖, by Cauchy's inequality.

    Writes `bound`, shape (FANOUT, GROUP), and `hope`, shape (FANOUT,): Σ_g max(bound - best, 0), 0 where no
    query needs the lane. `least` is the smallest reward that gains. One call for a block: a call for each lane takes
    longer than its work.
    """
    zero = np.float32(0.0)
    seen = 0
    for t in range(FANOUT):
        left = 0.0
        if kind == LOSSES:
            worth = low[label, begin + t]
            # the reward alone is too small for all sixteen queries: no distance is needed
            if worth > least:
                left = 1.0
                for g in range(GROUP):
                    bound[t, g] = worth
        elif low[begin + t, 0] <= high[begin + t, 0]:
            for g in range(GROUP):
                bound[t, g] = 0.0
            for k in range(target.shape[0]):
                bottom, top = low[begin + t, k], high[begin + t, k]
                for g in range(GROUP):
                    gap = max(top - target[k, g], target[k, g] - bottom)
                    bound[t, g] += (gap * gap if kind == SQUARED else gap) / target.shape[0]
            for g in range(GROUP):
                over = bound[t, g] - best[g]
                left += over if over > 0.0 else 0.0
        if left > 0.0:
            seen += 1
            left = 0.0
            if rows:
                for g in range(GROUP):
                    total = zero
                    for c in range(WIDTH):
                        gap = centre[begin + t, c] - x[c, g]
                        total += gap * gap
                    # (‖c - x‖ - ‖s‖)² >= ‖c - x‖² - 2 ‖s‖ ‖c - x‖
                    total -= reach * np.sqrt(total)
                    bound[t, g] -= price * np.float64(total)
                    over = bound[t, g] - best[g]
                    left += over if over > 0.0 else 0.0
            else:
                for g in range(GROUP):
                    total = zero
                    for c in range(WIDTH):
                        # squared distance to a box: Σ max(|centre - x| - half, 0)²
                        gap = abs(centre[begin + t, c] - x[c, g]) - half[begin - leaves + t, c]
                        gap = gap if gap > zero else zero
                        total += gap * gap
                    bound[t, g] -= price * np.float64(total)
                    over = bound[t, g] - best[g]
                    left += over if over > 0.0 else 0.0
        hope[t] = left
    return seen


def _reach(tree: SupportTree) -> Any:
    return np.float32(2.125 * np.sqrt((tree.slack.astype(np.float64) ** 2).sum()))


def search(
    tree: SupportTree,
    kind: int,
    low: Floats,
    high: Floats,
    eta: float,
    points: Floats,
    points_centre: Singles,
    point_of: Ints,
    label: Ints,
    target: Floats,
    guess: Ints,
    floor: Floats,
    least_cost: Floats | None = None,
) -> tuple[Ints, Floats, Floats, int]:
    """Answer all queries; with losses, any row but the first guess costs at least `least_cost`, η C, shape (m,)."""
    cuts = np.flatnonzero(np.diff(label)) + 1
    ends = np.append(cuts, len(label))
    starts = np.append(0, cuts)[: len(ends)]
    groups = [np.arange(start, end, GROUP) for start, end in zip(starts, ends, strict=True)]
    begins = np.append(np.concatenate(groups), len(label))
    position, reward, cost, looks = _search(
        tree.z,
        tree.centre,
        tree.half,
        tree.first,
        1.0 - tree.shrink,
        _reach(tree),
        kind,
        low,
        high,
        eta,
        points,
        points_centre,
        point_of,
        label,
        np.ascontiguousarray(target.T),
        guess,
        floor,
        np.zeros(len(label)) if least_cost is None else least_cost,
        begins,
    )
    return position, reward, cost, int(looks)


@numba.njit(cache=True, parallel=True, fastmath=FAST, error_model="numpy")
def _search(  # noqa: PLR0912, PLR0915 -- one compiled loop; calls with arrays cost more than the work they would do
    z: Floats,
    centre: Singles,
    half: Singles,
    first: Ints,
    shrink: float,
    reach: Any,
    kind: int,
    low: Floats,
    high: Floats,
    eta: float,
    points: Floats,
    points_centre: Singles,
    point_of: Ints,
    label: Ints,
    target: Floats,
    guess: Ints,
    floor: Floats,
    least_cost: Floats,
    begins: Ints,
) -> tuple[Ints, Floats, Floats, int]:
    """Answer all groups; group b holds the queries begins[b] ... begins[b + 1] - 1, all of one label."""
    m = len(point_of)
    leaves, top, price = first[1], len(first) - 2, eta * shrink
    position, looks = np.full(m, -1), np.zeros(m, np.int64)
    reward, cost = np.zeros(m), np.zeros(m)
    groups = len(begins) - 1
    chunks = -(-groups // CHUNK)
    # Neighbouring chunks cost about the same: a stride deals costly regions out to all threads.
    stride = 1
    while stride * stride < chunks:
        stride += 1
    for r in numba.prange(stride * stride):
        chunk = (r % stride) * stride + r // stride
        room = FANOUT * 20
        stack, level, lane = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
        urgency, bound = np.empty(room), np.empty((room, GROUP))
        child, hope, best = np.empty((FANOUT, GROUP)), np.empty(FANOUT), np.empty(GROUP)
        dear = np.zeros(GROUP)
        x, aim = np.zeros((WIDTH, GROUP), np.float32), np.zeros((target.shape[0], GROUP))
        last_begin, last_end = 0, 0
        for group in range(chunk * CHUNK, min((chunk + 1) * CHUNK, groups)):
            begin_q, end_q, seen = begins[group], begins[group + 1], 0
            count = end_q - begin_q
            k = label[begin_q]
            for g in range(GROUP):
                q = min(begin_q + g, end_q - 1)
                for c in range(WIDTH):
                    x[c, g] = points_centre[point_of[q], c]
                for c in range(target.shape[0]):
                    aim[c, g] = target[c, q]
                best[g] = floor[q] if g < count else np.inf
                dear[g] = least_cost[q]
            for g in range(count):
                q, previous_start = begin_q + g, -1
                for s in range(-1, count + last_end - last_begin):
                    if s < 0:
                        start = guess[q, 0]
                    elif s < count:
                        start = guess[begin_q + s, 1]
                    else:
                        start = position[last_begin + s - count]
                    if start >= 0 and start != previous_start:
                        previous_start = start
                        worth = _reward(kind, low, high, start, k, aim, g)
                        if worth > best[g]:
                            far = squared_gap(z, start, points, point_of[q])
                            if worth - eta * far > best[g]:
                                best[g] = worth - eta * far
                                position[q], reward[q], cost[q] = start, worth, far
            size = 1
            stack[0], level[0] = first[top], top
            bound[0, :] = np.inf
            while size > 0:
                size -= 1
                exceeded = 0
                for g in range(GROUP):
                    # answers may have improved since the block was put on the stack
                    exceeded += bound[size, g] > best[g]
                if exceeded == 0:
                    continue
                begin, at_level, base = stack[size], level[size], size
                least = (best + dear).min()
                seen += _block_bounds(
                    at_level == 0,
                    centre,
                    begin,
                    half,
                    leaves,
                    reach,
                    x,
                    price,
                    kind,
                    low,
                    high,
                    k,
                    aim,
                    least,
                    best,
                    child,
                    hope,
                )
                if at_level == 0:
                    for t in range(FANOUT):
                        if hope[t] > 0.0:
                            for g in range(count):
                                # rows pass a bound in single precision; the exact value decides
                                if child[t, g] > best[g]:
                                    far = squared_gap(z, begin + t, points, point_of[begin_q + g])
                                    worth = _reward(kind, low, high, begin + t, k, aim, g)
                                    if worth - eta * far > best[g]:
                                        q = begin_q + g
                                        best[g] = worth - eta * far
                                        position[q], reward[q], cost[q] = begin + t, worth, far
                    continue
                for t in range(FANOUT):
                    if hope[t] > 0.0:
                        at = size
                        # the most promising child is on top: good answers early prune the others
                        while at > base and urgency[at - 1] > hope[t]:
                            urgency[at], stack[at], lane[at] = urgency[at - 1], stack[at - 1], lane[at - 1]
                            at -= 1
                        urgency[at], lane[at] = hope[t], t
                        stack[at] = first[at_level - 1] + (begin + t - first[at_level]) * FANOUT
                        size += 1
                for at in range(base, size):
                    level[at] = at_level - 1
                    for g in range(GROUP):
                        bound[at, g] = child[lane[at], g]
            looks[begin_q] = seen * count
            last_begin, last_end = begin_q, end_q
    return position, reward, cost, looks.sum()


# The nearest rows of every row under the fair metric, exactly, by branch and bound on the packed tree.


def nearest(z: Floats, count: int) -> tuple[NDArray[np.int32], Singles]:
    """Find the `count` nearest rows of every row, itself among them."""
    tree = build_tree(z, bounding_coordinates(z))
    filled = lane_maxima(np.zeros((1, len(z))), tree.order, tree.first)
    packed = tree.z, tree.order, tree.centre, tree.half, tree.first
    return _nearest(*packed, 1.0 - tree.shrink, _reach(tree), filled, count)


@numba.njit(cache=True)
def _sift_down(keys: Floats, items: Ints, at: int) -> None:
    """Restore the order of a heap, largest first, below an entry that was replaced."""
    size = len(keys)
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


@numba.njit(cache=True, parallel=True, fastmath=FAST, error_model="numpy")
def _nearest(  # noqa: PLR0912 -- one compiled loop, as `_search`
    z: Floats,
    rows: Ints,
    centre: Singles,
    half: Singles,
    first: Ints,
    price: float,
    reach: Any,
    filled: Floats,
    count: int,
) -> tuple[NDArray[np.int32], Singles]:
    """Answer all rows, which stand in the tree as `rows` says, sixteen together.

    A heap for each holds the nearest so far, the farthest on top; at first these are its neighbours in the tree.
    """
    n = len(z)
    leaves, top = first[1], len(first) - 2
    out = np.empty((n, count), np.int32)
    distance = np.empty((n, count), np.float32)
    nothing = np.zeros((0, GROUP))
    for group in numba.prange(-(-n // GROUP)):
        room = FANOUT * 20
        stack, level, lane = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
        urgency, bound = np.empty(room), np.empty((room, GROUP))
        child, hope, best = np.empty((FANOUT, GROUP)), np.empty(FANOUT), np.full(GROUP, np.inf)
        keys, items = np.empty((GROUP, count)), np.empty((GROUP, count), np.int64)
        x = np.zeros((WIDTH, GROUP), np.float32)
        here, start = group * GROUP, max(min(group * GROUP - count // 2, n - count), 0)
        for g in range(min(GROUP, n - here)):
            for c in range(WIDTH):
                x[c, g] = centre[here + g, c]
            for t in range(count):
                keys[g, t], items[g, t] = squared_gap(z, start + t, z, here + g), start + t
            for at in range(count // 2 - 1, -1, -1):
                _sift_down(keys[g], items[g], at)
            # best: minus the distance of the farthest row in the heap
            best[g] = -keys[g, 0]
        size = 1
        stack[0], level[0] = first[top], top
        bound[0, :] = np.inf
        while size > 0:
            size -= 1
            exceeded = 0
            for g in range(GROUP):
                exceeded += bound[size, g] > best[g]
            if exceeded == 0:
                continue
            begin, at_level, base = stack[size], level[size], size
            _block_bounds(
                at_level == 0,
                centre,
                begin,
                half,
                leaves,
                reach,
                x,
                price,
                LOSSES,
                filled,
                filled,
                0,
                nothing,
                best.min(),
                best,
                child,
                hope,
            )
            for t in range(FANOUT):
                if hope[t] <= 0.0 or (at_level == 0 and start <= begin + t < start + count):
                    continue
                if at_level == 0:
                    for g in range(min(GROUP, n - here)):
                        if child[t, g] > best[g]:
                            far = squared_gap(z, begin + t, z, here + g)
                            if -far > best[g]:
                                keys[g, 0], items[g, 0] = far, begin + t
                                _sift_down(keys[g], items[g], 0)
                                best[g] = -keys[g, 0]
                    continue
                at = size
                while at > base and urgency[at - 1] > hope[t]:
                    urgency[at], stack[at], lane[at] = urgency[at - 1], stack[at - 1], lane[at - 1]
                    at -= 1
                urgency[at], lane[at] = hope[t], t
                stack[at] = first[at_level - 1] + (begin + t - first[at_level]) * FANOUT
                size += 1
            for at in range(base, size):
                level[at] = at_level - 1
                for g in range(GROUP):
                    bound[at, g] = child[lane[at], g]
        for g in range(min(GROUP, n - here)):
            order = np.argsort(keys[g], kind="mergesort")
            for t in range(count):
                out[rows[here + g], t] = rows[items[g, order[t]]]
                distance[rows[here + g], t] = keys[g, order[t]]
    return out, distance
