"""Columns in cells: what a condition can say about each, known before any outcome is seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairkit.data.arrow import as_numpy
from fairkit.data.roles import value_text
from fairkit.errors import DataError
from fairkit_subgroups.searching.values import Number, Tallies, Text, is_text, plain_text

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

MOST_CELLS = 250
"""Of one column, so that a cell's number fits into a byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCells:
    """One column in cells: those of its values in order, then one of all other text, then one of missing values."""

    name: str  # the column
    texts: tuple[str, ...] = ()  # text: the value of each cell
    starts: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()
    other: bool = False  # whether there is a cell of rarer text, and of missing values. Neither joins a run of cells
    missing: bool = False  # whether there is a cell of rarer text, and of missing values. Neither joins a run of cells

    @property
    def plain(self) -> int:
        """How many cells hold values."""
        return len(self.texts) or len(self.starts)

    @property
    def size(self) -> int:
        """How many cells there are, one at least."""
        return max(1, self.plain + self.other + self.missing)

    @property
    def literals(self) -> list[tuple[int, int]]:
        """What a condition can be: runs of cells, the last one included.

        A category; any run of cells of numbers but all of them; missing; and known, where something is missing.
        """
        last = self.plain - 1
        if self.texts:
            runs = [(cell, cell) for cell in range(self.plain)] if self.size > 1 else []
        else:
            whole = (0, last)
            runs = [(i, j) for i in range(self.plain) for j in range(i, self.plain) if (i, j) != whole]
        if self.missing and self.plain:
            runs.append((self.size - 1, self.size - 1))
            if not self.texts or len(self.texts) > 1 or self.other:
                runs.append((0, self.size - 2))
        return runs

    def condition(self, run: tuple[int, int]) -> dict[str, Any]:
        """Return a literal as data: column, and `value`, or `low` and `high` (None where that end is open).

        A `value` of None is a missing one; `low` and `high` both None is any known value.
        """
        low, high = run
        if self.missing and low == self.size - 1:
            return {"column": self.name, "value": None}
        if self.missing and (low, high) == (0, self.size - 2) and not (self.texts and low == high):
            return {"column": self.name, "low": None, "high": None}
        if self.texts:
            return {"column": self.name, "value": self.texts[low]}
        first, last = self.starts[low], self.ends[high]
        if first == last:
            return {"column": self.name, "value": _number(first)}
        return {
            "column": self.name,
            "low": None if low == 0 else _number(first),
            "high": None if high == self.plain - 1 else _number(last),
        }

    def encode(self, column: pa.Array) -> NDArray[np.uint8]:
        """Return the cell of each row, shape [n]."""
        if self.texts or (not self.starts and is_text(column)):
            return self._texts(column)
        values = as_numpy(column).astype(np.float64)
        codes = np.searchsorted(np.asarray(self.starts[1:]), values, side="right").astype(np.uint8)
        nan = np.isnan(values)
        if nan.any():
            codes[nan] = self._of_missing()
        return codes

    def _texts(self, column: pa.Array) -> NDArray[np.uint8]:
        coded = plain_text(column).dictionary_encode()
        places = {text: cell for cell, text in enumerate(self.texts)}
        rare = self.plain if self.other else -1
        table = np.array(
            [self._of_missing() if t == "" else places.get(t, rare) for t in coded.dictionary.to_pylist()]
            + [self._of_missing()],
            dtype=np.int64,
        )
        at = coded.indices
        rows = np.full(len(at), len(table) - 1)
        known = ~as_numpy(at.is_null()) if at.null_count else np.ones(len(at), dtype=bool)
        rows[known] = as_numpy(at.drop_null() if at.null_count else at)
        codes: NDArray[np.int64] = table[rows]
        if (codes < 0).any():
            raise DataError(f"column {self.name!r} holds text that was not there when its cells were made")
        return codes.astype(np.uint8)

    def _of_missing(self) -> int:
        return self.size - 1 if self.missing else -1 if self.texts else 0


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def make_cells(
    tallies: Tallies, rows: int, *, share: float, bins: int, edges: Mapping[str, Sequence[float]]
) -> tuple[list[ColumnCells], dict[str, str]]:
    """Turn what columns hold into cells."""
    made, left = [], {}
    for name, tally in tallies.columns.items():
        if isinstance(tally, Text):
            column, reason = _text_cells(name, tally, rows, share)
        else:
            column, reason = _number_cells(name, tally, rows, share, bins, edges.get(name))
        if column is None:
            left[name] = reason
        elif not column.literals:
            left[name] = "it has one value only"
        else:
            made.append(column)
    return made, left


def _text_cells(name: str, tally: Text, rows: int, share: float) -> tuple[ColumnCells | None, str]:
    if tally.too_many:
        return None, f"it has more than {Text.most:,} different values"
    frequent = sorted(text for text, count in tally.counts.items() if count >= share * rows)
    if not frequent and len(tally.counts) > 1:
        return None, f"none of its {len(tally.counts):,} values has {share:.3g} of the rows"
    if len(frequent) > MOST_CELLS:
        return None, f"{len(frequent)} of its values have {share:.3g} of the rows, more than {MOST_CELLS}"
    other = len(frequent) < len(tally.counts)
    return ColumnCells(name=name, texts=tuple(frequent), other=other, missing=tally.missing > 0), ""


def _number_cells(
    name: str, tally: Number, rows: int, share: float, bins: int, edges: Sequence[float] | None
) -> tuple[ColumnCells | None, str]:
    values, counts = tally.values, tally.counts
    if edges is None:
        firsts = fill(counts, rows, share, bins) if len(values) else np.empty(0, dtype=np.int64)
    else:
        firsts = np.unique(np.concatenate([[0], np.searchsorted(values, np.asarray(edges))]))
        firsts = firsts[firsts < len(values)]
    if len(firsts) > MOST_CELLS:
        return None, f"it has {len(firsts)} cells, more than {MOST_CELLS}; lower `bins`"
    starts = values[firsts]
    ends = values[np.append(firsts[1:], len(values)) - 1] if len(values) else values
    if tally.dropped:  # a value stands for all that follow up to the next one
        ends = np.append(np.nextafter(starts[1:], -math.inf), tally.largest)
    return (
        ColumnCells(
            name=name,
            starts=tuple(float(one) for one in starts),
            ends=tuple(float(one) for one in ends),
            missing=tally.missing > 0,
        ),
        "",
    )


def fill(counts: NDArray[np.int64], rows: int, share: float, bins: int) -> NDArray[np.int64]:
    """Return the place of the first value of each cell, shape [B], for counts of the sorted distinct values.

    Up to `bins` different values are a cell each. Of more, a value with rows / bins rows is a cell of its own, and
    the others fill cells of that size. Then the smallest cell joins its smaller neighbour, while there are too many
    cells or it has fewer than share · rows.
    """
    if len(counts) <= bins:
        cells = [[place, int(count)] for place, count in enumerate(counts)]
    else:
        cells = _filled(counts, rows / bins)
    while len(cells) > 1:
        least = min(range(len(cells)), key=lambda place: cells[place][1])
        if len(cells) <= bins and cells[least][1] >= share * rows:
            break
        beside = [place for place in (least - 1, least + 1) if 0 <= place < len(cells)]
        other = min(beside, key=lambda place: cells[place][1])
        first, second = min(least, other), max(least, other)
        cells[first][1] += cells[second][1]
        del cells[second]
    return np.array([first for first, _ in cells], dtype=np.int64)


def _filled(counts: NDArray[np.int64], target: float) -> list[list[int]]:
    cells: list[list[int]] = []
    open_cell = False
    for position, count in enumerate(counts.tolist()):
        if count >= target:
            cells.append([position, count])
            open_cell = False
        elif open_cell:
            cells[-1][1] += count
            open_cell = cells[-1][1] < target
        else:
            cells.append([position, count])
            open_cell = True
    return cells


def too_long(names: Sequence[str]) -> str:
    """List names for a message."""
    shown = ", ".join(value_text(name) for name in names[:6])
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")
