"""Mergeable totals: what a batch of rows becomes before a metric sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_arrow, as_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS = 4_096
"""Bins of a score histogram once there are too many distinct scores to keep."""

EXACT_SCORES = 100_000
"""Up to this many distinct scores a score table is exact."""

EXACT_CELLS = 2_000_000
"""Of a table with very many groups fewer distinct scores are kept: at most so many cells."""


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
    members, shares
        Where each row's score is drawn from K predictions: those, shape [n, K], and the chances, shape [K];
        `score` is their mean. Sums of contributions are then expectations over the draw, exactly.
    """

    outcome: NDArray[np.float64]
    decision: NDArray[np.float64] | None = None
    score: NDArray[np.float64] | None = None
    weights: NDArray[np.float64] | None = None
    origin: float = 0.0
    members: NDArray[np.float64] | None = None
    shares: NDArray[np.float64] | None = None

    def expected(self, function: Callable[[Rows], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return a function of the rows, shape [n] or [n, m], as its expectation over the draw of a member."""
        if self.members is None or self.shares is None:
            return np.asarray(function(self), dtype=np.float64)
        total: Any = 0.0
        for share, scores in zip(self.shares.tolist(), self.members.T, strict=True):
            drawn = replace(self, score=scores, members=None, shares=None)
            total = total + share * np.asarray(function(drawn), dtype=np.float64)
        return np.asarray(total)


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


class Moments(Statistic):
    """Sums of one number per row and of its square: the contributions (1, number)."""

    def __init__(self, key: str, function: Callable[[Rows], NDArray[np.float64]]) -> None:
        self._key = key
        self._function = function

    @property
    def key(self) -> str:
        """The name it was given."""
        return self._key

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> Sums:
        """Sum by group; without weights the count is the first contribution's sum."""
        values = rows.expected(self._function)
        count = np.bincount(groups, minlength=n_groups).astype(np.float64)

        def total(parts: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.asarray(np.bincount(groups, parts, n_groups), dtype=np.float64)

        if rows.weights is None:
            mass, first, squares, mixed = count, total(values), count, None
        else:
            squared = rows.weights**2
            mass, first = total(rows.weights), total(rows.weights * values)
            squares, mixed = total(squared), total(squared * values)
            values = rows.weights * values
        cross = first if mixed is None else mixed
        second = np.stack([np.stack([squares, cross], 1), np.stack([cross, total(values**2)], 1)], 1)
        return Sums(count, np.stack([mass, first], 1), second)


@dataclass(frozen=True, slots=True)
class _Raw:
    """Scores that were not counted yet: score, cell (group and outcome), weight and its square, by row."""

    scores: NDArray[np.float64]
    cells: NDArray[np.int64]
    weights: NDArray[np.float64] | None
    n_groups: int
    squared: NDArray[np.float64] | None = None

    def count(self, places: NDArray[np.int64], size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return Σ w and Σ w² by place and cell, each [size, G, 2]; one array where all weights are 1."""
        shape = (size, self.n_groups, 2)
        flat = places * (2 * self.n_groups) + self.cells
        mass = (
            np.bincount(flat, self.weights, int(np.prod(shape))).astype(np.float64, copy=False).reshape(shape)
        )
        if self.weights is None:
            return mass, mass
        squared = self.weights**2 if self.squared is None else self.squared
        squares = np.bincount(flat, squared, int(np.prod(shape))).astype(np.float64, copy=False)
        return mass, squares.reshape(shape)


class ScoreTable:
    """How scores are distributed per group and outcome: exact while few are distinct, else in bins.

    The rows of a batch are counted when that is needed: to add a batch to a table that is binned already, its
    distinct scores need not be found.

    Attributes
    ----------
    low, high
        The range of the bins; scores beyond it count in the outermost bins.
    limit
        The most distinct scores that are kept.
    """

    def __init__(
        self,
        values: NDArray[np.float64],
        mass: NDArray[np.float64],
        squares: NDArray[np.float64],
        *,
        exact: bool,
        low: float,
        high: float,
        limit: int,
        raw: _Raw | None = None,
    ) -> None:
        self._values, self._mass, self._squares, self._exact = values, mass, squares, exact
        self.low, self.high, self.limit = low, high, limit
        self._raw = raw

    def __getstate__(self) -> dict[str, Any]:
        """Count the rows before the table goes to another process: totals travel, rows do not."""
        return self._counted().__dict__

    @classmethod
    def of(cls, raw: _Raw, low: float, high: float, limit: int) -> ScoreTable:
        """Make a table of rows that are counted later."""
        nothing = np.empty((0, raw.n_groups, 2))
        return cls(np.empty(0), nothing, nothing, exact=True, low=low, high=high, limit=limit, raw=raw)

    @property
    def values(self) -> NDArray[np.float64]:
        """Distinct scores, increasing, shape [U]; the bins' lower edges once binned."""
        return self._counted()._values

    @property
    def mass(self) -> NDArray[np.float64]:
        """Σ w, shape [U, G, 2] with the outcome last."""
        return self._counted()._mass

    @property
    def squares(self) -> NDArray[np.float64]:
        """Σ w², the same shape."""
        return self._counted()._squares

    @property
    def exact(self) -> bool:
        """False once the scores went into bins; whether they do does not depend on the order of the rows."""
        return self._counted()._exact

    def __add__(self, other: ScoreTable) -> ScoreTable:
        if self._binned_already() or other._binned_already() or self._surely_many(other):
            return self.binned()._plus(other.binned())
        if self.exact and other.exact:
            values = np.union1d(self.values, other.values)
            if len(values) <= self.limit:
                return self._spread(values)._plus(other._spread(values))
            # more distinct scores than are kept: both sides go into bins
        return self.binned()._plus(other.binned())

    def binned(self) -> ScoreTable:
        """Put the scores into the fixed bins."""
        if self._binned_already():
            return self
        raw, places = self._raw, None
        if raw is not None:
            mass, squares = raw.count(bin_index(raw.scores, self.low, self.high), BINS)
        else:
            places = bin_index(self._values, self.low, self.high)
            mass = _add_up(self._mass, places, BINS)
            squares = mass if self._squares is self._mass else _add_up(self._squares, places, BINS)
        edges = self.low + (self.high - self.low) * np.arange(BINS) / BINS
        return self._like(edges, mass, squares, exact=False)

    def pooled(self) -> ScoreTable:
        """All groups as one, shape [U, 1, 2]."""
        mass = self.mass.sum(axis=1, keepdims=True)
        squares = mass if self._squares is self._mass else self.squares.sum(axis=1, keepdims=True)
        return self._like(self.values, mass, squares, exact=self.exact)

    def histogram(self, bins: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return a coarse histogram: edges [bins + 1] and masses [bins, G, 2], for charts."""
        edges = np.linspace(self.low, self.high, bins + 1)
        places = np.clip(np.searchsorted(edges, self.values, side="right") - 1, 0, bins - 1)
        return edges, _add_up(self.mass, places, bins)

    def _surely_many(self, other: ScoreTable) -> bool:
        """Whether uncounted rows hold more distinct scores than are kept; quicker than counting both."""
        raws = [table._raw.scores for table in (self, other) if table._raw is not None]
        rows = sum(len(scores) for scores in raws)
        return rows > self.limit and _unique_count(np.concatenate(raws)) > self.limit

    def _binned_already(self) -> bool:
        return self._raw is None and not self._exact

    def _counted(self) -> ScoreTable:
        """Count the rows: distinct scores where they are few enough, else bins."""
        raw = self._raw
        if raw is None:
            return self
        found = _distinct(raw.scores, self.limit)
        if found is None:
            other = self.binned()
            self._values, self._mass, self._squares, self._exact = (
                other._values,
                other._mass,
                other._squares,
                False,
            )
        else:
            self._values, places = found
            self._mass, self._squares = raw.count(places, len(self._values))
        self._raw = None
        return self

    def _spread(self, values: NDArray[np.float64]) -> ScoreTable:
        """Return the same table with rows of zeros for the values that it lacks."""
        if len(values) == len(self.values):
            return self
        places = np.searchsorted(values, self.values)
        mass = np.zeros((len(values), *self._mass.shape[1:]))
        mass[places] = self._mass
        squares = mass
        if self._squares is not self._mass:
            squares = np.zeros_like(mass)
            squares[places] = self._squares
        return self._like(values, mass, squares, exact=True)

    def _plus(self, other: ScoreTable) -> ScoreTable:
        """Add a table of the same values."""
        mass = self._mass + other._mass
        plain = self._squares is self._mass and other._squares is other._mass
        return self._like(
            self._values, mass, mass if plain else self._squares + other._squares, exact=self._exact
        )

    def _like(
        self,
        values: NDArray[np.float64],
        mass: NDArray[np.float64],
        squares: NDArray[np.float64],
        *,
        exact: bool,
    ) -> ScoreTable:
        return ScoreTable(values, mass, squares, exact=exact, low=self.low, high=self.high, limit=self.limit)


class Scores(Statistic):
    """The score table, for distances between distributions, ROC curves and calibration."""

    def __init__(self, low: float = 0.0, high: float = 1.0, limit: int = EXACT_SCORES) -> None:
        self.low, self.high, self.limit = low, high, limit

    key = "scores"

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> ScoreTable:
        """Note the rows; they are counted when the table is read or merged."""
        assert rows.score is not None  # noqa: S101 -- the auditor asks only where there are scores
        cells = 2 * groups + (rows.outcome > 0.5)
        limit = max(min(self.limit, EXACT_CELLS // n_groups), 1)
        raw = _Raw(rows.score, cells, rows.weights, n_groups)
        if rows.members is not None and rows.shares is not None:
            raw = _drawn(raw, rows.members, rows.shares)
        return ScoreTable.of(raw, self.low, self.high, limit)


def _drawn(raw: _Raw, members: NDArray[np.float64], shares: NDArray[np.float64]) -> _Raw:
    """Return every row once for each score that it may draw, weighted by the chance.

    The square of a weight is split by chance too: rows are what is sampled, and a row that is spread over
    several scores counts as one row, not as several small ones.
    """
    base = np.ones(len(members)) if raw.weights is None else raw.weights
    return _Raw(
        scores=members.T.ravel(),
        cells=np.tile(raw.cells, len(shares)),
        weights=np.outer(shares, base).ravel(),
        n_groups=raw.n_groups,
        squared=np.outer(shares, base**2).ravel(),
    )


def _distinct(
    scores: NDArray[np.float64], limit: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]] | None:
    """Return the distinct scores, increasing, and each row's place among them; None where there are too many.

    Arrow's dictionary is a hash table: for scores that repeat it is ten times faster than sorting them.
    """
    head = scores[: 2 * limit]
    if len(head) < len(scores) and _unique_count(head) > limit:
        return None
    coded = as_arrow(scores).dictionary_encode()
    values, order = np.unique(as_numpy(coded.dictionary), return_inverse=True)
    if len(values) > limit:
        return None
    return values, order[as_numpy(coded.indices)].astype(np.int64, copy=False)


def _unique_count(scores: NDArray[np.float64]) -> int:
    return len(as_arrow(scores).unique()) - int((scores == 0).any())  # 0 and -0 are one score


def _add_up(mass: NDArray[np.float64], places: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Add up the rows of `mass` [U, G, 2] that have the same place; places do not decrease."""
    sums = np.zeros((size, *mass.shape[1:]))
    if len(places):
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        sums[places[starts]] = np.add.reduceat(mass, starts, axis=0)
    return sums


def bin_index(scores: NDArray[np.float64], low: float, high: float) -> NDArray[np.int64]:
    """Return each score's bin, from 0 to `BINS` - 1."""
    width = (high - low) or 1.0
    return np.clip((scores - low) * (BINS / width), 0, BINS - 1).astype(np.int64)
