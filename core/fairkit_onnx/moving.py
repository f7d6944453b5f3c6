"""Rows next to given ones: one number of each goes to a neighbouring value of its column, to no other row's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

ATOM = 0.05
"""A value that holds this share of the rows has no neighbours."""
REACH = 0.02
"""How far a number goes: up to this share of its column's distinct values, at least `LEAST` ranks.

Chosen on six tables: false alarms grow with it, and memories are caught with each one tried.
"""
LEAST = 2
TRIES = 8
"""How many moves of a row are drawn until one gives numbers that no row has: a table of the rows knows the others."""


def neighbours(
    cells: Mapping[str, NDArray[Any]], fixed: set[str], rng: np.random.Generator
) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """Move one number of each row to a neighbouring value of its column.

    Where numbers have few values, most rows next to a row are rows of the table themselves. Moves to those say nothing
    about a model that knows the table; a row for which `TRIES` moves find no other one stays.
    """
    rows = len(next(iter(cells.values())))
    columns = {
        name: _Column.of(values) for name, values in cells.items() if values.dtype.kind in "iuf" and name not in fixed
    }
    changed, moved = dict(cells), np.zeros(rows, dtype=bool)
    if not columns:
        return changed, moved
    changed |= {name: cells[name].copy() for name in columns}
    each = {name: _keys(cells[name], place) for place, name in enumerate(columns)}
    keys = np.add.reduce(list(each.values()))
    for _ in range(TRIES):
        chosen, targets = _one_move(columns, cells, rng)
        for place, name in enumerate(columns):
            here = np.flatnonzero((chosen == place) & ~moved)
            after = keys[here] - each[name][here] + _keys(targets[name][here], place)
            here = here[~np.isin(after, keys)]
            changed[name][here] = targets[name][here]
            moved[here] = True
        if moved.all():
            break
    return changed, moved


def _one_move(
    columns: Mapping[str, _Column], cells: Mapping[str, NDArray[Any]], rng: np.random.Generator
) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
    """Return which column of each row moves, -1 where none can, and each column's neighbours."""
    rows = len(next(iter(cells.values())))
    choice, targets = np.empty((len(columns), rows)), {}
    for place, (name, column) in enumerate(columns.items()):
        targets[name], may = column.neighbours(cells[name], rng)
        choice[place] = np.where(may, rng.random(rows), -1.0)
    return np.where(choice.max(axis=0) >= 0, choice.argmax(axis=0), -1), targets


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column's distinct numbers in order, each row's place among them, and what moves.

    `finite` are the rows with a number; `level` and `free` are about those: the place, and whether it is no atom.
    """

    finite: NDArray[np.bool_]
    distinct: NDArray[Any]
    level: NDArray[np.int64]
    free: NDArray[np.bool_]
    whole: bool

    @classmethod
    def of(cls, values: NDArray[Any]) -> _Column:
        """Read it, shape [n]."""
        finite = np.isfinite(values) if values.dtype.kind == "f" else np.ones(len(values), dtype=bool)
        distinct, level, count = np.unique(values[finite], return_inverse=True, return_counts=True)
        whole = values.dtype.kind != "f" or bool((distinct == np.floor(distinct)).all())
        free = (count < ATOM * len(values))[level]
        return cls(finite=finite, distinct=distinct, level=level, free=free, whole=whole)

    def neighbours(self, values: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return a neighbour of each value, and which may move: neither missing nor an atom."""
        count, level = len(self.distinct), self.level
        distances = rng.integers(1, max(LEAST, int(np.ceil(REACH * count))) + 1, len(level))
        steps = distances * rng.choice([-1, 1], len(level))
        to = level + steps
        to = np.where((to < 0) | (to >= count), level - steps, to)
        inside = (to >= 0) & (to < count)
        far = self.distinct[np.clip(to, 0, count - 1)].astype(np.float64)
        near = self.distinct[np.clip(to - np.sign(to - level), 0, count - 1)].astype(np.float64)
        # a value of its own: a table may know the column's
        between = near + (far - near) * rng.random(len(level))
        if self.whole:
            between = np.where(np.abs(far - near) > 1, np.round(between), far)
        moved, may = values.copy(), np.zeros(len(values), dtype=bool)
        moved[self.finite] = between.astype(values.dtype)
        may[self.finite] = inside & self.free & (moved[self.finite] != values[self.finite])
        return moved, may


def _keys(values: NDArray[Any], place: int) -> NDArray[np.uint64]:
    """Return a hash of each number of the column at a place; a row's key is the sum over its columns."""
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)  # -0 is 0
    with np.errstate(over="ignore"):
        mixed = (bits + np.uint64(place + 1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)  # the finish of splitmix64
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))
