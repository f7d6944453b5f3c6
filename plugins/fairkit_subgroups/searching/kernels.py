"""The loops: counting rows in joint tables of three columns, and sums over boxes of their cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 16_384
"""Rows whose codes stay in the cache while they are counted in every table."""


@numba.njit(cache=True, nogil=True)
def count_states(codes: Any, state: Any, sizes: Any, offsets: Any, states: int, out: Any) -> None:
    """Add one for each row and table: at its cells, and at its state."""
    d, n = codes.shape
    pair = np.empty(n, np.int64)
    table = 0
    for a in range(d):
        for b in range(a + 1, d):
            if b + 1 == d:
                continue
            for i in range(n):
                # the cell of (a, b), row-major, is computed once for every third column
                pair[i] = np.int64(codes[a, i]) * sizes[b] + codes[b, i]
            for c in range(b + 1, d):
                base, width = offsets[table], sizes[c]
                for i in range(n):
                    out[(base + pair[i] * width + codes[c, i]) * states + state[i]] += 1
                table += 1


@numba.njit(cache=True, nogil=True)
def count_sums(codes: Any, values: Any, sizes: Any, offsets: Any, out: Any) -> None:
    """Add each row's values, int64, shape [n, J], at its cells in each table; `out` has shape [cells, J]."""
    d, n = codes.shape
    width_of_values = values.shape[1]
    pair = np.empty(n, np.int64)
    table = 0
    for a in range(d):
        for b in range(a + 1, d):
            if b + 1 == d:
                continue
            for i in range(n):
                pair[i] = np.int64(codes[a, i]) * sizes[b] + codes[b, i]
            for c in range(b + 1, d):
                base, width = offsets[table], sizes[c]
                for i in range(n):
                    at = base + pair[i] * width + codes[c, i]
                    for j in range(width_of_values):
                        out[at, j] += values[i, j]
                table += 1


@numba.njit(cache=True, nogil=True)
def boxes(table: Any, runs_b: Any, runs_c: Any) -> Any:
    """Return sums over runs of the second and third axis, and up to each cell of the first."""
    sums, a, b, c = table.shape
    nb, nc = len(runs_b), len(runs_c)
    out = np.zeros((sums, a + 1, nb * nc))
    along_c = np.empty(c + 1)
    ran = np.empty((b + 1, nc))
    for v in range(sums):
        for i in range(a):
            for k in range(nc):
                ran[0, k] = 0.0
            for j in range(b):
                along_c[0] = 0.0
                for k in range(c):
                    # prefix sums: a run's sum is a difference of two, along c, then b, then a
                    along_c[k + 1] = along_c[k] + table[v, i, j, k]
                for k in range(nc):
                    ran[j + 1, k] = ran[j, k] + along_c[runs_c[k, 1] + 1] - along_c[runs_c[k, 0]]
            for r in range(nb):
                first, last = runs_b[r, 0], runs_b[r, 1] + 1
                at = r * nc
                for k in range(nc):
                    out[v, i + 1, at + k] = out[v, i, at + k] + ran[last, k] - ran[first, k]
    return out


@numba.njit(cache=True, nogil=True)
def large_enough(sums: Any, runs_a: Any, rows: float, base: int, least: float, all_base: float) -> int:
    """Count the groups of a table that are large enough."""
    count = 0
    width = sums.shape[2]
    for r in range(len(runs_a)):
        first, last = runs_a[r, 0], runs_a[r, 1] + 1
        for k in range(width):
            # the group and its complement must both have `least` rows of the denominator
            inside = sums[base, last, k] - sums[base, first, k]
            count += (sums[0, last, k] - sums[0, first, k] >= rows) & (inside >= least) & (all_base - inside >= least)
    return count


@numba.njit(cache=True, nogil=True)
def groups_of(
    sums: Any, runs_a: Any, rows: float, base: int, least: float, all_base: float, count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the number, shape [found], and the sums, shape [V, found], of each group that is large enough."""
    height, width = sums.shape[0], sums.shape[2]
    number = np.empty(count, np.int64)
    out = np.empty((height, count))
    at = 0
    for r in range(len(runs_a)):
        first, last = runs_a[r, 0], runs_a[r, 1] + 1
        for k in range(width):
            inside = sums[base, last, k] - sums[base, first, k]
            if sums[0, last, k] - sums[0, first, k] >= rows and inside >= least and all_base - inside >= least:
                number[at] = r * width + k
                for v in range(height):
                    out[v, at] = sums[v, last, k] - sums[v, first, k]
                at += 1
    return number, out


@numba.njit(cache=True, nogil=True)
def largest_statistics(
    sums: Any, real: Any, runs_a: Any, whole: Any, compared: bool, rows: float, least: float, all_base: float, most: Any
) -> None:
    """Raise `most`, shape [L], to the largest |Z_G| over its standard error in a table."""
    width = sums.shape[2]
    for r in range(len(runs_a)):
        first, last = runs_a[r, 0], runs_a[r, 1] + 1
        for k in range(width):
            base = real[1, last, k] - real[1, first, k]
            if real[0, last, k] - real[0, first, k] < rows or base < least or all_base - base < least:
                continue
            n = sums[0, last, k] - sums[0, first, k]
            if n < 1 or (compared and n >= whole[0]):
                continue
            # G is a part of all N rows: Var(mean of G - mean of all) = 1/n - 1/N for unit noise
            error = np.sqrt(1 / n - 1 / whole[0]) if compared else np.sqrt(1 / n)
            for lane in range(len(most)):
                z = (sums[lane + 1, last, k] - sums[lane + 1, first, k]) / n
                if compared:
                    z -= whole[lane + 1] / whole[0]
                most[lane] = max(most[lane], abs(z) / error)
