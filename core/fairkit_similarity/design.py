"""Encoded columns as they are multiplied: numbers as a matrix, categories of many values as codes.

A column of v categories has one 1 in each row of its v features. Products with it are lookups and counts, so
the weighted Gram matrix of n rows costs n for each pair of columns and not n v².
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fairkit_similarity.encode import Columns, Encoder, Floats, Ints

FEW = 4
"""Columns with at most so many categories join the matrix of numbers, where products are fastest."""


@dataclass(frozen=True, slots=True, eq=False)
class _Codes:
    """One column of many categories."""

    places: Ints  # the numbers of its features, shape (v,)
    code: Ints  # which of them is 1 in each row, shape (n,); v where all are 0

    @property
    def size(self) -> int:
        """How many codes there are, with that of none."""
        return len(self.places) + 1


class Design:
    """The features of n rows, with a constant feature at the end, without those of some columns."""

    def __init__(self, encoder: Encoder, columns: Columns, without: str) -> None:
        dense, sparse, positions, start = [], [], [], 0
        for encoding in encoder.columns:
            width = len(encoding.features)
            places = np.arange(start, start + width)
            start += width
            if encoding.name == without:
                continue
            positions.append(places)
            values = np.asarray(columns[encoding.name])
            if encoding.kind == "number" or width <= FEW:
                dense.append((places, encoding.encode(values)))
            else:
                code = encoding.codes(values)
                sparse.append(_Codes(places, np.where(code < 0, width, code)))
        rows = len(np.asarray(columns[encoder.columns[0].name]))
        self.kept: Ints = np.concatenate(positions) if positions else np.zeros(0, np.int64)
        self._place = np.full(start + 1, -1)
        self._place[self.kept] = np.arange(len(self.kept))
        self._place[-1] = len(self.kept)
        constant = (np.array([start]), np.ones((rows, 1)))
        self._numbers: Floats = np.ascontiguousarray(np.hstack([block for _, block in [*dense, constant]]).T)
        self._of_numbers = self._place[np.concatenate([places for places, _ in [*dense, constant]])]
        self._codes = [_Codes(self._place[each.places], each.code) for each in sparse]
        self.rows = rows

    @property
    def width(self) -> int:
        """How many coefficients there are, with the constant's."""
        return len(self.kept) + 1

    def times(self, coefficients: Floats) -> Floats:
        """Return the linear predictor of each row, shape (n,)."""
        total: Floats = coefficients[self._of_numbers] @ self._numbers
        for column in self._codes:
            total += np.append(coefficients[column.places], 0.0)[column.code]
        return total

    def transposed(self, values: Floats) -> Floats:
        """Return Xᵀ v for one number v for each row, shape (d + 1,)."""
        total = np.empty(self.width)
        total[self._of_numbers] = self._numbers @ values
        for column in self._codes:
            total[column.places] = _counted(column.code, values, column.size)[:-1]
        return total

    def grams(self, weights: Floats) -> Floats:
        """Return Xᵀ diag(w) X for each of K rows of weights, shape (K, d + 1, d + 1)."""
        total = np.zeros((len(weights), self.width, self.width))
        for k, each in enumerate(weights):
            weighted = self._numbers * each
            total[k][np.ix_(self._of_numbers, self._of_numbers)] = weighted @ self._numbers.T
            for column in self._codes:
                block = np.stack([_counted(column.code, row, column.size)[:-1] for row in weighted])
                _put(total[k], self._of_numbers, column.places, block)
                total[k][column.places, column.places] = block[-1]  # the constant's row: sums of weights
        for one, other in itertools.combinations(self._codes, 2):
            code = one.code * other.size + other.code
            for k, each in enumerate(weights):
                counted = _counted(code, each, one.size * other.size).reshape(one.size, other.size)
                _put(total[k], one.places, other.places, counted[:-1, :-1])
        return total

    def dense(self) -> Floats:
        """Return the matrix itself, shape (n, d), without the constant."""
        whole = np.zeros((self.rows, self.width))
        whole[:, self._of_numbers] = self._numbers.T
        for column in self._codes:
            known = np.flatnonzero(column.code < len(column.places))
            whole[known, column.places[column.code[known]]] = 1.0
        return whole[:, :-1]


def _put(total: Floats, rows: Ints, columns: Ints, block: Floats) -> None:
    """Put a block at its place and its mirror's."""
    total[np.ix_(rows, columns)] = block
    total[np.ix_(columns, rows)] = block.T


def _counted(code: Ints, weights: Floats, size: int) -> Floats:
    """Return the sum of the weights of each code."""
    return np.bincount(code, weights, size).astype(np.float64, copy=False)
