"""Branch and bound for  max_i R_i - η ‖z_i - z_j‖²: exact, parallel over the queries j.

A node is left alone when the largest reward below it, less η times a lower bound of the squared
distance from the query to its box, is not above the best row found so far. The first candidates are
the query's own row, the caller's guess (its last answer), and the answer of the query before it, which
is a neighbour since queries come in tree order.

Rewards come in two kinds, with the same search:

- *losses*: K vectors v^k over the rows; a query of label k has R_i = v^k_i. A lane's bound is the largest
  v^k below it.
- *outputs*: every row has K outputs h_i, a query has a target t_j, and R_i is the mean over the outputs of
  (h_i - t_j)² or |h_i - t_j|. A lane's bound follows from the range of the outputs below it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fairkit.individual.tree import FANOUT, Floats, Ints, Singles

LOSSES, SQUARED, ABSOLUTE = 0, 1, 2
"""Kinds of rewards."""

CHUNK = 32
"""Consecutive queries that one task answers; the answers do not depend on the number of threads."""

# Sums may be reordered and contracted; infinities and NaN keep their meaning (they mark empty lanes).
_FAST = {"reassoc", "contract", "nsz"}


@numba.njit(cache=True)
def lane_maxima(values: Floats, order: Ints, first: Ints) -> Floats:
    """Give each lane the largest value below it, for each of K loss vectors.

    Parameters
    ----------
    values
        Shape (K, n), by row.
    order, first
        The tree's.

    Returns
    -------
    array of shape (K, lanes); empty lanes hold -inf.
    """
    out = np.full((values.shape[0], first[-1]), -np.inf)
    for k in range(values.shape[0]):
        for place in range(len(order)):
            out[k, place] = values[k, order[place]]
        for level in range(1, len(first) - 1):
            below = first[level - 1]
            for child in range((first[level] - below) // FANOUT):
                lane = below + child * FANOUT
                out[k, first[level] + child] = out[k, lane : lane + FANOUT].max()
    return out


@numba.njit(cache=True)
def lane_ranges(outputs: Floats, order: Ints, first: Ints) -> tuple[Floats, Floats]:
    """Give each lane the smallest and largest of every output below it.

    `outputs` has shape (n, K), by row; both results have shape (lanes, K). Empty lanes hold (inf, -inf).
    """
    low = np.full((first[-1], outputs.shape[1]), np.inf)
    high = np.full((first[-1], outputs.shape[1]), -np.inf)
    for place in range(len(order)):
        low[place] = outputs[order[place]]
        high[place] = outputs[order[place]]
    for level in range(1, len(first) - 1):
        below = first[level - 1]
        for child in range((first[level] - below) // FANOUT):
            for lane in range(below + child * FANOUT, below + (child + 1) * FANOUT):
                for k in range(outputs.shape[1]):
                    at = first[level] + child
                    low[at, k] = min(low[at, k], low[lane, k])
                    high[at, k] = max(high[at, k], high[lane, k])
    return low, high


@numba.njit(cache=True, fastmath=_FAST, error_model="numpy")
def _squared_distance(z: Floats, i: int, j: int) -> Any:
    total = 0.0
    for c in range(z.shape[1]):
        total += (z[i, c] - z[j, c]) ** 2
    return total


@numba.njit(cache=True, fastmath=_FAST, error_model="numpy")
def _squared_gap(z: Floats, i: int, asked: Floats, j: int) -> Any:
    total = 0.0
    for c in range(z.shape[1]):
        total += (z[i, c] - asked[j, c]) ** 2
    return total


@numba.njit(cache=True, fastmath=_FAST, error_model="numpy")
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


@numba.njit(cache=True, fastmath=_FAST, error_model="numpy")
def _block_rewards(
    kind: int,
    low: Floats,
    high: Floats,
    begin: int,
    lanes: int,
    label: int,
    target: Floats,
    q: int,
    out: Floats,
) -> None:
    """Bound the rewards below some lanes from above; exact for rows.

    One call for a block: a call for each lane takes longer than its work.
    """
    if kind == LOSSES:
        for t in range(lanes):
            out[t] = low[label, begin + t]
        return
    share = 1.0 / target.shape[1]
    for t in range(lanes):
        total = 0.0
        for k in range(target.shape[1]):
            gap = max(high[begin + t, k] - target[q, k], target[q, k] - low[begin + t, k])
            total += gap * gap if kind == SQUARED else gap
        out[t] = total * share if low[begin + t, 0] <= high[begin + t, 0] else -np.inf


@numba.njit(cache=True, parallel=True, fastmath=_FAST, error_model="numpy")
def search(  # noqa: PLR0912, PLR0915 -- one compiled loop; calls with arrays cost more than the work they would do
    z: Floats,
    centre: Singles,
    half: Singles,
    slack: Singles,
    first: Ints,
    shrink: float,
    kind: int,
    low: Floats,
    high: Floats,
    eta: float,
    asked: Floats,
    asked_centre: Singles,
    own: Ints,
    label: Ints,
    target: Floats,
    guess: Ints,
    floor: Floats,
) -> tuple[Ints, Floats, Floats, int]:
    """Answer all queries.

    Parameters
    ----------
    z, centre, half, slack, first, shrink
        The tree's arrays.
    kind, low, high
        `LOSSES` with `lane_maxima` (twice), or `SQUARED` or `ABSOLUTE` with `lane_ranges`.
    eta
        η ≥ 0.
    asked, asked_centre
        Coordinates of the rows that queries stand for, and the same rounded as the tree's centres: the tree's own
        `z` and `centre`, or those of rows that are not in it.
    own
        Shape (m,): each query's row in `asked`; best in an order in which neighbours are alike.
    label
        Shape (m,): each query's loss vector (losses).
    target
        Shape (m, K): each query's target (outputs); otherwise of shape (m, 0).
    guess
        Shape (m, 2): places that are likely the answer, or -1.
    floor
        Shape (m,): only rows worth more than this are looked for; -inf for all.

    Returns
    -------
    place : array of shape (m,)
        The best row's place; -1 where none is worth more than the floor.
    reward, cost : arrays of shape (m,)
        Its R_i and squared distance.
    looks : int
        Distances and box bounds computed.
    """
    m = len(own)
    leaves, top, price = first[1], len(first) - 2, eta * (1.0 - shrink)
    place, looks = np.empty(m, np.int64), np.zeros(m, np.int64)
    reward, cost = np.empty(m), np.empty(m)
    chunks = -(-m // CHUNK)
    # Neighbouring chunks cost about the same: a stride deals costly regions out to all threads.
    stride = 1
    while stride * stride < chunks:
        stride += 1
    for r in numba.prange(stride * stride):
        chunk = (r % stride) * stride + r // stride
        stack, level = np.empty(FANOUT * 20, np.int64), np.empty(FANOUT * 20, np.int64)
        bound, child, rewards = np.empty(FANOUT * 20), np.empty(FANOUT), np.empty(FANOUT)
        x = np.zeros(slack.shape[1], np.float32)
        previous = -1
        for q in range(chunk * CHUNK, min((chunk + 1) * CHUNK, m)):
            here = own[q]
            for c in range(slack.shape[1]):
                x[c] = asked_centre[here, c]
            best, best_reward, best_cost, answer, seen = floor[q], 0.0, 0.0, -1, 0
            for start in (guess[q, 0], guess[q, 1], previous):
                if start >= 0:
                    _block_rewards(kind, low, high, start, 1, label[q], target, q, child)
                    worth = child[0]
                    far = _squared_gap(z, start, asked, here)
                    if worth - eta * far > best:
                        best, best_reward, best_cost, answer = worth - eta * far, worth, far, start
            size = 1
            stack[0], level[0], bound[0] = first[top], top, np.inf
            while size > 0:
                size -= 1
                if bound[size] <= best:
                    continue
                begin, at_level, base = stack[size], level[size], size
                _block_rewards(kind, low, high, begin, FANOUT, label[q], target, q, child)
                if at_level == 0:
                    for t in range(FANOUT):
                        rewards[t] = child[t]
                    seen += _block_bounds(centre, begin, slack, 0, 0, x, price, best, child)
                    for t in range(FANOUT):
                        if child[t] > best:
                            worth = rewards[t]
                            far = _squared_gap(z, begin + t, asked, here)
                            if worth - eta * far > best:
                                best, best_reward, best_cost, answer = (
                                    worth - eta * far,
                                    worth,
                                    far,
                                    begin + t,
                                )
                    continue
                seen += _block_bounds(centre, begin, half, begin - leaves, 1, x, price, best, child)
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
            place[q], reward[q], cost[q], looks[q] = answer, best_reward, best_cost, seen
            previous = answer
    return place, reward, cost, looks.sum()
