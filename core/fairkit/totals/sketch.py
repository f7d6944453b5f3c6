"""Cells of scores: the finest partition by leading bits that has few enough cells, whatever the order of the rows.

A score becomes a whole number that grows with it, made from the bits of its floating-point form: scores in [0, 1] by
their distance to the nearer end, so that there are as many cells for each halving of the distance to 0 or to 1.
A cell holds the scores that share all but the last `shift` bits. `shift` is the smallest for which no more than the
allowed number of cells is not empty. More scores only ever need a larger shift, and cells of a smaller shift add up
to those of a larger one: the partition of a whole table does not depend on how its rows were split and ordered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Keys = NDArray[np.int64]

CELLS = 16_384
"""At most this many cells that are not empty."""

LEAST_SHIFT = 11
"""Scores closer than 2^-41 of their size share a cell."""

_HALF = int(np.float64(0.5).view(np.int64))
_TABLE = 1 << 22
_BLOCK = 1 << 15


def keys_of(scores: Array, *, unit: bool) -> Keys:
    """Return whole numbers in the order of the scores, shape [n]."""
    keys = np.empty(len(scores), dtype=np.int64)
    for start in range(0, len(scores), _BLOCK):
        part = slice(start, start + _BLOCK)
        keys[part] = _unit_keys(scores[part]) if unit else _any_keys(scores[part])
    return keys


def scores_of(keys: Keys, *, unit: bool) -> Array:
    """Return the scores of keys: the inverse of `keys_of`."""
    if not unit:
        return np.where(keys >= 0, keys, np.iinfo(np.int64).min - keys).view(np.float64)
    upper = keys > _HALF
    near = np.where(upper, 2 * _HALF - keys, keys).view(np.float64)
    return np.where(upper, 1.0 - near, near)


def _unit_keys(scores: Array) -> Keys:
    near = np.minimum(scores, 1.0 - scores)
    np.maximum(near, 0.0, out=near)
    near += 0.0  # -0 to 0
    bits = near.view(np.int64)
    return np.where(scores > 0.5, 2 * _HALF - bits, bits)


def _any_keys(scores: Array) -> Keys:
    bits = (scores + 0.0).view(np.int64)
    return np.where(bits >= 0, bits, np.iinfo(np.int64).min - bits)


def shift_for(keys: Keys, cells: int, least: int = LEAST_SHIFT) -> int:
    """Return the smallest shift, at least `least`, at which increasing keys fall into no more than `cells` cells."""
    if len(keys) <= cells:
        return least
    length = np.zeros(64, dtype=np.int64)  # two keys part ways at shifts below the length of their difference
    for start in range(0, len(keys) - 1, _BLOCK):
        part = keys[start : start + _BLOCK + 1]
        apart = ((part[1:] ^ part[:-1]).view(np.uint64) >> np.uint64(LEAST_SHIFT)).astype(np.float64)
        length += np.bincount(np.frexp(apart)[1], minlength=64)
    separated = np.cumsum(length[::-1])[::-1]  # pairs with at least this length
    for shift in range(least, 63):
        if 1 + separated[shift - LEAST_SHIFT + 1 :][:1].sum() <= cells:
            return shift
    return 63


def cells_of(keys: Keys, shift: int) -> tuple[Keys, NDArray[np.intp]]:
    """Return the cells of increasing keys and where each begins."""
    short = keys >> shift
    if not len(short):
        return short, np.empty(0, np.intp)
    starts = np.append(0, np.flatnonzero(short[1:] != short[:-1]) + 1)
    return short[starts], starts


def places_of(keys: Keys, shift: int, cells: Keys) -> NDArray[np.int64]:
    """Return the place among `cells`, increasing, of each key, in any order; ``len(cells)`` where it has no cell."""
    places = np.full(len(keys), len(cells), dtype=np.int64)
    if not len(cells):
        return places
    first, span = int(cells[0]), int(cells[-1]) - int(cells[0]) + 1
    table = None
    if span <= _TABLE:
        table = np.full(span + 2, len(cells), dtype=np.int64)  # a cell before the first and one after the last
        table[cells - first + 1] = np.arange(len(cells))
    for start in range(0, len(keys), _BLOCK):
        short = keys[start : start + _BLOCK] >> shift
        if table is None:
            found = np.searchsorted(cells, short)
            found[cells.take(found, mode="clip") != short] = len(cells)
        else:
            found = table.take(short - (first - 1), mode="clip")
        places[start : start + _BLOCK] = found
    return places
