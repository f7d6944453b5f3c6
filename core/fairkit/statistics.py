"""Mergeable totals: what a batch of rows becomes before a metric sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fairkit.totals.rows import CellSums, MomentSums, Rows, Statistic, Sums
from fairkit.totals.scores import EXACT_SCORES, Scores, ScoreTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = [
    "EXACT_SCORES", "CellSums", "Confusion", "Contributions", "MomentSums", "Moments", "Rows", "ScoreTable", "Scores",
    "Statistic", "Sums",
]  # fmt: skip


class Confusion(Statistic):
    """The soft confusion cells: per group and outcome the sums of 1-h and of h.

    A row with decision probability h adds 1-h to its outcome's first cell and h to the second, so that a
    randomized decision is measured exactly. The four contributions are, in this order, (outcome 0, no),
    (outcome 0, yes), (outcome 1, no), (outcome 1, yes).
    """

    key = "confusion"

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> Sums:
        """Count cells; hard, unweighted decisions need one pass of counting."""
        assert rows.decision is not None  # noqa: S101 -- the auditor asks only where there are decisions
        cell = 2 * groups + (rows.outcome > 0.5)
        yes = rows.decision
        if rows.weights is None and bool(((yes == 0) | (yes == 1)).all()):
            counts = np.bincount(2 * cell + (yes > 0.5), minlength=4 * n_groups).astype(np.float64)
            first = counts.reshape(n_groups, 4)
            yes_no = counts.reshape(n_groups, 2, 2)
            every, chosen = yes_no.sum(axis=2), yes_no[:, :, 1]
            cubes = np.stack([every, chosen, chosen, chosen], axis=2)
            return CellSums(first.sum(axis=1), first, first[:, :, None] * np.eye(4), cubes)
        return self._soft(cell, yes, rows.weights, n_groups)

    def first_sums(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> NDArray[np.float64]:
        """Count cells."""
        assert rows.decision is not None  # noqa: S101 -- the auditor asks only where there are decisions
        cell = 2 * (2 * groups + (rows.outcome > 0.5))
        yes = rows.decision
        if rows.weights is None and bool(((yes == 0) | (yes == 1)).all()):
            whole = np.bincount(cell + (yes > 0.5), minlength=4 * n_groups)
            return whole.astype(np.float64).reshape(n_groups, 4)
        w = np.ones_like(yes) if rows.weights is None else rows.weights
        size = 4 * n_groups
        soft = np.bincount(cell, w * (1 - yes), size) + np.bincount(cell + 1, w * yes, size)
        return np.asarray(soft, dtype=np.float64).reshape(n_groups, 4)

    @staticmethod
    def _soft(
        cell: NDArray[np.int64], yes: NDArray[np.float64], weights: NDArray[np.float64] | None, n_groups: int
    ) -> Sums:
        size = 2 * n_groups
        w = np.ones_like(yes) if weights is None else weights
        no = 1 - yes

        def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.bincount(cell, values, size).astype(np.float64).reshape(n_groups, 2)

        first = np.stack([total(w * no), total(w * yes)], axis=2).reshape(n_groups, 4)
        second = np.zeros((n_groups, 2, 2, 2, 2))
        squares = [[total(w**2 * a * b) for b in (no, yes)] for a in (no, yes)]
        for outcome in (0, 1):
            for i in (0, 1):
                for j in (0, 1):
                    second[:, outcome, i, outcome, j] = squares[i][j][:, outcome]
        count = np.bincount(cell, minlength=size).reshape(n_groups, 2).sum(axis=1).astype(np.float64)
        cubes = np.stack([total(w**3 * yes**power) for power in range(4)], axis=2)
        return CellSums(count, first, second.reshape(n_groups, 4, 4), cubes)


class Contributions(Statistic):
    """Sums of contributions that a function computes from the rows, shape [n, m]."""

    def __init__(self, key: str, function: Callable[[Rows], NDArray[np.float64]]) -> None:
        self.key, self._function = key, function

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> Sums:
        """Sum the contributions and their products by group."""
        parts = rows.expected(self._function)
        parts = parts[:, None] if parts.ndim == 1 else parts
        weights = np.ones(len(parts)) if rows.weights is None else rows.weights
        width = parts.shape[1]

        def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.bincount(groups, values, n_groups).astype(np.float64)

        first = np.stack([total(weights * parts[:, i]) for i in range(width)], axis=1)
        second = np.empty((n_groups, width, width))
        for i in range(width):
            for j in range(i, width):
                second[:, i, j] = second[:, j, i] = total(weights**2 * parts[:, i] * parts[:, j])
        return Sums(np.bincount(groups, minlength=n_groups).astype(np.float64), first, second)

    def first_sums(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> NDArray[np.float64]:
        """Sum the contributions."""
        parts = rows.expected(self._function)
        parts = parts[:, None] if parts.ndim == 1 else parts
        weighted = parts if rows.weights is None else parts * rows.weights[:, None]
        return np.stack([np.bincount(groups, column, n_groups) for column in weighted.T], axis=1)


class Moments(Statistic):
    """Sums of one number per row and of its powers: the contributions (1, number), and what the tails tell."""

    def __init__(
        self,
        key: str,
        function: Callable[[Rows], Array],
        flipped: Callable[[Rows], float] | None = None,
        *,
        centred: bool = False,
        certain: Callable[[Rows], Array | None] | None = None,
    ) -> None:
        self.key, self._function, self._flipped, self._centred = key, function, flipped, centred
        self._certain = certain

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> MomentSums:
        """Sum by group; without weights the count is the first contribution's sum."""
        values = rows.expected(self._function)
        count = np.bincount(groups, minlength=n_groups).astype(np.float64)
        origin = rows.origin if self._centred else 0.0
        powers = self._powers(values - origin if origin else values, rows.weights, groups, count)
        mass, moved, squares, cross, square = (powers[:, i] for i in range(5))
        first = np.stack([mass, moved + origin * mass], axis=1)
        mixed = cross + origin * squares
        centered = square + 2 * origin * cross + origin**2 * squares
        second = np.stack([np.stack([squares, mixed], 1), np.stack([mixed, centered], 1)], 1)
        least, most = (values.min(), values.max()) if len(values) else (np.inf, -np.inf)
        return MomentSums(
            count, first, second, powers, np.array([least]), np.array([most]), self._reach(rows, len(values)),
            self._sure(rows, groups, n_groups),
        )  # fmt: skip

    def _sure(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> Array:
        both = None if self._certain is None else self._certain(rows)
        if both is None:
            return np.zeros((n_groups, 2))
        weights = 1.0 if rows.weights is None else rows.weights
        return np.stack([np.bincount(groups, weights * column, n_groups) for column in both.T], axis=1)

    def first_sums(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> NDArray[np.float64]:
        """Sum (1, number)."""
        values = rows.expected(self._function)
        weights = rows.weights
        mass = np.bincount(groups, weights, n_groups).astype(np.float64)
        return np.stack([mass, np.bincount(groups, values if weights is None else weights * values, n_groups)], axis=1)

    @staticmethod
    def _powers(values: Array, weights: Array | None, groups: NDArray[np.int64], count: Array) -> Array:
        def total(parts: Array) -> Array:
            return np.asarray(np.bincount(groups, parts, len(count)), dtype=np.float64)

        squared = values * values
        if weights is None:
            first, two = total(values), total(squared)
            sums = [count, first, count, first, two, count, first, two, total(squared * values)]
        else:
            w2, w3 = weights**2, weights**3
            sums = [total(weights), total(weights * values)]
            sums += [total(w2), total(w2 * values), total(w2 * squared)]
            sums += [total(w3), total(w3 * values), total(w3 * squared), total(w3 * squared * values)]
        return np.stack(sums, axis=1)

    def _reach(self, rows: Rows, n: int) -> Array:
        if self._flipped is None:
            return np.zeros(2)
        return np.array([self._flipped(rows), float(n) if rows.weights is None else rows.weights.sum()])
