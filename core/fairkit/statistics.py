"""Mergeable totals: what a batch of rows becomes before a metric sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS = 4_096
"""Bins of a score histogram once there are too many distinct scores to keep."""

EXACT_SCORES = 100_000
"""Up to this many distinct scores a score table is exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What statistics are made from: n rows of outcomes and predictions.

    Attributes
    ----------
    outcome
        Shape [n]. Binary: 1 where the label is favorable, else 0. Regression: the target.
    decision
        The probability of the favorable decision, in [0, 1], shape [n]; None where there is none.
    score
        The probability of the favorable label in [0, 1], or the predicted value, shape [n]; None without scores.
    weights
        Sample weights, shape [n]; None where all are 1.
    origin
        A number amid the targets, the same for all rows of a table: sums of squares of ``outcome - origin``
        keep the digits that those of the outcome would lose.
    """

    outcome: NDArray[np.float64]
    decision: NDArray[np.float64] | None = None
    score: NDArray[np.float64] | None = None
    weights: NDArray[np.float64] | None = None
    origin: float = 0.0


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of per-row contributions, group by group; adding two is merging two sets of rows.

    Attributes
    ----------
    count
        Rows, shape [G].
    first
        Σ w s, shape [G, m], for per-row contributions s in R^m and weights w.
    second
        Σ w² s sᵀ, shape [G, m, m]: the covariance of `first` when rows are resampled (Poisson bootstrap).
    """

    count: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.count + other.count, self.first + other.first, self.second + other.second)

    def pooled(self) -> Sums:
        """All groups as one, shape [1, ...]."""
        return Sums(*(part.sum(axis=0, keepdims=True) for part in (self.count, self.first, self.second)))


class Statistic(ABC):
    """A way to turn rows into totals that add up. Two metrics with one statistic share its totals."""

    @property
    @abstractmethod
    def key(self) -> str:
        """What tells this statistic from others."""

    @abstractmethod
    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> Any:
        """Total the rows by group; the result has ``+`` and ``pooled()``."""


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
            return Sums(first.sum(axis=1), first, first[:, :, None] * np.eye(4))
        return self._soft(cell, yes, rows.weights, n_groups)

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
        return Sums(count, first, second.reshape(n_groups, 4, 4))


class Contributions(Statistic):
    """Sums of contributions that a function computes from the rows, shape [n, m]."""

    def __init__(self, key: str, function: Callable[[Rows], NDArray[np.float64]]) -> None:
        self._key = key
        self._function = function

    @property
    def key(self) -> str:
        """The name it was given."""
        return self._key

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> Sums:
        """Sum the contributions and their products by group."""
        parts = np.asarray(self._function(rows), dtype=np.float64)
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


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """How scores are distributed per group and outcome: exact while few are distinct, else in bins.

    Attributes
    ----------
    values
        Distinct scores, increasing, shape [U]; the bins' lower edges once binned.
    mass
        Σ w, shape [U, G, 2] with the outcome last.
    squares
        Σ w², the same shape.
    exact
        False once the scores went into bins; whether they do does not depend on the order of the rows.
    low, high
        The range of the bins; scores beyond it count in the outermost bins.
    limit
        The most distinct scores that are kept.
    """

    values: NDArray[np.float64]
    mass: NDArray[np.float64]
    squares: NDArray[np.float64]
    exact: bool
    low: float
    high: float
    limit: int

    def __add__(self, other: ScoreTable) -> ScoreTable:
        if self.exact and other.exact:
            values = np.union1d(self.values, other.values)
            if len(values) <= self.limit:
                return self._spread(values) + other._spread(values) if len(values) else self
            # more distinct scores than are kept: both sides go into bins
        if self.exact or other.exact or len(self.values) != len(other.values):
            return self.binned() + other.binned()
        return ScoreTable(
            self.values,
            self.mass + other.mass,
            self.squares + other.squares,
            False,
            self.low,
            self.high,
            self.limit,
        )

    def _spread(self, values: NDArray[np.float64]) -> _Aligned:
        places = np.searchsorted(values, self.values)
        shape = (len(values), *self.mass.shape[1:])
        mass, squares = np.zeros(shape), np.zeros(shape)
        mass[places], squares[places] = self.mass, self.squares
        return _Aligned(values, mass, squares, self)

    def binned(self) -> ScoreTable:
        """Put the scores into the fixed bins."""
        if not self.exact:
            return self
        places = bin_index(self.values, self.low, self.high)
        shape = (BINS, *self.mass.shape[1:])
        mass, squares = np.zeros(shape), np.zeros(shape)
        np.add.at(mass, places, self.mass)
        np.add.at(squares, places, self.squares)
        edges = self.low + (self.high - self.low) * np.arange(BINS) / BINS
        return ScoreTable(edges, mass, squares, False, self.low, self.high, self.limit)

    def pooled(self) -> ScoreTable:
        """All groups as one, shape [U, 1, 2]."""
        return ScoreTable(
            self.values,
            self.mass.sum(axis=1, keepdims=True),
            self.squares.sum(axis=1, keepdims=True),
            self.exact,
            self.low,
            self.high,
            self.limit,
        )

    def histogram(self, bins: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give a coarse histogram: edges [bins + 1] and masses [bins, G, 2], for charts."""
        edges = np.linspace(self.low, self.high, bins + 1)
        places = np.clip(np.searchsorted(edges, self.values, side="right") - 1, 0, bins - 1)
        mass = np.zeros((bins, *self.mass.shape[1:]))
        np.add.at(mass, places, self.mass)
        return edges, mass


@dataclass(frozen=True, slots=True)
class _Aligned:
    """A table whose rows stand for the union of two tables' scores."""

    values: NDArray[np.float64]
    mass: NDArray[np.float64]
    squares: NDArray[np.float64]
    origin: ScoreTable

    def __add__(self, other: Self) -> ScoreTable:
        o = self.origin
        mass, squares = self.mass + other.mass, self.squares + other.squares
        return ScoreTable(self.values, mass, squares, True, o.low, o.high, o.limit)


class Scores(Statistic):
    """The score table, for distances between distributions, ROC curves and calibration."""

    def __init__(self, low: float = 0.0, high: float = 1.0, limit: int = EXACT_SCORES) -> None:
        self.low, self.high, self.limit = low, high, limit

    key = "scores"

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> ScoreTable:
        """Count distinct scores, or bins where there are more distinct scores than are kept."""
        assert rows.score is not None  # noqa: S101 -- the auditor asks only where there are scores
        exact = len(rows.score) <= self.limit or _few(rows.score, self.limit)
        if exact:
            values, places = np.unique(rows.score, return_inverse=True)
        else:
            values = self.low + (self.high - self.low) * np.arange(BINS) / BINS
            places = bin_index(rows.score, self.low, self.high)
        outcome = (rows.outcome > 0.5).astype(np.int64)
        cell = (places * n_groups + groups) * 2 + outcome
        shape = (len(values), n_groups, 2)
        mass = np.bincount(cell, rows.weights, int(np.prod(shape))).astype(np.float64).reshape(shape)
        squares: NDArray[np.float64] = mass
        if rows.weights is not None:
            squares = (
                np.bincount(cell, rows.weights**2, int(np.prod(shape))).astype(np.float64).reshape(shape)
            )
        return ScoreTable(values, mass, squares, exact, self.low, self.high, self.limit)


def _few(scores: NDArray[np.float64], limit: int) -> bool:
    """Whether there are at most `limit` distinct scores; a sample mostly tells without sorting all."""
    if len(np.unique(scores[: 2 * limit])) > limit:
        return False
    return len(np.unique(scores)) <= limit


def bin_index(scores: NDArray[np.float64], low: float, high: float) -> NDArray[np.int64]:
    """Give each score's bin, from 0 to `BINS` - 1."""
    width = (high - low) or 1.0
    return np.clip((scores - low) * (BINS / width), 0, BINS - 1).astype(np.int64)
