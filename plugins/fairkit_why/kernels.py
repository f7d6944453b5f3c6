"""Compiled loops of the exact attribution: keys of rows in fringes, histograms, Shapley tables, projections.

A key is the bits of one row in one fringe (see `fairkit_why.exact_trees`). Codes are whole numbers of which a test asks
``code <= cut``. All loops run in the order of trees and rows, so that sums have the same bytes on every machine.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

BLOCK = 4_096
"""Rows whose keys are made at once: a block's codes stay in the cache."""


@numba.njit(cache=True, nogil=True)
def code_numbers(values: Any, cuts: Any, nan_code: Any, out: Any) -> None:
    """Write how many cuts are below each value; `nan_code` for NaN."""
    size = len(cuts)
    for i in range(len(values)):
        value = values[i]
        if np.isnan(value):
            out[i] = nan_code
            continue
        first, left = 0, size
        while left > 1:  # halves without a branch that depends on the value
            half = left >> 1
            first += half * (cuts[first + half - 1] < value)
            left -= half
        out[i] = first + (1 if size and cuts[first] < value else 0)


@numba.njit(cache=True, nogil=True)
def _keys(codes: Any, start: Any, end: Any, program: Any, masks: Any, path: Any, key: Any) -> None:
    """Write the keys of the rows from `start` to `end`: the path's bits are 1 until a test fails, the others 0."""
    rows = end - start
    for i in range(rows):
        key[i] = (1 << path) - 1
    for p in range(len(program)):
        column, cut = program[p, 0], np.uint16(program[p, 1])
        kind, bit = program[p, 2], np.uint16(1 << program[p, 3])
        none, every, others = np.uint16(0), np.uint16(65535), np.uint16(65535 ^ (1 << program[p, 3]))
        code = codes[column, start:end]
        # kinds 0 to 2 compare the code with a cut, 3 to 5 look it up in a set of words
        if kind >= 3:
            bits = masks[program[p, 1] :]
            for i in range(rows):
                inside = (bits[code[i] // 63] >> (code[i] % 63)) & 1
                if kind == 5:
                    key[i] |= bit if inside else none
                elif inside != (kind == 4):
                    key[i] &= others
        elif kind == 2:
            for i in range(rows):
                key[i] |= bit if code[i] <= cut else none
        elif kind == 1:
            for i in range(rows):
                key[i] &= every if code[i] <= cut else others
        else:
            for i in range(rows):
                key[i] &= others if code[i] <= cut else every


@numba.njit(cache=True, nogil=True)
def _wide_keys(codes: Any, start: Any, end: Any, program: Any, masks: Any, path: Any, key: Any) -> None:
    """Write keys of more than 16 bits."""
    for i in range(end - start):
        bits = (np.int64(1) << path) - 1
        for p in range(len(program)):
            code, kind = np.int64(codes[program[p, 0], start + i]), program[p, 2]
            if kind >= 3:  # noqa: SIM108 -- a word is read of sets alone
                holds = (masks[program[p, 1] + code // 63] >> (code % 63)) & 1 == 1
            else:
                holds = code <= program[p, 1]
            bit = np.int64(1) << program[p, 3]
            if kind % 3 == 2:
                bits |= bit if holds else np.int64(0)
            elif holds != (kind % 3 == 1):
                bits &= ~bit
        key[i] = bits


@numba.njit(cache=True, nogil=True)
def count_keys(codes: Any, weights: Any, fringes: Any, first: Any, last: Any, offsets: Any, hist: Any) -> None:
    """Add the rows' weights (each 1 where there are none) to the histograms of the fringes from `first` to `last`."""
    begin, program, path, bits = fringes[0], fringes[1], fringes[2], fringes[3]
    rows = codes.shape[1]
    narrow, wide = np.empty(BLOCK, np.uint16), np.empty(BLOCK, np.int64)
    for start in range(0, rows, BLOCK):
        end = min(rows, start + BLOCK)
        for f in range(first, last):
            mine = hist[offsets[f - first] : offsets[f - first] + (1 << bits[f])]
            if bits[f] <= 16:
                _keys(codes, start, end, program[begin[f] : begin[f + 1]], fringes[7], path[f], narrow)
                if len(weights):
                    for i in range(end - start):
                        mine[narrow[i]] += weights[start + i]
                else:
                    for i in range(end - start):
                        mine[narrow[i]] += 1.0
            else:
                _wide_keys(codes, start, end, program[begin[f] : begin[f + 1]], fringes[7], path[f], wide)
                for i in range(end - start):
                    mine[wide[i]] += weights[start + i] if len(weights) else 1.0


@numba.njit(cache=True, nogil=True)
def _leaf_table(hist: Any, k: Any, nodes: Any, weights: Any, moved: Any, out: Any) -> None:
    """Write each pattern's Shapley values of one leaf against the rows of a histogram, shape [k, 2^k].

    ``φ_i(p) = ∫ Σ_q H[q] (p_i - q_i) Π_{j≠i} (u p_j + (1-u) q_j) du``, a polynomial of degree k-1 in u. At a node u,
    ``G = Σ_q H[q] Π_j (u p_j + (1-u) q_j)`` is H times [[0, 1-u], [u, 1]] on every bit; the parts of q_i = 1 and
    q_i = 0 without the factor i are ``R1 = G[p_i = 0] / (1-u)`` and ``R0 = (G[p_i = 1] - R1) / u``.
    """
    size = 1 << k
    for j in range(k):
        for p in range(size):
            out[j, p] = 0.0
    for n in range(len(nodes)):
        u, weight = nodes[n], weights[n]
        for p in range(size):
            moved[p] = hist[p]
        for j in range(k):
            step = 1 << j
            for high in range(0, size, 2 * step):
                for low in range(high, high + step):
                    # [[0, 1 - u], [u, 1]] on bit j sums q_j out: the factor u p_j + (1 - u) q_j
                    zero, one = moved[low], moved[low + step]
                    moved[low], moved[low + step] = (1.0 - u) * one, u * zero + one
        for i in range(k):
            step = 1 << i
            for high in range(0, size, 2 * step):
                for low in range(high, high + step):
                    without = moved[low] / (1.0 - u)
                    out[i, low] -= weight * without
                    out[i, low + step] += weight * (moved[low + step] - without) / u


@numba.njit(cache=True, nogil=True)
def make_tables(
    hist: Any, fringes: Any, leaves: Any, first: Any, last: Any, offsets: Any, rules: Any, table_at: Any, tables: Any
) -> None:
    """Add up the leaves' tables of every fringe: the Shapley values of each key against the rows of `hist`."""
    bits, players, from_leaf = fringes[3], fringes[4], fringes[5]
    value, begin, mask, wanted, player = leaves
    widest = 0
    for f in range(first, last):
        for leaf in range(from_leaf[f], from_leaf[f + 1]):
            widest = max(widest, begin[leaf + 1] - begin[leaf])
    size = 1 << widest
    mine, moved, out = np.empty(size), np.empty(size), np.empty((max(widest, 1), size))
    for f in range(first, last):
        keys, width = 1 << bits[f], players[f]
        counted = hist[offsets[f - first] : offsets[f - first] + keys]
        table_start = table_at[f - first]  # table[player, key] is tables[table_start + player * keys + key]
        for at in range(table_start, table_start + keys * width):
            tables[at] = 0.0
        pattern = np.empty(keys, np.int64)
        for leaf in range(from_leaf[f], from_leaf[f + 1]):
            k = begin[leaf + 1] - begin[leaf]
            for key in range(keys):
                pattern[key] = 0
            for j in range(k):
                at = begin[leaf] + j
                for key in range(keys):
                    # a leaf sees of a key only which of its k columns pass all their tests
                    pattern[key] |= np.int64((key & mask[at]) == wanted[at]) << j
            for at in range(1 << k):
                mine[at] = 0.0
            for key in range(keys):
                mine[pattern[key]] += counted[key]
            # ⌈k / 2⌉ Gauss-Legendre nodes are exact for the polynomial of degree k - 1 in u
            nodes = (k + 1) // 2
            _leaf_table(mine, k, rules[k, 0, :nodes], rules[k, 1, :nodes], moved, out)
            for j in range(k):
                column = table_start + player[begin[leaf] + j] * keys
                for key in range(keys):
                    tables[column + key] += value[leaf] * out[j, pattern[key]]


@numba.njit(cache=True, nogil=True)
def project(
    codes: Any, fringes: Any, first: Any, last: Any, table_at: Any, tables: Any, names: Any, scale: Any, out: Any
) -> None:
    """Add each row's Shapley values in the fringes, times `scale`, to `out`, shape [players, n]."""
    begin, program, path, bits, players = fringes[0], fringes[1], fringes[2], fringes[3], fringes[4]
    first_name = fringes[6]
    rows = codes.shape[1]
    narrow, wide = np.empty(BLOCK, np.uint16), np.empty(BLOCK, np.int64)
    for start in range(0, rows, BLOCK):
        end = min(rows, start + BLOCK)
        for f in range(first, last):
            keys = 1 << bits[f]
            if bits[f] <= 16:
                _keys(codes, start, end, program[begin[f] : begin[f + 1]], fringes[7], path[f], narrow)
                for i in range(end - start):
                    wide[i] = narrow[i]
            else:
                _wide_keys(codes, start, end, program[begin[f] : begin[f + 1]], fringes[7], path[f], wide)
            for j in range(players[f]):
                column, name = table_at[f - first] + j * keys, names[first_name[f] + j]
                for i in range(end - start):
                    out[name, start + i] += scale * tables[column + wide[i]]


@numba.njit(cache=True, nogil=True)
def meet_tables(
    hist: Any, fringes: Any, first: Any, last: Any, offsets: Any, table_at: Any, tables: Any, names: Any, out: Any
) -> None:
    """Add the sum over keys of a histogram times tables to `out`, shape [players]."""
    bits, players, first_name = fringes[3], fringes[4], fringes[6]
    for f in range(first, last):
        width = players[f]
        keys = 1 << bits[f]
        for j in range(width):
            at, total = table_at[f - first] + j * keys, 0.0
            for key in range(keys):
                total += hist[offsets[f - first] + key] * tables[at + key]
            out[names[first_name[f] + j]] += total


@numba.njit(cache=True, nogil=True)
def logistic_slope(x: Any, y: Any, w: Any, beta: Any, slope: Any, curve: Any) -> float:
    """Return the weighted logarithmic loss at `beta`; write its gradient and its Hessian (the lower half)."""
    rows, size = x.shape
    for j in range(size):
        slope[j] = 0.0
        for k in range(size):
            curve[j, k] = 0.0
    loss = 0.0
    for i in range(rows):
        eta = 0.0
        for j in range(size):
            eta += x[i, j] * beta[j]
        # no overflow: log(1 + e^η) = max(η, 0) + log(1 + e^-|η|)
        tail = np.exp(-abs(eta))
        chance = 1.0 / (1.0 + tail) if eta >= 0 else tail / (1.0 + tail)
        loss += w[i] * (max(eta, 0.0) + np.log1p(tail) - y[i] * eta)
        away, bend = w[i] * (chance - y[i]), w[i] * chance * (1.0 - chance)
        for j in range(size):
            value = x[i, j]
            if value != 0.0:  # splines and 0-1 columns are mostly 0
                slope[j] += away * value
                for k in range(j + 1):
                    curve[j, k] += bend * value * x[i, k]
    return loss
