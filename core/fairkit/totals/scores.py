"""How scores are distributed per group and outcome: a table of distinct scores, or of cells of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow_types import as_arrow, as_numpy
from fairkit.support.lazy_dataclass import dataclass
from fairkit.totals.rows import Rows, Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Keys = NDArray[np.int64]


EXACT_SCORES = 100_000
"""Up to this many distinct scores a score table is exact."""

EXACT_CELLS = 2_000_000
"""Of a table with very many groups fewer distinct scores are kept: at most so many cells."""

_WAITING = 1 << 20
"""So many rows at most wait to be counted."""

_FIRST = 1 << 17
"""So many rows without weights wait for the first count, which sorts them; it finds most of the cells of the others."""


@dataclass(frozen=True, slots=True)
class _Raw:
    """Scores that were not counted yet: score, cell (group and outcome), weight and its square, by row."""

    scores: Array
    cells: NDArray[np.int32]
    weights: Array | None
    n_groups: int
    squared: Array | None = None

    def count(self, places: NDArray[np.int64], size: int) -> tuple[Array, Array]:
        """Return Σ w and Σ w² by place and cell, each [size, G, 2]; one array where all weights are 1."""
        shape = (size, self.n_groups, 2)
        flat = places * (2 * self.n_groups)
        flat += self.cells
        mass = np.bincount(flat, self.weights, int(np.prod(shape))).astype(np.float64, copy=False).reshape(shape)
        if self.weights is None:
            return mass, mass
        squared = self.weights**2 if self.squared is None else self.squared
        squares = np.bincount(flat, squared, int(np.prod(shape))).astype(np.float64, copy=False)
        return mass, squares.reshape(shape)


def _joined(raws: tuple[_Raw, ...]) -> _Raw:
    """Return waiting rows as one; weights of 1 are written out where others have weights."""
    if len(raws) == 1:
        return raws[0]
    weights = squared = None
    if any(raw.weights is not None for raw in raws):
        given = [np.ones(len(raw.scores)) if raw.weights is None else raw.weights for raw in raws]
        weights = np.concatenate(given)
        squares = [w**2 if raw.squared is None else raw.squared for raw, w in zip(raws, given, strict=True)]
        squared = np.concatenate(squares)
    return _Raw(
        np.concatenate([raw.scores for raw in raws]),
        np.concatenate([raw.cells for raw in raws]),
        weights,
        raws[0].n_groups,
        squared,
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    """Rows that were counted: by distinct score (`shift` is None), or by cell.

    `least` and `most` are the smallest and the largest score of each place; `keys` the places' cells.
    """

    least: Array
    most: Array
    mass: Array
    squares: Array
    shift: int | None = None
    keys: NDArray[np.int64] | None = None

    def at(self, size: int, places: NDArray[np.intp]) -> tuple[Array, Array]:
        """Return masses and squares spread over, or added up at, `size` places."""
        mass = _add_up(self.mass, places, size)
        return mass, mass if self.squares is self.mass else _add_up(self.squares, places, size)


class ScoreTable:
    """How scores are distributed per group and outcome: exact while few are distinct, else in cells.

    The rows of a batch are counted when that is needed: many at once, or when the table is read or sent.
    """

    def __init__(
        self,
        low: float,
        high: float,
        limit: int,
        n_groups: int,
        raws: tuple[_Raw, ...] = (),
        counted: _Counted | None = None,
        budget: int = EXACT_CELLS,
    ) -> None:
        self.low, self.high, self.limit, self.n_groups, self.budget = low, high, limit, n_groups, budget
        self._state = raws, counted

    def __getstate__(self) -> dict[str, Any]:
        """Count the rows before the table goes to another process: totals travel, rows do not."""
        self._counted()
        return self.__dict__

    @property
    def values(self) -> Array:
        """Distinct scores, increasing, shape [U]; of cells the largest score in each."""
        return self._counted().most

    @property
    def middles(self) -> Array:
        """The middle of the smallest and the largest score of each place, shape [U]."""
        counted = self._counted()
        return (counted.least + counted.most) / 2

    @property
    def mass(self) -> Array:
        """Σ w, shape [U, G, 2] with the outcome last."""
        return self._counted().mass

    @property
    def squares(self) -> Array:
        """Σ w², the same shape."""
        return self._counted().squares

    @property
    def exact(self) -> bool:
        """False once the scores went into cells; whether they do does not depend on the order of the rows."""
        return self._counted().shift is None

    @property
    def mixed(self) -> NDArray[np.bool_]:
        """Which places hold several distinct scores, so that their order was lost; shape [U]."""
        counted = self._counted()
        return counted.least < counted.most

    def __add__(self, right: ScoreTable) -> ScoreTable:
        (mine, one), (theirs, two) = self._state, right._state
        both = [part for part in (one, two) if part is not None]
        done = self._merged(*both) if len(both) == 2 else next(iter(both), None)
        total = ScoreTable(self.low, self.high, self.limit, self.n_groups, mine + theirs, done, self.budget)
        most = _FIRST if done is None and mine and mine[0].weights is None else _WAITING
        if sum(len(raw.scores) for raw in mine + theirs) > most:
            total._counted()
        return total

    def pooled(self) -> ScoreTable:
        """All groups as one, shape [U, 1, 2]."""
        return self.regrouped(1)

    def regrouped(self, groups: int) -> ScoreTable:
        """Add up every K-th group: [U, K groups, 2] becomes [U, groups, 2]."""
        counted = self._counted()

        def folded(part: Array) -> Array:
            return np.asarray(part.reshape(len(part), self.n_groups // groups, groups, 2).sum(axis=1))

        mass = folded(counted.mass)
        squares = mass if counted.squares is counted.mass else folded(counted.squares)
        one = _Counted(counted.least, counted.most, mass, squares, counted.shift, counted.keys)
        return ScoreTable(self.low, self.high, self.limit, groups, (), one, self.budget)

    def histogram(self, bins: int) -> tuple[Array, Array]:
        """Return a coarse histogram: edges [bins + 1] and masses [bins, G, 2], for charts."""
        edges = np.linspace(self.low, self.high, bins + 1)
        places = np.clip(np.searchsorted(edges, self.middles, side="right") - 1, 0, bins - 1)
        return edges, _add_up(self.mass, places, bins)

    @property
    def _unit(self) -> bool:
        return self.low == 0 and self.high == 1

    @property
    def _cells(self) -> int:
        return int(min(CELLS, max(self.budget // self.n_groups, 64)))

    def _counted(self) -> _Counted:
        """Count the rows that wait: distinct scores where they are few enough, else in cells.

        What waits and what is counted change together, in one step: a worker's threads may ask for it at once.
        """
        raws, done = self._state
        if raws and done is not None and done.shift is not None:
            raws, done = self._in_known_cells(raws, done, done.shift)
        if raws:
            raw = _joined(raws)
            cellular = done is not None and done.shift is not None
            distinct = None if cellular else _distinct(raw.scores, self.limit)
            fresh = self._in_cells(raw, done) if distinct is None else _by_score(raw, *distinct)
            done = fresh if done is None else self._merged(done, fresh)
        if done is None:
            nothing = np.empty((0, self.n_groups, 2))
            done = _Counted(np.empty(0), np.empty(0), nothing, nothing)
        self._state = (), done
        return done

    def _merged(self, left: _Counted, right: _Counted) -> _Counted:
        if left.shift is None and right.shift is None:
            values = np.union1d(left.most, right.most)
            if len(values) <= self.limit:
                return _on(values, values, values, (left, right), (left.most, right.most), None, None)
        left, right = self._coarse(left), self._coarse(right)
        assert left.keys is not None  # noqa: S101 -- coarse counts have keys
        assert right.keys is not None  # noqa: S101 -- coarse counts have keys
        shift = max(left.shift or 0, right.shift or 0)
        keys = np.union1d(left.keys >> (shift - (left.shift or 0)), right.keys >> (shift - (right.shift or 0)))
        more = shift_for(keys << shift, self._cells, shift)
        keys = np.unique(keys >> (more - shift))
        part_keys = tuple(part.keys >> (more - (part.shift or 0)) for part in (left, right) if part.keys is not None)
        least, most = np.full(len(keys), np.inf), np.full(len(keys), -np.inf)
        for part, mine in zip((left, right), part_keys, strict=True):
            places = np.searchsorted(keys, mine)
            np.minimum.at(least, places, part.least)
            np.maximum.at(most, places, part.most)
        return _on(keys, least, most, (left, right), part_keys, more, keys)

    def _coarse(self, counted: _Counted) -> _Counted:
        """Put distinct scores into cells."""
        if counted.shift is not None:
            return counted
        keys = keys_of(counted.most, unit=self._unit)
        shift = shift_for(keys, self._cells)
        cells, starts = cells_of(keys, shift)
        places = np.searchsorted(cells, keys >> shift)
        mass, squares = counted.at(len(cells), places)
        ends = np.append(starts[1:], len(keys)) - 1
        return _Counted(counted.most[starts], counted.most[ends], mass, squares, shift, cells)

    def _in_known_cells(self, raws: tuple[_Raw, ...], done: _Counted, shift: int) -> tuple[tuple[_Raw, ...], _Counted]:
        """Count the rows whose cells are there, without sorting; return the others, and the count with those rows.

        Rows with weights are all others: their sums would be rounded in another order.
        """
        if done.keys is None or done.squares is not done.mass or any(raw.weights is not None for raw in raws):
            return raws, done
        size, width = len(done.keys), 2 * self.n_groups
        flat = np.empty(sum(len(raw.scores) for raw in raws), dtype=np.int64)
        least, most = done.least.copy(), done.most.copy()
        others, at = [], 0
        for raw in raws:  # one after the other: what a row needs stays in the processor's cache
            keys = keys_of(raw.scores, unit=self._unit)
            places = places_of(keys, shift, done.keys)
            part = flat[at : at + len(keys)]
            np.multiply(places, width, out=part)
            part += raw.cells
            at += len(keys)
            rest = places == size
            if rest.any():
                others.append(_Raw(raw.scores[rest], raw.cells[rest], None, raw.n_groups))
            for ends, extreme, beyond in ((least, np.minimum, np.less), (most, np.maximum, np.greater)):
                rows = np.flatnonzero(beyond(raw.scores, ends.take(places, mode="clip")))
                rows = rows[places[rows] < size]
                extreme.at(ends, places[rows], scores_of(keys[rows], unit=self._unit))
        counts = np.bincount(flat, minlength=(size + 1) * width)[: size * width]
        mass = done.mass + counts.reshape(done.mass.shape)
        return tuple(others), _Counted(least, most, mass, mass, shift, done.keys)

    def _in_cells(self, raw: _Raw, done: _Counted | None) -> _Counted:
        """Count rows by cell, at no smaller a shift than what was counted before."""
        least = {} if done is None or done.shift is None else {"least": done.shift}
        keys = keys_of(raw.scores, unit=self._unit)
        ordered = np.sort(keys)
        shift = shift_for(ordered, self._cells, **least)
        cells, starts = cells_of(ordered, shift)
        ends = np.append(starts[1:], len(ordered)) - 1
        mass, squares = raw.count(places_of(keys, shift, cells), len(cells))
        first, last = (scores_of(ordered[at], unit=self._unit) for at in (starts, ends))
        return _Counted(first, last, mass, squares, shift, cells)


def _by_score(raw: _Raw, values: Array, places: NDArray[np.int64]) -> _Counted:
    mass, squares = raw.count(places, len(values))
    return _Counted(values, values, mass, squares)


def _on(
    keys: NDArray[Any],
    least: Array,
    most: Array,
    parts: tuple[_Counted, _Counted],
    part_keys: tuple[NDArray[Any], ...],
    shift: int | None,
    cells: NDArray[np.int64] | None,
) -> _Counted:
    """Add up two counts at the places of `keys`, increasing; `part_keys` are the parts' keys."""
    (mass1, squares1), (mass2, squares2) = (
        part.at(len(keys), np.searchsorted(keys, mine)) for part, mine in zip(parts, part_keys, strict=True)
    )
    mass = mass1 + mass2
    squares = mass if squares1 is mass1 and squares2 is mass2 else squares1 + squares2
    return _Counted(least, most, mass, squares, shift, cells)


class Scores(Statistic):
    """The score table, for distances between distributions, ROC curves and calibration."""

    def __init__(
        self, low: float = 0.0, high: float = 1.0, limit: int = EXACT_SCORES, budget: int = EXACT_CELLS
    ) -> None:
        self.low, self.high, self.limit, self.budget = low, high, limit, budget

    key = "scores"

    def collect(self, rows: Rows, groups: NDArray[np.int64], n_groups: int) -> ScoreTable:
        """Note the rows; they are counted when the table is read or many wait."""
        assert rows.score is not None  # noqa: S101 -- the auditor asks only where there are scores
        cells = (2 * groups + (rows.outcome > 0.5)).astype(np.int32)
        limit = max(min(self.limit, self.budget // n_groups), 1)
        raw = _Raw(rows.score, cells, rows.weights, n_groups)
        if rows.members is not None and rows.shares is not None:
            raw = _drawn(raw, rows.members, rows.shares)
        return ScoreTable(self.low, self.high, limit, n_groups, (raw,), None, self.budget)


def _drawn(raw: _Raw, members: Array, shares: Array) -> _Raw:
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


def _distinct(scores: Array, limit: int) -> tuple[Array, NDArray[np.int64]] | None:
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


def _unique_count(scores: Array) -> int:
    ordered = np.sort(scores)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + 1


def _add_up(mass: Array, places: NDArray[Any], size: int) -> Array:
    """Add up the rows of `mass` [U, G, 2] that have the same place; places do not decrease."""
    sums = np.zeros((size, *mass.shape[1:]))
    if len(places):
        starts = np.flatnonzero(np.diff(places, prepend=-1))
        sums[places[starts]] = np.add.reduceat(mass, starts, axis=0)
    return sums


# Cells of scores: the finest partition by leading bits that has few enough cells, whatever the order of the rows.


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
            index = np.searchsorted(cells, short)
            index[cells.take(index, mode="clip") != short] = len(cells)
        else:
            index = table.take(short - (first - 1), mode="clip")
        places[start : start + _BLOCK] = index
    return places
