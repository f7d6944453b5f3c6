"""Rows next to given ones: one number of each goes to a neighbouring value of its column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

ATOM = 0.05
"""A value that holds this share of the rows has no neighbours."""
REACH = 0.05
"""How far a number goes: up to this share of its column's distinct values, at least `LEAST` ranks."""
LEAST = 2


def neighbours(
    cells: Mapping[str, NDArray[Any]], fixed: set[str], rng: np.random.Generator
) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
    """Move one number of each row to a neighbouring value of its column.

    Parameters
    ----------
    cells
        Columns, each of shape [n].
    fixed
        Columns that stay.
    rng
        Draws column, direction and distance.

    Returns
    -------
    dict, array
        The columns after it, and the rows that moved, shape [n].
    """
    rows = len(next(iter(cells.values())))
    numbers = [name for name, values in cells.items() if values.dtype.kind in "iuf" and name not in fixed]
    choice, targets = np.full((len(numbers), rows), -1.0), {}
    for place, name in enumerate(numbers):
        moved, may = _moved(cells[name], rng)
        targets[name] = moved
        choice[place] = np.where(may, rng.random(rows), -1.0)
    if not numbers:
        return dict(cells), np.zeros(rows, dtype=bool)
    chosen, any_of = choice.argmax(axis=0), choice.max(axis=0) >= 0
    changed = {
        name: np.where((chosen == numbers.index(name)) & any_of, targets[name], values)
        if name in targets
        else values
        for name, values in cells.items()
    }
    return changed, any_of


def _moved(values: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return a neighbour of each value, and which may move: neither missing nor an atom."""
    finite = np.isfinite(values) if values.dtype.kind == "f" else np.ones(len(values), dtype=bool)
    distinct, level, count = np.unique(values[finite], return_inverse=True, return_counts=True)
    free = count < ATOM * len(values)
    distances = rng.integers(1, max(LEAST, int(np.ceil(REACH * len(distinct)))) + 1, len(level))
    steps = distances * rng.choice([-1, 1], len(level))
    to = level + steps
    to = np.where((to < 0) | (to >= len(distinct)), level - steps, to)
    inside = (to >= 0) & (to < len(distinct))
    far = distinct[np.clip(to, 0, len(distinct) - 1)].astype(np.float64)
    near = distinct[np.clip(to - np.sign(to - level), 0, len(distinct) - 1)].astype(np.float64)
    between = near + (far - near) * rng.random(
        len(level)
    )  # a value of its own: a table may know the column's
    if values.dtype.kind != "f" or bool((distinct == np.floor(distinct)).all()):
        between = np.where(np.abs(far - near) > 1, np.round(between), far)
    found, may = values.copy(), np.zeros(len(values), dtype=bool)
    found[finite] = between.astype(values.dtype)
    may[finite] = inside & free[level] & (found[finite] != values[finite])
    return found, may
