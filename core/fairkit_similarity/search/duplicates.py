"""Rows that the metric cannot tell apart: found once, so that the search sees each place once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

if TYPE_CHECKING:
    from fairkit_similarity.search.tree import Floats, Ints


def same_rows(z: Floats) -> tuple[Ints, Ints]:
    """Number the distinct rows of z, in the order of their first appearance."""
    z = np.ascontiguousarray(z) + 0.0  # -0.0 becomes 0.0: equal values, equal bits
    return _number(z, _hash(z.view(np.uint64)))


@numba.njit(cache=True)
def _hash(bits: np.ndarray) -> np.ndarray:
    """Mix each row's bits into one 64-bit word."""
    out = np.empty(len(bits), np.uint64)
    for i in range(len(bits)):
        word = np.uint64(0x9E3779B97F4A7C15)
        for c in range(bits.shape[1]):
            # xor, multiply, shift: the steps of MurmurHash3's finaliser
            word ^= bits[i, c]
            word *= np.uint64(0xFF51AFD7ED558CCD)
            word ^= word >> np.uint64(32)
        out[i] = word
    return out


@numba.njit(cache=True)
def _equal(z: Floats, i: int, j: int) -> bool:
    for c in range(z.shape[1]):  # noqa: SIM110 -- numba compiles no generator
        if z[i, c] != z[j, c]:
            return False
    return True


@numba.njit(cache=True)
def _number(z: Floats, hashes: np.ndarray) -> tuple[Ints, Ints]:
    """Open addressing: a table of group numbers at twice the size, linear probing."""
    size = 2
    while size < 2 * len(z):
        size *= 2
    table = np.full(size, -1, np.int64)
    group, first = np.empty(len(z), np.int64), np.empty(len(z), np.int64)
    groups = 0
    for i in range(len(z)):
        at = np.int64(hashes[i] & np.uint64(size - 1))
        while table[at] >= 0 and not _equal(z, first[table[at]], i):
            # linear probing; at most half of the table is full
            at = (at + 1) % size
        if table[at] < 0:
            table[at] = groups
            first[groups] = i
            groups += 1
        group[i] = table[at]
    return group, first[:groups].copy()


@numba.njit(cache=True)
def group_maxima(values: Floats, group: Ints, groups: int) -> tuple[Floats, Ints]:
    """Return each group's largest value and the first row that has it.

    `values` has shape (K, n); both results have shape (K, groups).
    """
    best = np.full((values.shape[0], groups), -np.inf)
    row = np.zeros((values.shape[0], groups), np.int64)
    for k in range(values.shape[0]):
        for i in range(len(group)):
            if values[k, i] > best[k, group[i]]:
                best[k, group[i]] = values[k, i]
                row[k, group[i]] = i
    return best, row
