"""A packed tree over the support rows: sixteen children to a node, boxes in single precision.

The tree holds geometry alone. What a row is worth (losses, model outputs) lies in arrays of the same
layout (see `fairkit_similarity.search`), so that new losses need no new tree.

Layout. Rows are put in an order in which neighbours are close; block b of level 0 holds the rows
16 b ... 16 b + 15 of that order, block b of level l the sixteen blocks 16 b ... 16 b + 15 below it. A *lane*
is one child of a node. Lanes of all levels are numbered through, rows first: ``first[l] + child``. Every
split is made at a multiple of a full subtree, so that all blocks but the last of a level are full and
the depth is ``log16 n`` whatever the data: skewed columns cannot make it deep.

Safe rounding. A box bound in single precision may never exceed the true squared distance. Each
half-width is therefore widened by the rounding of centre, query and difference (`SLACK` units of
2^-24 times the column's largest magnitude), and the sum is multiplied by ``1 - shrink``, which covers the
rounding of d additions in any order.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from fairkit.support.lazy_dataclass import dataclass

FANOUT = 16
"""Children of a node, and rows of a leaf."""

WIDTH = 16
"""Columns that box bounds look at, padded with zeros: one cache line in single precision."""

SLACK = 6.0 * 2.0**-24
"""Widening of every box, relative to the largest magnitude in its column."""

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SupportTree:
    """The packed tree over n rows in d dimensions."""

    order: Ints  # shape (n,): the row that stands at each place of the tree
    place: Ints  # shape (n,): the place of each row, the inverse of `order`
    z: Floats  # shape (n, d): the rows' coordinates in tree order, double precision
    centre: Singles
    half: Singles
    slack: Singles  # shape (1, WIDTH): the half-width that makes a row's rounded coordinates safe
    first: Ints  # shape (levels + 1,): the number of the first lane of each level
    shrink: float  # what a sum of squares in single precision is multiplied with is `1 - shrink`


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame:
    """How coordinates become bounding ones: less the mean, and rotated where there are more than `WIDTH`.

    Any mean and any rotation give valid bounds, so that one frame serves several sets of rows.
    """

    mean: Floats  # shape (d,)
    axes: Floats | None  # shape (d, d), orthonormal columns, those of large variance first; None for no rotation

    @classmethod
    def of(cls, z: Floats) -> Frame:
        """Fit a frame to rows, shape (n, d)."""
        mean: Floats = z.mean(axis=0)
        if z.shape[1] <= WIDTH:
            return cls(mean=mean, axes=None)
        _, axes = np.linalg.eigh((z - mean).T @ (z - mean))
        return cls(mean=mean, axes=np.ascontiguousarray(axes[:, ::-1]))

    def bounding(self, z: Floats) -> Floats:
        """Return the bounding coordinates of rows, shape (n, min(d, WIDTH))."""
        centred: Floats = z - self.mean
        if self.axes is None:
            return centred
        rotated = centred @ self.axes
        rest = np.sqrt(np.einsum("ij,ij->i", rotated[:, WIDTH - 1 :], rotated[:, WIDTH - 1 :]))
        return np.column_stack([rotated[:, : WIDTH - 1], rest])


def bounding_coordinates(z: Floats) -> Floats:
    """Return at most `WIDTH` coordinates whose distances never exceed those of z.

    With more than `WIDTH` columns these are the leading principal axes and, last, the length of what is left:
    by the triangle inequality ``(‖s_i‖ - ‖s_j‖)² ≤ ‖s_i - s_j‖²``. A row then takes one cache line, and the
    bounds lose little because the leading axes carry most of the variance.
    """
    return Frame.of(z).bounding(z)


def build_tree(
    z: Floats, bounding: Floats, extra: Floats | None = None, scale: float = 0.0, reach: Floats | None = None
) -> SupportTree:
    """Build the tree; O(n d + n log n) time, O(n d) memory."""
    side = np.zeros((0, len(z))) if extra is None else np.ascontiguousarray(extra, dtype=np.float64)
    order = _order(bounding, side, float(scale))
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    placed = bounding[order]
    largest = np.abs(bounding).max(axis=0, initial=0.0)
    slack = _padded(SLACK * (largest if reach is None else np.maximum(largest, reach))[None, :])
    first = _first_lanes(len(z))
    centre = np.zeros((first[-1], WIDTH), np.float32)
    half = np.zeros((first[-1] - first[1], WIDTH), np.float32)
    centre[: len(z)] = rounded(placed)
    _pack(placed, first, slack, centre, half)
    # relative error of a sum of WIDTH squares in single precision, in any order of addition
    shrink = 1.5 * WIDTH * 2.0**-22
    return SupportTree(
        order=order, place=position, z=z[order], centre=centre, half=half, slack=slack, first=first, shrink=shrink
    )


def rounded(bounding: Floats) -> Singles:
    """Round bounding coordinates to single precision and pad the columns with zeros."""
    out = np.zeros((len(bounding), WIDTH), np.float32)
    out[:, : bounding.shape[1]] = bounding
    return out


def _padded(rows: Floats) -> Singles:
    """Round up to single precision and pad the columns."""
    out = np.zeros((rows.shape[0], WIDTH), np.float32)
    out[:, : rows.shape[1]] = np.nextafter(rows.astype(np.float32), np.float32(np.inf))
    return out


def _first_lanes(n: int) -> Ints:
    """Number the lanes: level 0 has n rounded up to whole blocks, each level above a sixteenth."""
    starts = [0]
    lanes = -(-n // FANOUT) * FANOUT
    while True:
        starts.append(starts[-1] + lanes)
        blocks = lanes // FANOUT
        if blocks == 1:
            return np.array(starts, dtype=np.int64)
        lanes = -(-blocks // FANOUT) * FANOUT


def _order(z: Floats, extra: Floats, scale: float) -> Ints:
    """Sort rows by recursive splits, one level of ranges at a time."""
    perm = np.arange(len(z))
    key = np.empty(len(z))
    begin, end = np.zeros(1, np.int64), np.full(1, len(z), np.int64)
    while True:
        wide = end - begin > FANOUT
        begin, end = begin[wide], end[wide]
        if not len(begin):
            return perm
        middle = _split_ranges(z, extra, scale, perm, key, begin, end)
        begin, end = (np.stack([begin, middle], axis=1).ravel(), np.stack([middle, end], axis=1).ravel())


@numba.njit(cache=True)
def _widest(z: Floats, extra: Floats, scale: float, rows: Ints) -> int:
    """Choose what to split a range on: an axis of z, or d + k for row k of `extra`."""
    n, d = len(rows), z.shape[1]
    total, square = np.zeros(d), np.zeros(d)
    for i in rows:
        for c in range(d):
            total[c] += z[i, c]
            square[c] += z[i, c] * z[i, c]
    # η · variance of an axis against the deviation of a reward: what loosens the bound more is split
    variance = square / n - (total / n) ** 2
    axis = int(np.argmax(variance))
    best = scale * variance[axis] if extra.shape[0] else variance[axis]
    for k in range(extra.shape[0]):
        a, b = 0.0, 0.0
        for i in rows:
            a += extra[k, i]
            b += extra[k, i] * extra[k, i]
        deviation = np.sqrt(max(b / n - (a / n) ** 2, 0.0))
        if deviation > best:
            best = deviation
            axis = d + k
    return axis


@numba.njit(cache=True)
def _select(key: Floats, perm: Ints, k: int) -> None:
    """Quickselect in place: no key before position k is above a key from k on."""
    low, high = 0, len(key) - 1
    while low < high:
        a, b, c = key[low], key[(low + high) // 2], key[high]
        # Hoare's partition at the median of three
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while key[i] < pivot:
                i += 1
            while key[j] > pivot:
                j -= 1
            if i <= j:
                key[i], key[j] = key[j], key[i]
                perm[i], perm[j] = perm[j], perm[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            return


@numba.njit(cache=True)
def _split(z: Floats, extra: Floats, scale: float, perm: Ints, key: Floats, begin: int, end: int) -> int:
    """Split one range near its middle, at a multiple of the largest full subtree that fits."""
    unit = FANOUT
    # ranges end at multiples of full subtrees: levels are packed without gaps
    while unit * FANOUT < end - begin:
        unit *= FANOUT
    units = -(-(end - begin) // unit)
    middle = begin + (units + 1) // 2 * unit
    rows, keys = perm[begin:end], key[begin:end]
    axis = _widest(z, extra, scale, rows)
    d = z.shape[1]
    for t in range(len(rows)):
        keys[t] = z[rows[t], axis] if axis < d else extra[axis - d, rows[t]]
    _select(keys, rows, middle - begin)
    return middle


@numba.njit(cache=True, parallel=True)
def _split_ranges(z: Floats, extra: Floats, scale: float, perm: Ints, key: Floats, begin: Ints, end: Ints) -> Ints:
    middle = np.empty_like(begin)
    for r in numba.prange(len(begin)):
        middle[r] = _split(z, extra, scale, perm, key, begin[r], end[r])
    return middle


@numba.njit(cache=True)
def _leaf_box(z: Floats, block: int, low: Floats, high: Floats) -> None:
    for i in range(block * FANOUT, min((block + 1) * FANOUT, len(z))):
        for c in range(z.shape[1]):
            low[c] = min(low[c], z[i, c])
            high[c] = max(high[c], z[i, c])


@numba.njit(cache=True)
def _inner_box(centre: Singles, half: Singles, lane: int, leaves: int, low: Floats, high: Floats) -> None:
    for t in range(lane, lane + FANOUT):
        for c in range(len(low)):
            if half[t - leaves, c] >= 0.0:
                low[c] = min(low[c], np.float64(centre[t, c]) - np.float64(half[t - leaves, c]))
                high[c] = max(high[c], np.float64(centre[t, c]) + np.float64(half[t - leaves, c]))


@numba.njit(cache=True)
def _write_box(centre: Singles, half: Singles, at: int, leaves: int, low: Floats, high: Floats, slack: Singles) -> None:
    """Store a box as centre and half-width, rounded so that it contains the true one."""
    for c in range(len(low)):
        middle = np.float32(0.5 * (low[c] + high[c]))
        width = max(high[c] - np.float64(middle), np.float64(middle) - low[c])
        centre[at, c] = middle
        # rounded outwards, and widened for the rounding of queries
        half[at - leaves, c] = np.float32(width * (1.0 + 2.0**-22) + np.float64(slack[0, c]))


@numba.njit(cache=True)
def _pack(z: Floats, first: Ints, slack: Singles, centre: Singles, half: Singles) -> None:
    """Fill the boxes level by level; lanes without rows keep a negative half-width until the end.

    One thread: for several it takes six times as long to compile, and no less to run.
    """
    n, d = z.shape
    leaves = first[1]
    half[:, :] = -1.0
    blocks = -(-n // FANOUT)
    for level in range(1, len(first) - 1):
        for b in range(blocks):
            low, high = np.full(d, np.inf), np.full(d, -np.inf)
            if level == 1:
                _leaf_box(z, b, low, high)
            else:
                _inner_box(centre, half, first[level - 1] + b * FANOUT, leaves, low, high)
            _write_box(centre, half, first[level] + b, leaves, low, high, slack)
        blocks = -(-blocks // FANOUT)
    half[:, d:] = 0.0
